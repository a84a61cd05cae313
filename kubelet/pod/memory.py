"""The memory of a pod's containers: the kernel ends the one that uses more than it may. Pure.

What a container uses is said by its curves (`usage`), what it may use is the limit that the runtime last applied, so a
resize moves the moment. Source: kubelet 7, 8.
"""

from __future__ import annotations

from kubelet.pod.container import Container
from kubelet.pod.context import PodContext
from kubelet.runtime import usage
from kubelet.runtime.resources import PodResources
from services.api.quantity import amount


class Memory:
    """The memory of one pod; when a container will use too much is its `oom_at_s`.

    Invariant: `_measured_for` is the size that `oom_at_s` was found for.
    """

    __slots__ = ("_measured_for", "_pod")

    def __init__(self, pod: PodContext) -> None:
        self._pod = pod
        self._measured_for: PodResources | None = None

    def forget(self) -> None:
        """The curves may be others now."""
        self._measured_for = None

    def step(self, now: float) -> None:
        """Find when each container that runs will use too much, if its size is another than last time."""
        if self._measured_for is self._pod.actual:
            return
        self._measured_for = self._pod.actual
        if usage.describes_usage(self._pod.pod):
            for container in self._pod.containers:
                if container.is_running:
                    self.measure(container, now)

    def measure(self, container: Container, since_s: float) -> None:
        """Find when this container will use too much, not before `since_s`."""
        pod = self._pod.pod
        if not usage.describes_usage(pod):
            return
        limit = self._pod.actual.limits_of(container.name).get("memory")
        age_s: float | None = None
        if limit is not None:
            points = usage.curves(pod, container.name).get("memory", ())
            age_s = usage.next_above_s(points, amount("memory", limit), since_s - container.started_s)
        container.oom_at_s = None if age_s is None else container.started_s + age_s
        container.turn(since_s)
