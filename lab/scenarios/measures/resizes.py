"""Outcomes of resizes: the number requested, the time they took, and their cost to other pods. Pure.

They are read from pod changes with the time they were seen, and from the schedulers' lines in the event
log. A resize begins when the spec of a bound pod requests other resources than before. It is met when the
node reports these as actual. A resize that replaces another continues its wait; one that is withdrawn was
never met.
"""

from dataclasses import dataclass, field
from typing import Final

from lab.scenarios.measures import quantile
from services.api.kinds.pod import Pod
from services.api.podresources import Amounts, as_actual, as_allocated, pod_requests
from services.reconcile.controller import Change
from services.telemetry.eventlog import Line


class Preemptions:
    """Preemptions by schedulers. `victims`: uids of pods; `attempts`: cycles of deferred resizes."""

    events: Final = ("sched.resize", "sched.victim")

    def __init__(self) -> None:
        self.attempts = 0
        self.victims: dict[str, None] = {}

    def take(self, line: Line) -> None:
        """Note an attempt to preempt for a resize, or a victim of any preemption."""
        if line.ev == "sched.resize":
            self.attempts += 1
        elif line.ev == "sched.victim" and line.obj is not None:
            self.victims[line.obj["uid"]] = None


@dataclass(slots=True)
class _PodResize:
    """State of a pod's resize. `since_s`: start of the unfinished resize, None without one; `had`: the pod's
    resources at that time.
    """

    pod: Pod
    since_s: float | None = None
    had: Amounts = field(default_factory=dict)


class Resizes:
    """All resizes of a run. `met_s`: duration of each resize that was met."""

    def __init__(self) -> None:
        self.asked = 0
        self.met_s: list[float] = []
        self._pods: dict[str, _PodResize] = {}

    def observe(self, change: Change[Pod], now_s: float) -> None:
        """Process a change of a pod, seen at `now_s`."""
        pod = change.new
        if pod is None or not pod.spec.node_name:
            return
        known = self._pods.get(pod.metadata.uid)
        if known is None:
            self._pods[pod.metadata.uid] = _PodResize(pod)
            return
        before, known.pod = known.pod, pod
        is_same = before.metadata.generation == pod.metadata.generation
        if is_same and known.since_s is None:
            return
        try:
            self._follow(known, before, is_same, now_s)
        except ValueError:  # a malformed quantity is nothing that could come true
            return

    def _follow(self, known: _PodResize, before: Pod, is_same: bool, now_s: float) -> None:
        desired, actual = pod_requests(known.pod), pod_requests(as_actual(known.pod))
        if not is_same and known.since_s is None and desired != pod_requests(before):
            self.asked += 1
            known.since_s, known.had = now_s, pod_requests(as_actual(before))
        if known.since_s is not None and actual == desired:
            if actual != known.had:
                self.met_s.append(now_s - known.since_s)
            known.since_s = None

    def allocated_amounts(self, uid: str) -> Amounts:
        """Return the last known allocated resources of the pod; empty if it never had a node."""
        known = self._pods.get(uid)
        try:
            return {} if known is None else pod_requests(as_allocated(known.pod))
        except ValueError:
            return {}


def resize_measures(resizes: Resizes, preemptions: Preemptions) -> dict[str, float | None]:
    """Return the figures by name; times in seconds, CPU in cores, memory in GiB.

    `victims`: pods that a scheduler evicted, for a resize or for a new pod. The evicted capacity is what they
    had allocated.
    """
    lost = [resizes.allocated_amounts(uid) for uid in preemptions.victims]
    return {
        "victims": float(len(lost)),
        "evicted_cpu": sum(amounts.get("cpu", 0) for amounts in lost) / 1000,
        "evicted_memory_gib": sum(amounts.get("memory", 0) for amounts in lost) / 2**30,
        "resizes_asked": float(resizes.asked),
        "resizes_met": float(len(resizes.met_s)),
        "time_to_resized_p50_s": quantile(resizes.met_s, 0.50),
        "time_to_resized_p99_s": quantile(resizes.met_s, 0.99),
        "resize_attempts": float(preemptions.attempts),
    }
