"""I11: no pod outlives its owner or its node for long."""

from __future__ import annotations

from services.scenarios.invariants.check import Check, Context, Report
from services.scenarios.invariants.view import Stored
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
            if commit.kind == "Pod" and self._why(commit.content):
                self._at_risk = True

    def _look(self, now_s: float) -> dict[tuple[str, str], str]:
        """Return the pods whose owner or node went and which of them, and note since when."""
        pods = self.view.table("Pod").objects
        orphans = {key: why for key, pod in pods.items() if (why := self._why(pod))}
        self._since = {key: self._since.get(key, now_s) for key in orphans}
        self._at_risk = bool(pods)
        return orphans

    def _why(self, pod: Stored) -> str:
        if pod.owners and not any(uid in self._living for uid in pod.owners):
            return "its owner is gone"
        if pod.node and self.view.get("Node", "", pod.node) is None:
            return f"its node {pod.node} is gone"
        return ""

    def tick(self, line: Line, report: Report) -> None:
        """Report pods whose owner or node went longer ago than the grace."""
        if not self._at_risk:
            return
        now_s = line.mono_ns / 1e9
        for key, why in self._look(now_s).items():
            since_s = self._since[key]
            if self.context.calm.lasted_s(since_s, now_s) > GRACE_S:
                report(line, f"pod {'/'.join(key)} is still there: {why} since {since_s:.1f} s")
                self._since[key] = now_s

    def unfinished(self, now_s: float) -> str:
        """Return the first pod whose owner or node is gone."""
        for key, why in self._look(now_s).items():
            return self.within_grace(f"pod {'/'.join(key)} is still there, {why}", self._since[key], now_s, GRACE_S)
        return ""


CHECK = NoOrphans
