"""I16: every cache equals the stored state at the version it has reached."""

from lab.scenarios.invariants.check import Check, Context, Report
from lab.scenarios.invariants.view import matcher
from services.client.statehash import MODULUS, version_summand
from services.telemetry.eventlog import Line


class CachesAreViews(Check):
    """I16: the hash in a `cache.sync` line is that of the filtered view at the line's version."""

    id = "I16"
    events = ("cache.sync",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.why_not = "no cache wrote a cache.sync line"
        self._judged = 0

    def take(self, line: Line, report: Report) -> None:
        """Compare one cache with the view."""
        data, rv = line.data, line.rv_seen or 0
        kind = self.view.kinds.get(str(data.get("resource", "")), "")
        versions_hash = str(data.get("versions_hash", ""))
        matches = matcher(data.get("namespace", ""), data.get("field_selector", ""), data.get("label_selector", ""))
        if not kind or not versions_hash or matches is None:
            if not self._judged:
                self.why_not = f"selectors of {data.get('resource')} are not in commit lines"
            return
        if rv > self.view.rv:
            report(line, f"the cache of {data.get('resource')} has reached {rv}; the newest version is {self.view.rv}")
            return
        objects = self.view.tables[kind].at(rv, matches)
        if objects is None:  # too long ago
            return
        total = sum(version_summand(s.kind, s.namespace, s.name, s.rv) for s in objects.values())
        wanted = f"{total % MODULUS:064x}"
        self._judged += 1
        self.why_not = ""
        if wanted != versions_hash:
            held = f"holds {data.get('objects')} objects with hash {versions_hash[:12]}"
            stored = f"{len(objects)} are stored, with hash {wanted[:12]}"
            report(line, f"the cache of {data.get('resource')} at {rv} {held}; {stored}")
