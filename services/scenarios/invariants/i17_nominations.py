"""I17: a nomination is for a pod that waits, on a node that exists."""

from __future__ import annotations

from services.scenarios.invariants.check import Check, Context, Report, pod_commit, uid_of
from services.telemetry.eventlog import Line

GRACE_S = 10.0


class Nominations(Check):
    """I17: no bound or terminal pod is nominated; a nomination names an existing node and ends with a failed cycle.

    The second part has 10 s without faults to become true.
    """

    id = "I17"
    events = ("store.commit", "sched.attempt", "sched.nominate")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nominated: dict[str, tuple[str, str]] = {}
        self._bad_since: dict[str, float] = {}
        self._failed: dict[str, float] = {}

    def take(self, line: Line, report: Report) -> None:
        """Look at the nomination each pod commit leaves, and at cycles that found no node."""
        if line.ev != "store.commit":
            self._failed.pop(uid_of(line), None)
            is_failure = line.ev == "sched.attempt" and line.data.get("outcome") == "unschedulable"
            if is_failure and uid_of(line) in self._nominated and not line.data.get("nominated"):
                self._failed[uid_of(line)] = line.mono_ns / 1e9
            return
        commit = pod_commit(self.view)
        if commit is None:
            return
        pod = commit.content
        if commit.type == "DELETED" or not pod.nominated:
            if pod.uid in self._nominated:
                del self._nominated[pod.uid]
                self._bad_since.pop(pod.uid, None)
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

    def _look(self, now_s: float) -> dict[str, str]:
        """Return which nominations should go and why, by pod, and note since when."""
        bad: dict[str, str] = {}
        for uid, (node, name) in self._nominated.items():
            is_missing = self.view.get("Node", "", node) is None
            if not is_missing and uid not in self._failed:
                self._bad_since.pop(uid, None)
                continue
            self._bad_since.setdefault(uid, self._failed.get(uid, now_s))
            why = f"node {node} is gone" if is_missing else "its cycle found no candidate"
            bad[uid] = f"pod {name} is still nominated to {node}: {why}"
        return bad

    def tick(self, line: Line, report: Report) -> None:
        """Report nominations that should have gone."""
        now_s = line.mono_ns / 1e9
        for uid, what in self._look(now_s).items():
            since_s = self._bad_since[uid]
            if self.context.calm.lasted_s(since_s, now_s) > GRACE_S:
                report(line, f"{what} since {since_s:.1f} s")
                self._bad_since[uid] = now_s

    def unfinished(self, now_s: float) -> str:
        """Return the first nomination that should go."""
        for uid, what in self._look(now_s).items():
            return self.within_grace(what, self._bad_since[uid], now_s, GRACE_S)
        return ""


CHECK = Nominations
