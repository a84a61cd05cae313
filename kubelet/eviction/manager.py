"""Evictions of a node that runs short: thresholds, pressure conditions, ranking of pods, and messages. Pure.

Every ten seconds the node checks what is left. A crossed threshold sets a condition, which lasts until five
minutes after the last crossing; a soft threshold must stay crossed for its grace period. Pods that exceed a
limit of their local storage are evicted, whatever the node has left. Only when there are none, one pod is
evicted per round: first the pods that use more than their requests, then the lowest priority, then the
largest use above requests. Source: kubelet 7; upstream `pkg/kubelet/eviction` (order of thresholds,
ranking, messages).
"""

from collections.abc import Mapping, Sequence

import msgspec

from kubelet.effects import NODE_KEY, Outbox, RecordNodeEvent, ReportNode, SetTimer
from kubelet.eviction.local_storage import STORAGE, excess
from kubelet.eviction.signals import Eviction, Threshold, thresholds
from kubelet.managers.allocation import Rejection
from kubelet.pod.pod import Pod
from kubelet.pod.states import PodState
from kubelet.runtime import usage
from kubelet.view import KubeletPod, WorkerKey, is_critical
from services.api.kinds.node import Taint
from services.api.metrics.usage import EMPTY_DIR, MEMORY_ANNOTATION, Curves, memory_used, value_at
from services.api.podresources import Amounts, container_requests, pod_requests, qos_class
from services.api.quantity import format_amount
from services.api.taints import NO_SCHEDULE, untolerated_taint

MONITOR_PERIOD_S = 10.0
CLEANUP_WAIT_S = 30.0
"""Seconds after an eviction within which no other pod is evicted, unless the evicted pod ends earlier."""
HARD_GRACE_S = 1.0
_MEMORY_TAINT = Taint(key="node.kubernetes.io/memory-pressure", effect=NO_SCHEDULE)


class ContainerUse(msgspec.Struct, frozen=True):
    """The use and the requests of one running container."""

    name: str
    used: Mapping[str, int]
    requested: Amounts


class PodUse(msgspec.Struct, frozen=True):
    """The use of one pod."""

    key: WorkerKey
    pod: KubeletPod
    containers: tuple[ContainerUse, ...]
    volumes: dict[str, int] = {}
    """Bytes in each emptyDir on the node's disk."""
    is_leaving: bool = False

    def total(self, resource: str) -> int:
        """Return the sum over the pod's containers, with the bytes in its volumes."""
        written = sum(self.volumes.values()) if resource == STORAGE else 0
        return written + sum(c.used.get(resource, 0) for c in self.containers)


class Victim(msgspec.Struct, frozen=True):
    """A pod to evict, its grace period, and the message.

    `is_disruption`: the node is short of a resource, rather than the pod over a limit.
    """

    key: WorkerKey
    grace_s: float
    message: str
    signal: str
    is_disruption: bool = True


class Look(msgspec.Struct, frozen=True):
    """The result of a look: the resource to reclaim ("": none) and the pods to evict.

    `is_of_images`: unused images free some of it.
    """

    reclaims: str = ""
    victim: Victim | None = None
    has_turned: bool = False
    is_of_images: bool = False
    over: tuple[Victim, ...] = ()
    """Pods that exceed a limit of their own: they are evicted, and no other pod in this round."""


class Pressure:
    """The pressure on one node's resources.

    Invariant: `conditions` are those of thresholds crossed within the transition period.
    """

    def __init__(self, chosen: Eviction, capacity: Mapping[str, int]) -> None:
        self._thresholds, self._capacity = thresholds(chosen, capacity), capacity
        self._transition_s, self._max_pod_grace_s = chosen.pressure_transition_period, chosen.max_pod_grace_period
        self._since_s: dict[int, float] = {}
        self._seen_s: dict[str, float] = {}
        self._leaving: frozenset[WorkerKey] = frozenset()
        self._leaving_until_s = 0.0
        self.conditions: tuple[str, ...] = ()

    def capacity_changed(self, chosen: Eviction, capacity: Mapping[str, int]) -> None:
        """Replace the thresholds and capacities."""
        self._thresholds, self._capacity = thresholds(chosen, capacity), capacity

    def look(self, now: float, node_use: Mapping[str, int], pods: Sequence[PodUse]) -> Look:
        """Compute the conditions and evictions from the use of the node itself and of the pods that have not ended."""
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
        if now < self._leaving_until_s and any(p.key in self._leaving for p in pods):
            return Look(has_turned=has_turned)
        self._leaving = frozenset()
        if over := _over_limits(pods):
            self._leaving, self._leaving_until_s = frozenset(v.key for v in over), now + CLEANUP_WAIT_S
            return Look(has_turned=has_turned, over=over)
        due = [t for i, t in crossed if t.grace_s is None or now - self._since_s[i] >= t.grace_s]
        if not due:
            return Look(has_turned=has_turned)
        threshold = due[0]
        victim = self._victim(threshold, left[threshold.signal.usage], pods)
        if victim is not None:
            self._leaving, self._leaving_until_s = frozenset((victim.key,)), now + CLEANUP_WAIT_S
        return Look(threshold.signal.resource, victim, has_turned, threshold.signal.usage == "imagefs")

    def are_too_many_images(self, total: int) -> bool:
        """Whether images of so many bytes in total cross a threshold of their disk by themselves."""
        left = self._capacity["imagefs"] - total
        return any(each.signal.usage == "imagefs" and left < each.least for each in self._thresholds)

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
        """Return why a pod is not admitted while the node is short, or None.

        Under memory pressure only BestEffort pods are refused.
        """
        if not self.conditions or is_critical(pod):
            return None
        if self.conditions == ("MemoryPressure",):
            tolerates = untolerated_taint((_MEMORY_TAINT,), pod.spec.tolerations, (NO_SCHEDULE,)) is None
            if tolerates or qos_class(pod) != "BestEffort":
                return None
        return Rejection("Evicted", f"The node had condition: [{' '.join(self.conditions)}]. ")


