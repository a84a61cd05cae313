"""I9: no devices are deallocated while a pod uses them."""

from lab.scenarios.invariants.check import NO_CLAIMS, Check, Context, Departed, Report, uid_of
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


class NoRunningPodLosesDevices(Check):
    """I9: a commit that clears an allocation leaves no consumer, and no former consumer still runs.

    A pod that was removed by force does not count: no component can wait for the end of an object that no
    longer exists.
    """

    id = "I9"
    why_not = NO_CLAIMS
    events = ("store.commit", "kubelet.start", "kubelet.stop", "node.boot")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._running: dict[str, str] = {}
        self._forced = Departed()

    def take(self, line: Line, report: Report) -> None:
        """Track running pods."""
        match line.ev:
            case "kubelet.start":
                self._running[uid_of(line)] = line.node
            case "kubelet.stop":
                self._running.pop(uid_of(line), None)
            case "node.boot":
                self._running = {uid: node for uid, node in self._running.items() if node != line.node}

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Check every claim that loses its devices."""
        if commit.is_replayed:
            return
        if commit.kind == "Pod" and commit.type == "DELETED" and not commit.identity.startswith("system:node:"):
            self._forced.add(commit.content.uid)
        if commit.kind == "ResourceClaim":
            self.why_not = ""
        if commit.kind != "ResourceClaim" or commit.before is None or commit.before.granted is None:
            return
        if commit.after is not None and commit.after.granted is not None:
            return
        lost = f"claim {commit.content.name} lost its devices"
        if commit.after is not None and commit.after.consumers:
            report(line, f"{lost} and is reserved for {commit.after.consumers}")
        for uid in commit.before.consumers:
            if uid in self._running and uid not in self._forced:
                report(line, f"{lost} while pod {uid} runs on {self._running[uid]}")
