"""I26: a gang is bound with enough members or with none."""

from collections.abc import Iterator

from lab.scenarios.invariants.check import Context, Graced, Report, Wrong
from lab.scenarios.invariants.view import Commit, Key
from services.telemetry.eventlog import Line

GRACE_S = 10.0


class Gangs(Graced):
    """I26: bound members are none or at least the minimum, 10 s after the Permit time-out at the latest.

    This applies until the minimum has once been bound: members that leave later, or a higher minimum, do not
    concern gang scheduling. Only time without faults counts.
    """

    id = "I26"
    events = ("store.commit",)
    kinds = ("Pod", "PodGroup")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        switches = context.switches
        self.grace_s = switches.number("gang.permit_timeout_s") + GRACE_S
        self._bound: dict[Key, dict[str, None]] = {}
        self._met: dict[str, None] = {}
        if not switches.flag("GenericWorkload") or switches.choice("gang.generation") == "off":
            self.why_not = "pods are scheduled one by one"

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Check the group of a pod that is bound."""
        if self.why_not:
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
            self.since.pop(group, None)
        else:
            self.since.setdefault(group, at_s)

    def wrong(self, now_s: float) -> Iterator[Wrong]:
        """Yield the gangs that are only partly bound."""
        for group in [group for group in self._bound if group in self.since]:
            stored, bound, since_s = self.view.get("PodGroup", *group), self._bound[group], self.since[group]
            wanted, name = stored.min_count if stored is not None else 0, f"pod group {'/'.join(group)}"
            what = f"{name} has {len(bound)} bound members since {since_s:.1f} s, needs {wanted}"
            yield Wrong(group, what, f"{name} is bound in part")
