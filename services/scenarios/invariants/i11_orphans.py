"""I11: no pod outlives its owner or its node for long."""

from __future__ import annotations

from services.scenarios.invariants.check import Check, Context, Report
from services.telemetry.eventlog import Line

GRACE_S = 90.0


class NoOrphans(Check):
    """I11: no pod without a living owner, if it had one, and none bound to a node that is gone; 90 s."""

    id = "I11"
    events = ("store.commit",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._living: dict[str, None] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._at_risk = False

    def take(self, line: Line, report: Report) -> None:
        """Know which uids live."""
        commit = self.view.commit
        if commit is None:
            return
        if commit.type == "DELETED":
            self._living.pop(commit.content.uid, None)
            self._at_risk = True
        else:
            self._living[commit.content.uid] = None

    def tick(self, line: Line, report: Report) -> None:
        """Look for pods whose owner or node went."""
        if not self._at_risk:
            return
        now_s = line.mono_ns / 1e9
        seen: dict[tuple[str, str], float] = {}
        for key, pod in self.view.table("Pod").objects.items():
            why = ""
            if pod.owners and not any(uid in self._living for uid in pod.owners):
                why = "its owner is gone"
            elif pod.node and self.view.get("Node", "", pod.node) is None:
                why = f"its node {pod.node} is gone"
            if not why:
                continue
            since_s = seen[key] = self._since.get(key, now_s)
            if self.context.calm.lasted_s(since_s, now_s) > GRACE_S:
                report(line, f"pod {pod.namespace}/{pod.name} is still there: {why} since {since_s:.1f} s")
                seen[key] = now_s
        self._since = seen
        self._at_risk = bool(seen) or (self._at_risk and bool(self.view.table("Pod").objects))


CHECK = NoOrphans
