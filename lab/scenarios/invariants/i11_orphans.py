"""I11: no pod outlives its owner or its node for long."""

from collections.abc import Iterator

from lab.scenarios.invariants.check import Context, Graced, Report, Wrong
from lab.scenarios.invariants.view import Commit, Stored
from services.telemetry.eventlog import Line


class NoOrphans(Graced):
    """I11: no pod outlives all of its owners, and no bound pod outlives its node; 90 s."""

    id = "I11"
    grace_s = 90.0
    events = ("store.commit",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._living: dict[str, None] = {}
        self._at_risk = False

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Track who lives, and whether a pod may be an orphan."""
        if commit.type == "DELETED":
            self._living.pop(commit.content.uid, None)
            self._at_risk = True
        else:
            self._living[commit.content.uid] = None
            if commit.kind == "Pod" and self._why(commit.content):
                self._at_risk = True

    def _why(self, pod: Stored) -> str:
        if pod.owners and not any(uid in self._living for uid in pod.owners):
            return "its owner is gone"
        if pod.node and self.view.get("Node", "", pod.node) is None:
            return f"its node {pod.node} is gone"
        return ""

    def wrong(self, now_s: float) -> Iterator[Wrong]:
        """Yield the pods whose owner or node is gone."""
        pods = self.view.tables["Pod"].objects
        orphans = {key: why for key, pod in pods.items() if (why := self._why(pod))}
        self.note(orphans, now_s)
        self._at_risk = bool(pods)
        for key, why in orphans.items():
            there = f"pod {'/'.join(key)} is still there"
            yield Wrong(key, f"{there}: {why} since {self.since[key]:.1f} s", f"{there}, {why}")

    def tick(self, line: Line, report: Report) -> None:
        """Check only when there may be orphans."""
        if self._at_risk:
            super().tick(line, report)
