"""Whether a pod that is on a node already fits there at the size it asks for, as the node is or changed in thought.

The pod counts with that size already, so what it asks for beyond is usually nothing, and the question is whether
the node is overbooked in anything the pod asks for. Source: kep-5836 6.2; upstream `noderesources` (1.37).
"""

from collections.abc import Callable, Sequence

from scheduler.cache.node_info import NATIVE, NodeInfo, PodInfo, native_first
from scheduler.framework.cycle_state import TOO_MANY_PODS
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.preemption.units import Unit
from services.api.podresources import Amounts

Count = Callable[[PodInfo], Amounts]


def counted(pod: PodInfo) -> Amounts:
    """Return what the pod counts for in the scheduler: the most of what it requests, was allocated and has."""
    return pod.requests.amounts


class NodeCapacity:
    """One node with pods taken off and put back; a `WhatIf` of `preemption.candidates`.

    `need`: what the pod asks for. `rivals`: pods nominated to the node that matter at least as much. `count`: what
    every other pod counts for. Without `adjusts_pod_count`, as upstream, the pod is counted twice where the
    number of pods is limited; with `without_self` the node is looked at as if the pod were not there yet.
    """

    def __init__(
        self,
        node: NodeInfo,
        pod: PodInfo,
        need: Amounts,
        *,
        rivals: Sequence[PodInfo] = (),
        count: Count = counted,
        adjusts_pod_count: bool = False,
        without_self: bool = False,
    ) -> None:
        self._allocatable = node.allocatable
        self._need = [(name, need[name]) for name in sorted(need, key=native_first) if need[name] > 0]
        mine = node.pods.get(pod.uid) if not without_self else None
        self._has = counted(mine) if mine is not None else {}
        self._count = count
        self._pods = {uid for uid in node.pods if not (without_self and uid == pod.uid)}
        self._gone: set[str] = set()
        self._newcomers = len(rivals) + (0 if adjusts_pod_count and mine is not None else 1)
        self._used: Amounts = {}
        for uid, other in node.pods.items():
            if uid != pod.uid:
                self._charge(count(other), 1)
        self._charge(self._has, 1)
        for rival in rivals:
            self._charge(counted(rival), 1)

    def remove(self, unit: Unit) -> None:
        """Remove the unit; its pods on other nodes make no difference here."""
        for pod in unit.pods:
            if pod.uid in self._pods:
                self._pods.remove(pod.uid)
                self._charge(self._count(pod), -1)
                self._gone.add(pod.uid)

    def add(self, unit: Unit) -> None:
        """Put a removed unit back."""
        for pod in unit.pods:
            if pod.uid in self._gone:
                self._gone.remove(pod.uid)
                self._pods.add(pod.uid)
                self._charge(self._count(pod), 1)

    def fits(self) -> Status:
        """Name everything that is short; what the node could never give, no eviction can.

        Of an extended resource only what the pod asks for beyond what it counts for has to be there at all.
        """
        reasons: list[str] = []
        code = Code.UNSCHEDULABLE
        if len(self._pods) + self._newcomers > self._allocatable.get("pods", 0):
            reasons.append(TOO_MANY_PODS)
        for name, need in self._need:
            most = self._allocatable.get(name, 0)
            more = max(need - self._has.get(name, 0), 0)
            if (need if name in NATIVE else more) > most:
                code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            elif more <= most - self._used.get(name, 0):
                continue
            reasons.append(f"Insufficient {name}")
        return Status(code, tuple(reasons)) if reasons else SUCCESS

    def shortage(self) -> Amounts:
        """Return how much of what the pod asks for is missing, without resources of which there is enough."""
        found: Amounts = {}
        for name, need in self._need:
            more = max(need - self._has.get(name, 0), 0)
            missing = more + self._used.get(name, 0) - self._allocatable.get(name, 0)
            if missing > 0:
                found[name] = missing
        return found

    def _charge(self, amounts: Amounts, sign: int) -> None:
        used = self._used
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + sign * amount
