"""I26: a gang is bound in enough members or in none."""

from __future__ import annotations

from services.scenarios.invariants.check import Check, Context, Report
from services.scenarios.invariants.view import Key
from services.telemetry.eventlog import Line

GRACE_S = 10.0


class Gangs(Check):
    """I26: bound members are none or at least the minimum, 10 s after the Permit time-out at the latest.

    Until the minimum has once been bound: what leaves later, or a higher minimum, is no business of the gang's
    scheduling. Only time without faults counts.
    """

    id = "I26"
    events = ("store.commit",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        switches = context.switches
        self._grace_s = switches.number("gang.permit_timeout_s") + GRACE_S
        self._bound: dict[Key, dict[str, None]] = {}
        self._since: dict[Key, float] = {}
        self._met: dict[str, None] = {}
        if not switches.flag("GenericWorkload") or switches.choice("gang.generation") == "off":
            self.why_not = "pods are scheduled one by one"

    def take(self, line: Line, report: Report) -> None:
        """Follow who of which group is bound, and which groups met their minimum."""
        commit = self.view.commit
        if commit is None or self.why_not or commit.kind not in ("Pod", "PodGroup"):
            return
        content = commit.content
        if commit.kind == "PodGroup":
            self._judge((content.namespace, content.name), commit.at_s)
            return
        if not content.group:
            return
        group = (content.namespace, content.group)
        bound = self._bound.setdefault(group, {})
        if commit.after is not None and content.node and not content.is_over:
            bound[content.uid] = None
        else:
            bound.pop(content.uid, None)
        self._judge(group, commit.at_s)

    def _judge(self, group: Key, at_s: float) -> None:
        stored, bound = self.view.get("PodGroup", *group), self._bound.get(group)
        if stored is not None and bound is not None and len(bound) >= stored.min_count:
            self._met[stored.uid] = None
        if stored is None or not bound or stored.uid in self._met:
            self._since.pop(group, None)
        else:
            self._since.setdefault(group, at_s)

    def tick(self, line: Line, report: Report) -> None:
        """Report gangs that have been bound in part for too long."""
        now_s = line.mono_ns / 1e9
        for group, since_s in list(self._since.items()):
            if self.context.calm.lasted_s(since_s, now_s) > self._grace_s:
                stored, bound = self.view.get("PodGroup", *group), self._bound[group]
                wanted = stored.min_count if stored is not None else 0
                name = "/".join(group)
                report(line, f"pod group {name} has {len(bound)} bound members since {since_s:.1f} s, needs {wanted}")
                self._since[group] = now_s

    def unfinished(self, now_s: float) -> str:
        """Return the first gang that is bound in part."""
        for group, since_s in self._since.items():
            what = f"pod group {'/'.join(group)} is bound in part"
            return self.within_grace(what, since_s, now_s, self._grace_s)
        return ""


CHECK = Gangs
