"""The probes of a pod's containers: what they find is recorded, and what they condemn is stopped. Pure.

A container that a startup or liveness probe condemns is stopped, within the probe's own grace period if it has one;
what happens to it then is the restart policy's affair. Source: kubelet 3.3.
"""

from __future__ import annotations

from kubelet.pod.container import Container
from kubelet.pod.context import PodContext
from kubelet.pod.restarts import policy_of
from kubelet.runtime.latency import pod_seed
from services.api.kinds.pod import ContainerStatus


class Probes:
    """The probes of one pod; each container's are its own (`Container.probes`), and so is when they are due."""

    __slots__ = ("_pod",)

    def __init__(self, pod: PodContext) -> None:
        self._pod = pod

    def step(self, container: Container, t: float) -> bool:
        """Ask the probes that are due. Return whether the container has come up now, so that another may start."""
        if container.probes is None or not container.is_seen:
            return False
        has_started = False
        for seen in container.probes.step(t, self._pod.pod_ip):
            has_started = has_started or seen.has_started
            if seen.failure:
                self._pod.event("Unhealthy", seen.failure, "Warning")
            if seen.warning:
                self._pod.event("ProbeWarning", seen.warning, "Warning")
            if seen.kills and container.stop_at_s is None:
                self._condemn(container, seen.probe, t)
        return has_started

    def _condemn(self, container: Container, probe: str, t: float) -> None:
        assert container.probes is not None
        spec = self._pod.pod.spec
        container.unhealthy = probe
        comes_back = policy_of(container, spec.restart_policy) != "Never"
        self._pod.event(
            "Killing",
            f"Container {container.name} failed {probe} probe{', will be restarted' if comes_back else ''}",
        )
        own = container.probes.grace_s(probe)
        self._pod.stop_container(container, t, float(spec.termination_grace_period_seconds if own is None else own))

    def settle(self) -> None:
        """The pod is being stopped: startup and liveness are asked no more."""
        for container in self._pod.containers:
            if container.probes is not None:
                container.probes.settle()

    def resume(self, container: Container, status: ContainerStatus | None, now: float) -> None:
        """Go on with a run that an earlier kubelet probed: its last results stand until a probe says otherwise."""
        if container.probes is None:
            return
        uid = self._pod.key.uid
        container.probes.resume(
            container.started_s,
            now,
            was_started=status is not None and bool(status.started),
            was_ready=status is not None and status.ready,
            share=pod_seed(0, self._pod.node, f"{uid}/{container.name}") / 2**64,
        )
        container.turn(now)
