"""I14: every change was requested once, and refused requests changed nothing."""

from dataclasses import dataclass

from lab.scenarios.invariants.check import Check, Context, Report
from lab.scenarios.invariants.view import Commit, Recent
from services.telemetry.eventlog import Line

KEPT = 20_000
WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(slots=True)
class _RequestCounts:
    """Counts for one request id of one identity. `refused`: arrivals that were answered with a definite refusal."""

    arrivals: int = 0
    refused: int = 0
    group_end: int = 0


class CommitsHaveRequests(Check):
    """I14: a commit has its `api.request`, a request commits at most one group, a refused one none.

    A request id may arrive more than once; it may commit unless all of its arrivals were refused. Calls
    without an id are distinguished by identity, verb and object only.
    """

    id = "I14"
    events = ("store.commit", "api.request", "api.response")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._asked: Recent[tuple[str, str], _RequestCounts] = Recent(KEPT)
        self._open: Recent[tuple[str, str, str], None] = Recent(KEPT)
        self._group: tuple[str, int] = ("", 0)

    def take(self, line: Line, report: Report) -> None:
        """Count requests and their refusals."""
        verb = line.data.get("verb")
        if verb not in WRITES:
            return
        if not line.req_id:
            key = (line.identity, str(verb), str(line.data.get("path", "")))
            if line.ev == "api.request":
                self._open[key] = None
            return
        if line.ev == "api.request":
            self._of(line).arrivals += 1
            return
        asked = self._of(line)
        code = int(line.data.get("code", 0))
        # RequestIDReused repeats an id with another body: the first use may well have been committed.
        if line.data.get("reason") == "RequestIDReused":
            asked.arrivals -= 1
        elif code >= 400 and code != 500 and line.data.get("definite", True):
            asked.refused += 1
            if asked.group_end and asked.refused >= max(1, asked.arrivals):
                report(line, f"request {line.req_id} was refused with {code} and yet committed at {asked.group_end}")

    def _of(self, line: Line) -> _RequestCounts:
        key = (line.identity, line.req_id)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _RequestCounts()
        return asked

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Match a change with its request."""
        if commit.is_replayed:
            return
        end = commit.group_end
        is_first = self._group != (line.comp + line.inc, end)
        self._group = (line.comp + line.inc, end)
        if not line.req_id:
            if is_first and not self._was_asked(line):
                report(line, f"{line.identity} did not ask for this {commit.verb}")
            return
        asked = self._of(line)
        if asked.group_end and asked.group_end != end:
            report(line, f"request {line.req_id} committed twice, up to {asked.group_end} and {end}")
        elif is_first and asked.arrivals <= asked.refused:
            what = "was refused" if asked.refused else "never arrived"
            report(line, f"request {line.req_id} of {line.identity} {what} and yet committed at {end}")
        asked.group_end = end

    def _was_asked(self, line: Line) -> bool:
        if line.obj is None or not line.identity:
            return False
        resource = self.view.resources.get(line.obj["kind"], "")
        verb, sub = str(line.data.get("verb", "")), str(line.data.get("subresource", ""))
        asked = (("deletecollection", "", ""), (verb, line.obj["name"], sub), (verb, "", sub))
        paths = ((verb, "/".join((resource, line.obj["ns"], name, sub)).rstrip("/")) for verb, name, sub in asked)
        return (verb, sub) == ("create", "eviction") or any((line.identity, *each) in self._open for each in paths)
