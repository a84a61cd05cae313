"""The start faults that a pod meets, and how often its start has failed. Pure.

Each stage of a start may fail by a fault of the pod or of its node (`start_faults`). A failure is recorded, and the pod
is synced again 10 s later, up to half as much more by chance. Failures for which a node may unbind a pod are counted;
whether it does is the node's affair. Source: kubelet 3.3, 8; kubelet-unbinding 6.1.
"""

from __future__ import annotations

from kubelet.effects import StartFailed
from kubelet.pod.container import Container
from kubelet.pod.context import PodContext
from kubelet.runtime.start_faults import CONFIG, CREATE, POD_STAGES, START, StartFaults

RETRY_S, TRANSIENT_RETRY_S, RETRY_JITTER = 10.0, 1.0, 0.5
_REASONS = {CONFIG: "CreateContainerConfigError", CREATE: "CreateContainerError", START: "RunContainerError"}
_THRESHOLDS = {
    "FailedPrepareDynamicResources": (5, 120.0),
    "FailedCreatePodSandBox": (10, 300.0),
    "FailedMount": (2, 0.0),
    "RunContainerError": (5, 0.0),
}
"""How many failures, over how many seconds at least, make a pod one that may be unbound (kubelet-unbinding 6.1)."""
NO_FAULTS = StartFaults()


class Faults:
    """What goes wrong with one pod's start. `node`: what goes wrong with every start on its node."""

    __slots__ = ("_counts", "_own", "_pod", "_tries", "node")

    def __init__(self, pod: PodContext, node: StartFaults) -> None:
        self._pod = pod
        self.node = node
        own = [f for c in pod.containers for f in c.script.start_faults if f.stage in POD_STAGES]
        self._own = StartFaults(own) if own else NO_FAULTS
        self._tries = 0
        self._counts: dict[str, tuple[int, float]] = {}

    def fails_until(self, stage: str, t: float, own: StartFaults | None = None) -> float | None:
        """Return until when this try of a stage would fail, None when it succeeds. `own`: a container's."""
        own = self._own if own is None else own
        if not own and not self.node:
            return None
        self._tries += 1
        latency = self._pod.latency
        found = own.strikes(stage, t, latency.share(stage, self._tries))
        if found is None:
            found = self.node.strikes(stage, t, latency.share(f"node {stage}", self._tries))
        return found

    def retry_at_s(self, t: float, after_s: float = RETRY_S) -> float:
        """Return when the pod is synced again."""
        self._tries += 1
        return t + after_s * (1.0 + RETRY_JITTER * self._pod.latency.share("retry", self._tries))

    def count(self, reason: str, message: str, t: float) -> None:
        """Count a failure; say so when there were enough of them."""
        count, first_s = self._counts.get(reason, (0, t))
        self._counts[reason] = count + 1, first_s
        least, over_s = _THRESHOLDS[reason]
        if count + 1 >= least and t - first_s >= over_s:
            self._pod.effects.append(StartFailed(self._pod.key, reason, message))

    def stops_container(self, container: Container, t: float) -> bool:
        """Return whether a container that is due is not created this time, but when the pod is synced again."""
        if container.faults is None and not self.node:
            return False
        for stage, reason in _REASONS.items():
            if self.fails_until(stage, t, container.faults or NO_FAULTS) is None:
                continue
            if stage == START:
                self._pod.event("Created", f"Created container: {container.name}")
            text = _message(stage, container.name)
            self._pod.event("Failed", f"Error: {text}", "Warning")
            container.wait_for_sync(self.retry_at_s(t), reason, text)
            self.count("RunContainerError", text, t)
            return True
        return False


def _message(stage: str, name: str) -> str:
    match stage:
        case "config":
            return f'configuration of container "{name}" not found'
        case "create":
            return f'failed to create container "{name}": rpc error: code = Unknown desc = emulated'
        case _:
            return f'failed to start container "{name}": OCI runtime create failed: emulated: unknown'
