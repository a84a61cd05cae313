"""What a node has left: it is not looked at as long as no pod and no definition says what is used. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kubelet.effects import Outbox, RecordNodeEvent, ReportNode, SetTimer
from kubelet.eviction.manager import MONITOR_PERIOD_S, PodUse, Pressure, Victim, container_use
from kubelet.eviction.signals import Eviction, thresholds
from kubelet.managers.allocation import Rejection
from kubelet.pod.actuation import MEMORY_ANNOTATION, memory_used
from kubelet.pod.pod import Pod
from kubelet.pod.states import PodState
from kubelet.runtime import usage
from kubelet.view import KubeletPod, WorkerKey

_NODE_KEY = WorkerKey("", 0)


class NodePressure:
    """Looks every ten seconds while there is something to see, reports what it saw, and names whom to evict."""

    def __init__(self, own_use: usage.Curves, capacity: Mapping[str, int], chosen: Eviction, out: Outbox) -> None:
        self._out = out
        self._own = own_use
        self._pressure = Pressure(
            thresholds(chosen.hard_thresholds, chosen.soft, chosen.soft_grace_period, capacity),
            capacity,
            transition_s=chosen.pressure_transition_period,
            max_pod_grace_s=chosen.max_pod_grace_period,
        )
        self._began_s: float | None = None
        self._images = 0
        self.is_looking = False
        self.wants_images_gone = False
        """Whether the last look found too little disk for images: unused ones go first."""

    def begin(self, now: float) -> None:
        """The kubelet is up: the node's own use is counted from now."""
        if self._began_s is None:
            self._began_s = now
            if self._own:
                self._look_later(now)

    def pod_updated(self, pod: KubeletPod, now: float) -> None:
        """A pod is here, or has changed."""
        if not self.is_looking and pod.metadata.annotations and _describes_usage(pod):
            self._look_later(now)

    def images_changed(self, total: int, now: float) -> None:
        """The images on the node come to so many bytes now: look, if they alone are too much for their disk."""
        self._images = total
        if not self.is_looking and self._pressure.is_too_much("imagefs", total):
            self._look_later(now)

    def _look_later(self, now: float) -> None:
        self.is_looking = True
        self._out.effects.append(SetTimer(now + MONITOR_PERIOD_S, "pressure", _NODE_KEY))

    def look(self, workers: Mapping[WorkerKey, Pod], now: float) -> Victim | None:
        """Look now, and again later if anything may change; return who must leave."""
        here = [w for w in workers.values() if w.state != PodState.TERMINATED]
        own = self.own_use(now)
        own["imagefs"] = own.get("imagefs", 0) + self._images
        look = self._pressure.look(now, own, [_use(w, now) for w in here])
        self.wants_images_gone = look.is_of_images
        if look.has_turned:
            self._out.effects.append(ReportNode(pressures=self._pressure.conditions))
        if look.reclaims:
            self._out.effects.append(
                RecordNodeEvent("EvictionThresholdMet", f"Attempting to reclaim {look.reclaims}", "Warning")
            )
        if self._own or self._pressure.conditions or any(_describes_usage(w.pod) for w in here):
            self._look_later(now)
        else:
            self.is_looking = False
        return look.victim

    def own_use(self, now: float) -> dict[str, int]:
        """Return what the node itself uses, pods and images apart."""
        age_s = now - (self._began_s if self._began_s is not None else now)
        return {name: usage.value_at(points, age_s) for name, points in self._own.items()}

    def refuses(self, pod: KubeletPod) -> Rejection | None:
        """Return why the pod may not come in now."""
        return self._pressure.refuses(pod)


def _describes_usage(pod: KubeletPod) -> bool:
    return usage.describes_usage(pod) or any(name.startswith(MEMORY_ANNOTATION) for name in pod.metadata.annotations)


def _use(worker: Pod, now: float) -> PodUse:
    """Return what a pod uses; where its curves do not speak of memory, `keplab.dev/memory` does."""
    pod, found = worker.pod, []
    for container in worker.containers:
        if container.is_running:
            used = usage.used(pod, container.name, now - container.started_s)
            memory = used.get("memory", memory_used(pod, container.name))
            found.append(container_use(pod, container.name, {**used, "memory": memory}))
    return PodUse(worker.key, pod, tuple(found))
