"""I17: only a waiting pod is nominated, and only to an existing node."""

from collections.abc import Iterator

from lab.scenarios.invariants.check import Context, Graced, Report, Wrong, uid_of
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


class Nominations(Graced):
    """I17: no bound or terminal pod is nominated; a nomination names an existing node and ends with a failed
    cycle.

    The second part must hold after 10 s without faults.
    """

    id = "I17"
    grace_s = 10.0
    events = ("store.commit", "sched.attempt", "sched.nominate")
    kinds = ("Pod",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nominated: dict[str, tuple[str, str]] = {}
        self._failed: dict[str, float] = {}

    def take(self, line: Line, report: Report) -> None:
        """Track cycles that found no node."""
        self._failed.pop(uid_of(line), None)
        is_failure = line.ev == "sched.attempt" and line.data.get("outcome") == "unschedulable"
        if is_failure and uid_of(line) in self._nominated and not line.data.get("nominated"):
            self._failed[uid_of(line)] = line.mono_ns / 1e9

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Track the nomination in each pod commit."""
        pod = commit.content
        if commit.type == "DELETED" or not pod.nominated:
            if pod.uid in self._nominated:
                del self._nominated[pod.uid]
                self._failed.pop(pod.uid, None)
            return
        self._nominated[pod.uid] = (pod.nominated, f"{pod.namespace}/{pod.name}")
        # Before KEP-5278 the server left the nomination of a pod that was bound.
        is_cleared = self.context.switches.flag("ClearingNominatedNodeNameAfterBinding")
        # One of the designs of KEP-5836 has a resizing pod nominated to where it is.
        marks_resize = self.context.switches.choice("resize.double_preemption") == "nnn" and pod.nominated == pod.node
        if pod.node and (marks_resize or not is_cleared):
            del self._nominated[pod.uid]
        elif pod.node or pod.is_over:
            report(line, f"nominated to {pod.nominated} while bound to {pod.node or 'nothing'}, phase {pod.phase}")

    def wrong(self, now_s: float) -> Iterator[Wrong]:
        """Yield the nominations that should have been cleared."""
        bad: dict[str, str] = {}
        for uid, (node, name) in self._nominated.items():
            if self.view.get("Node", "", node) is None:
                bad[uid] = f"pod {name} is still nominated to {node}: node {node} is gone"
            elif uid in self._failed:
                bad[uid] = f"pod {name} is still nominated to {node}: its cycle found no candidate"
        self.since = {uid: self.since.get(uid, self._failed.get(uid, now_s)) for uid in bad}
        for uid, what in bad.items():
            yield Wrong(uid, f"{what} since {self.since[uid]:.1f} s", what)
