"""Whether a pod on a node fits there at its requested size, on the real node or a hypothetical one.

The pod counts with that size already, so it usually requests nothing beyond it, and the question is whether
the node is overbooked in any requested resource. Source: kep-5836 6.2; upstream `noderesources` (1.37).
"""

from collections.abc import Callable, Sequence

from scheduler.cache.node_info import NATIVE, NodeInfo, PodInfo, native_first
from scheduler.framework.cycle_state import TOO_MANY_PODS
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.preemption.units import Unit
from services.api.podresources import Amounts

Count = Callable[[PodInfo], Amounts]


def counted_amounts(pod: PodInfo) -> Amounts:
    """Return the pod's counted amounts: the maximum of what it requests, was allocated and has."""
    return pod.requests.amounts


class NodeCapacity:
    """One node with pods removed and put back; a `WhatIf` of `preemption.candidates`.

    `need`: the pod's requests. `rivals`: pods nominated to the node with at least the same priority. `count`:
    returns the counted amounts of every other pod. Without `adjusts_pod_count`, as upstream, the pod is counted
    twice in the limit on the number of pods; with `without_self` the node is treated as if the pod were not
    there yet.
    """

    def __init__(
        self,
        node: NodeInfo,
        pod: PodInfo,
        need: Amounts,
        *,
        rivals: Sequence[PodInfo] = (),
        count: Count = counted_amounts,
        adjusts_pod_count: bool = False,
        without_self: bool = False,
    ) -> None:
        self._allocatable = node.allocatable
        self._need = [(name, need[name]) for name in sorted(need, key=native_first) if need[name] > 0]
        mine = node.pods.get(pod.uid) if not without_self else None
        self._has = counted_amounts(mine) if mine is not None else {}
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
            self._charge(counted_amounts(rival), 1)

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
        """Return all resources that are short; beyond the node's allocatable amount no eviction helps.

        For an extended resource, only the request beyond the pod's counted amount has to be available.
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
        """Return the missing amounts of requested resources, without resources of which there is enough."""
        shortage: Amounts = {}
        for name, need in self._need:
            more = max(need - self._has.get(name, 0), 0)
            missing = more + self._used.get(name, 0) - self._allocatable.get(name, 0)
            if missing > 0:
                shortage[name] = missing
        return shortage

    def _charge(self, amounts: Amounts, sign: int) -> None:
        used = self._used
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + sign * amount