def _over_limits(pods: Sequence[PodUse]) -> tuple[Victim, ...]:
    """Return the pods that are over a limit of their local storage; critical ones are never evicted."""
    victims: list[Victim] = []
    for use in pods:
        written = {c.name: c.used.get(STORAGE, 0) for c in use.containers}
        if use.is_leaving or is_critical(use.pod) or (over := excess(use.pod, use.volumes, written)) is None:
            continue
        victims.append(Victim(use.key, HARD_GRACE_S, over[1], over[0], is_disruption=False))
    return tuple(victims)


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
    """Return one container's use and its requests."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        if container.name == name:
            return ContainerUse(name, used, container_requests(container))
    return ContainerUse(name, used, {})


class NodePressure:
    """Watches the resources left on one node; it does not look while no pod and no definition describes use.

    It looks every ten seconds while use is described or a condition holds, reports conditions, and names the
    pods to evict.
    """

    def __init__(self, own_use: Curves, capacity: Mapping[str, int], chosen: Eviction, out: Outbox) -> None:
        self._out = out
        self._own = own_use
        self._pressure = Pressure(chosen, capacity)
        self._began_s: float | None = None
        self._images = 0
        self.is_looking = False
        self.wants_images_gone = False
        """Whether the last look found too little disk for images: unused ones go first."""

    def capacity_changed(self, chosen: Eviction, capacity: Mapping[str, int]) -> None:
        """Replace the machine's capacities and the eviction settings."""
        self._pressure.capacity_changed(chosen, capacity)

    def begin(self, now: float) -> None:
        """Begin to count the node's own use, because the kubelet is up."""
        if self._began_s is None:
            self._began_s = now
            if self._own:
                self._look_later(now)

    def pod_updated(self, pod: KubeletPod, now: float) -> None:
        """Take a new or changed pod: look soon if it describes its use."""
        if not self.is_looking and pod.metadata.annotations and _describes_usage(pod):
            self._look_later(now)

    def images_changed(self, total: int, now: float) -> None:
        """Take the new total size of the node's images in bytes.

        Look soon if they alone are too much for their disk.
        """
        self._images = total
        if not self.is_looking and self._pressure.are_too_many_images(total):
            self._look_later(now)

    def _look_later(self, now: float) -> None:
        self.is_looking = True
        self._out.effects.append(SetTimer(now + MONITOR_PERIOD_S, "pressure", NODE_KEY))

    def look(self, workers: Mapping[WorkerKey, Pod], now: float) -> tuple[Victim, ...]:
        """Look now, and again later if anything may change; return the pods to evict."""
        here = [w for w in workers.values() if w.state != PodState.TERMINATED]
        own = self.own_use(now)
        own["imagefs"] = own.get("imagefs", 0) + self._images
        look = self._pressure.look(now, own, [_use(w, now) for w in here])
        self.wants_images_gone = look.is_of_images
        if look.has_turned:
            self._out.effects.append(ReportNode(pressures=self._pressure.conditions))
        if look.reclaims:
            message = f"Attempting to reclaim {look.reclaims}"
            self._out.effects.append(RecordNodeEvent("EvictionThresholdMet", message, "Warning"))
        if self._own or self._pressure.conditions or any(_describes_usage(w.pod) for w in here):
            self._look_later(now)
        else:
            self.is_looking = False
        return look.over if look.victim is None else (look.victim,)

    def own_use(self, now: float) -> dict[str, int]:
        """Return the node's own use, without pods and images."""
        age_s = now - (self._began_s if self._began_s is not None else now)
        return {name: value_at(points, age_s) for name, points in self._own.items()}

    def refuses(self, pod: KubeletPod) -> Rejection | None:
        """Return why the pod is not admitted now, or None."""
        return self._pressure.refuses(pod)


def _describes_usage(pod: KubeletPod) -> bool:
    return usage.describes_usage(pod) or any(name.startswith(MEMORY_ANNOTATION) for name in pod.metadata.annotations)


def _use(worker: Pod, now: float) -> PodUse:
    """Return what a pod uses; where its curves do not speak of memory, `keplab.dev/memory` does."""
    pod, uses = worker.pod, []
    for container in worker.containers:
        if container.is_running:
            used = usage.used_amounts(pod, container.name, now - container.started_s)
            memory = used.get("memory", memory_used(pod.metadata.annotations, container.name))
            uses.append(container_use(pod, container.name, {**used, "memory": memory}))
    return PodUse(worker.key, pod, tuple(uses), _written_bytes(worker, now), worker.termination is not None)


def _written_bytes(worker: Pod, now: float) -> dict[str, int]:
    """Return what is in each emptyDir on disk: what containers that run have written, and what others left there."""
    pod, sizes = worker.pod, dict[str, int]()
    on_disk = {v.name for v in pod.spec.volumes if v.empty_dir is not None and v.empty_dir.medium in ("", "Default")}
    if not on_disk:
        return sizes
    for container in worker.containers:
        if not container.has_run:
            continue
        age_s = (now if container.is_running else container.finished_s) - container.started_s
        for name, amount in usage.used_amounts(pod, container.name, age_s).items():
            if (volume := name.removeprefix(EMPTY_DIR)) in on_disk and volume != name:
                sizes[volume] = sizes.get(volume, 0) + amount
    return sizes
