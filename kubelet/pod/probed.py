"""A pod whose containers are asked how they are: its part of the worker. A pure machine.

What a probe finds is told; a container that a startup or liveness probe condemns is stopped, within the probe's own
grace period if it has one, and what happens to it then is the restart policy's affair. Source: kubelet 3.3.
"""

from __future__ import annotations

from kubelet.pod.resized import ResizablePod
from kubelet.pod.restarts import policy_of
from kubelet.runtime.fake_cri import Container
from kubelet.runtime.latency import pod_seed
from services.api.kinds.pod import ContainerStatus


class ProbedPod(ResizablePod):
    """The probes of one pod's machine."""

    __slots__ = ()

    def _probed(self, container: Container, t: float) -> bool:
        """Ask what is due, tell failures, stop what is condemned. Return whether the container has come up now."""
        assert container.probes is not None
        has_started = False
        for seen in container.probes.step(t, self.pod_ip):
            has_started = has_started or seen.has_started
            if seen.failure:
                self._tell("Unhealthy", seen.failure, "Warning")
            if seen.warning:
                self._tell("ProbeWarning", seen.warning, "Warning")
            if seen.kills and container.stop_at_s is None:
                self._condemn(container, seen.probe, t)
        return has_started

    def _condemn(self, container: Container, probe: str, t: float) -> None:
        assert container.probes is not None
        container.unhealthy = probe
        comes_back = policy_of(container, self.pod.spec.restart_policy) != "Never"
        self._tell(
            "Killing",
            f"Container {container.name} failed {probe} probe{', will be restarted' if comes_back else ''}",
        )
        own = container.probes.grace_s(probe)
        grace_s = float(self.pod.spec.termination_grace_period_seconds if own is None else own)
        container.stop(t, t + grace_s, grace_s, self._draw("stop", container))

    def _settle_probes(self) -> None:
        """The pod is being stopped: startup and liveness are nobody's concern any more."""
        for container in self.containers:
            if container.probes is not None:
                container.probes.settle()

    def _resume_probes(self, container: Container, status: ContainerStatus | None, node: str, now: float) -> None:
        """A kubelet before this one had asked: what it last reported stands until a probe says otherwise."""
        assert container.probes is not None
        container.probes.resume(
            container.started_s, now,
            was_started=status is not None and bool(status.started),
            was_ready=status is not None and status.ready,
            share=pod_seed(0, node, f"{self.key.uid}/{container.name}") / 2**64,
        )  # fmt: skip
        container.turn(now)
