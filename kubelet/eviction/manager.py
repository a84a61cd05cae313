"""When a node runs short, whom it evicts: thresholds, pressure, ranking, and the words for it. Pure.

Every ten seconds the node looks at what is left. A threshold that was crossed turns a condition, which lasts until
five minutes after the last crossing; a soft one must stay crossed for its grace period. Then one pod is evicted a
round: first those that use more than they asked for, then the least important, then the greediest.
Source: kubelet 7; upstream `pkg/kubelet/eviction` (order of thresholds, ranking, messages).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kubelet.eviction.signals import Threshold
from kubelet.managers.allocation import Rejection
from kubelet.view import KubeletPod, WorkerKey, is_critical
from services.api.kinds.node import Taint
from services.api.podresources import Amounts, container_requests, pod_requests, qos_class
from services.api.quantity import format_amount
from services.api.taints import NO_SCHEDULE, untolerated

MONITOR_PERIOD_S = 10.0
CLEANUP_WAIT_S = 30.0
"""After an eviction no other pod is evicted until the pod has ended, or for this long."""
HARD_GRACE_S = 1.0
_MEMORY_TAINT = Taint(key="node.kubernetes.io/memory-pressure", effect=NO_SCHEDULE)


class ContainerUse(msgspec.Struct, frozen=True):
    """What one running container uses and what it asked for."""

    name: str
    used: Mapping[str, int]
    requested: Amounts


class PodUse(msgspec.Struct, frozen=True):
    """What one pod uses."""

    key: WorkerKey
    pod: KubeletPod
    containers: tuple[ContainerUse, ...]

    def total(self, resource: str) -> int:
        """Return the sum over its containers."""
        return sum(c.used.get(resource, 0) for c in self.containers)


class Victim(msgspec.Struct, frozen=True):
    """Who leaves, how fast, and what is said about it."""

    key: WorkerKey
    grace_s: float
    message: str
    signal: str


class Look(msgspec.Struct, frozen=True):
    """What a look at the node brought: the resource it tries to get back ("" none), and whom it evicts.

    `is_of_images`: unused images free some of it.
    """

    reclaims: str = ""
    victim: Victim | None = None
    has_turned: bool = False
    is_of_images: bool = False


class Pressure:
    """One node's shortage. Invariant: `conditions` are those of thresholds crossed within the transition period."""

    def __init__(
        self,
        thresholds: tuple[Threshold, ...],
        capacity: Mapping[str, int],
        *,
        transition_s: float = 300.0,
        max_pod_grace_s: float = 0.0,
    ) -> None:
        self._thresholds, self._capacity = thresholds, capacity
        self._transition_s, self._max_pod_grace_s = transition_s, max_pod_grace_s
        self._since_s: dict[int, float] = {}
        self._seen_s: dict[str, float] = {}
        self._leaving: WorkerKey | None = None
        self._leaving_until_s = 0.0
        self.conditions: tuple[str, ...] = ()

    def look(self, now: float, node_use: Mapping[str, int], pods: Sequence[PodUse]) -> Look:
        """Take the node's own use and that of the pods that are not at their end; say what must be done."""
        left = {
            name: size - node_use.get(name, 0) - sum(p.total(name) for p in pods)
            for name, size in self._capacity.items()
        }
        crossed = [(i, t) for i, t in enumerate(self._thresholds) if left[t.signal.usage] < t.least]
        self._since_s = {i: self._since_s.get(i, now) for i, _ in crossed}
        for _, threshold in crossed:
            self._seen_s[threshold.signal.condition] = now
        held = tuple(
            sorted(kind for kind, seen_s in self._seen_s.items() if now - seen_s < self._transition_s or seen_s == now)
        )
        has_turned, self.conditions = held != self.conditions, held
        if self._leaving is not None and now < self._leaving_until_s and any(p.key == self._leaving for p in pods):
            return Look(has_turned=has_turned)
        self._leaving = None
        due = [t for i, t in crossed if t.grace_s is None or now - self._since_s[i] >= t.grace_s]
        if not due:
            return Look(has_turned=has_turned)
        threshold = due[0]
        victim = self._victim(threshold, left[threshold.signal.usage], pods)
        if victim is not None:
            self._leaving, self._leaving_until_s = victim.key, now + CLEANUP_WAIT_S
        return Look(threshold.signal.resource, victim, has_turned, threshold.signal.usage == "imagefs")

    def is_too_much(self, usage: str, used: int) -> bool:
        """Whether so much of a resource crosses one of its thresholds."""
        left = self._capacity[usage] - used
        return any(each.signal.usage == usage and left < each.least for each in self._thresholds)

    def _victim(self, threshold: Threshold, left: int, pods: Sequence[PodUse]) -> Victim | None:
        signal = threshold.signal
        may_leave = [p for p in pods if not is_critical(p.pod)]
        if not may_leave or not signal.is_of_pods:
            return None
        first = min(may_leave, key=lambda p: _rank(p, signal.usage))
        grace_s = HARD_GRACE_S
        if threshold.grace_s is not None:
            grace_s = min(self._max_pod_grace_s, float(first.pod.spec.termination_grace_period_seconds))
        return Victim(first.key, grace_s, _message(threshold, left, first), signal.name)

    def refuses(self, pod: KubeletPod) -> Rejection | None:
        """Return why a pod may not come in while the node is short; under memory pressure only BestEffort ones."""
        if not self.conditions or is_critical(pod):
            return None
        if self.conditions == ("MemoryPressure",):
            tolerates = untolerated((_MEMORY_TAINT,), pod.spec.tolerations, (NO_SCHEDULE,)) is None
            if tolerates or qos_class(pod) != "BestEffort":
                return None
        return Rejection("Evicted", f"The node had condition: [{' '.join(self.conditions)}]. ")


def _rank(use: PodUse, resource: str) -> tuple[bool, int, int, str, str]:
    """Return what sorts the first to leave first; processes are not asked for, so priority comes first there."""
    asked, has = pod_requests(use.pod).get(resource, 0), use.total(resource)
    meta = use.pod.metadata
    is_modest = resource != "pids" and has <= asked
    return is_modest, use.pod.spec.priority, asked - has, meta.namespace, meta.name


def _message(threshold: Threshold, left: int, use: PodUse) -> str:
    signal = threshold.signal
    text = f"The node was low on resource: {signal.resource}. "
    text += f"Threshold quantity: {threshold.text}, available: {format_amount(signal.resource, max(0, left))}. "
    for container in use.containers:
        has, asked = container.used.get(signal.usage, 0), container.requested.get(signal.usage, 0)
        if has > asked:
            amounts = format_amount(signal.usage, has), format_amount(signal.usage, asked)
            text += f"Container {container.name} was using {amounts[0]}, request is {amounts[1]}, "
            text += f"has larger consumption of {signal.resource}. "
    return text


def container_use(pod: KubeletPod, name: str, used: Mapping[str, int]) -> ContainerUse:
    """Return one container's use with what it asked for."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        if container.name == name:
            return ContainerUse(name, used, container_requests(container))
    return ContainerUse(name, used, {})
