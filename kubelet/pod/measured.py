"""A pod whose containers are ended by the kernel when they use more memory than they may: its part of the worker. Pure.

What a container uses is told by its curves (`usage`), what it may use is the limit that the runtime was last told, so a
resize moves the moment. Source: kubelet 7, 8.
"""

from __future__ import annotations

from kubelet.pod.pulled import PullingPod
from kubelet.runtime import usage
from kubelet.runtime.fake_cri import Container
from kubelet.runtime.resources import PodResources
from services.api.quantity import amount


class MeasuredPod(PullingPod):
    """The memory of one pod's machine. Invariant: `_measured_for` is the size that `oom_at_s` was found for."""

    __slots__ = ("_measured_for",)

    _measured_for: PodResources | None

    def _measure(self, now: float) -> None:
        """Find when each container that runs will use too much, if its size is another than last time."""
        if self._measured_for is not self.actual:
            self._measured_for = self.actual
            if usage.is_told(self.pod):
                for container in self.containers:
                    if container.is_running:
                        self._measure_one(container, now)

    def _measure_one(self, container: Container, since_s: float) -> None:
        """Find when this container will use too much, not before `since_s`."""
        if not usage.is_told(self.pod):
            return
        limit = self.actual.limits_of(container.name).get("memory")
        age_s: float | None = None
        if limit is not None:
            points = usage.curves(self.pod, container.name).get("memory", ())
            age_s = usage.next_above_s(points, amount("memory", limit), since_s - container.started_s)
        container.oom_at_s = None if age_s is None else container.started_s + age_s
        container.turn(since_s)
