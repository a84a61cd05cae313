"""A pod on its way to running: volumes, sandbox, and containers that cannot be created. Its part of the worker.

Each stage takes its time (`latency`) and may fail (`start_faults`, of the pod or of its node). A failure is told, and
the pod is synced again 10 s later, up to half as much more by chance. Volumes are waited for 2 min 3 s a try. What a
node may give a pod back for is counted; whether it does is the kubelet's affair, and all is torn down before.
A pure machine. Source: kubelet 1, 3.2, 3.3, 8; kubelet-unbinding 6.1. Events and reasons are
upstream's.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubelet.pod.actions import Refused, StartFailed
from kubelet.pod.measured import MeasuredPod
from kubelet.runtime.fake_cri import Container
from kubelet.runtime.start_faults import (
    ATTACH,
    CONFIG,
    CREATE,
    MOUNT,
    NETWORK,
    NETWORK_DOWN,
    POD_STAGES,
    SANDBOX,
    START,
    StartFaults,
)
from kubelet.runtime.volumes import MESSAGE, REASON, NodeVolumes, claims_of
from services.api.meta import Key

VOLUME_WAIT_S = 123.0
"""How long one try waits for all volumes."""
RETRY_S, TRANSIENT_RETRY_S, RETRY_JITTER = 10.0, 1.0, 0.5
_TELLS = {CONFIG: "CreateContainerConfigError", CREATE: "CreateContainerError", START: "RunContainerError"}
_THRESHOLDS = {
    "FailedPrepareDynamicResources": (5, 120.0), "FailedCreatePodSandBox": (10, 300.0), "FailedMount": (2, 0.0),
    "RunContainerError": (5, 0.0),
}  # fmt: skip
"""How many failures, over how many seconds at least, make a pod one that may be given back (kubelet-unbinding 6.1)."""
NO_FAULTS = StartFaults()


class StartingPod(MeasuredPod):
    """The start of one pod's machine.

    `_stage` ends at `_stage_due`: worker, mount, unmounted (a try that waits for volumes in vain), sandbox; then
    containers, which is for good.
    """

    __slots__ = ("_attached", "_failures", "_faults", "_node_faults", "_stage", "_stage_due", "_tries")

    _attached: NodeVolumes

    _stage: str
    _stage_due: float | None

    def _begin_start(self, now: float, node_faults: StartFaults) -> None:
        self._stage, self._stage_due = "worker", now + self._latency.of("worker")
        self._node_faults = node_faults
        told = [f for c in self.containers for f in c.script.start_faults if f.stage in POD_STAGES]
        self._faults = StartFaults(told) if told else NO_FAULTS
        self._tries = 0
        self._failures: dict[str, tuple[int, float]] = {}

    def _stage_step(self, t: float) -> bool:
        """Do what is due; return whether the containers' turn has come."""
        match self._stage:
            case "worker":
                self._reached("worker")
                self._mount(t)
            case "unmounted":
                self._unmounted(t)
            case "mount":
                self._reached("mount")
                self._stage, self._stage_due = "sandbox", t + self._latency.of("sandbox")
            case _:
                if self._broken_until(SANDBOX, t) is not None:
                    self._without_sandbox(t)
                    return False
                self._reached("sandbox")
                self._stage, self._stage_due = "containers", None
                self.has_ip = True
                return True
        return False

    def _broken_until(self, stage: str, t: float, faults: StartFaults | None = None) -> float | None:
        """Return until when this try of a stage would fail, None when it succeeds."""
        own = self._faults if faults is None else faults
        if not own and not self._node_faults:
            return None
        self._tries += 1
        found = own.strikes(stage, t, self._latency.share(stage, self._tries))
        if found is None:
            found = self._node_faults.strikes(stage, t, self._latency.share(f"node {stage}", self._tries))
        return found

    def _retry_at(self, t: float, after_s: float = RETRY_S) -> float:
        self._tries += 1
        return t + after_s * (1.0 + RETRY_JITTER * self._latency.share("retry", self._tries))

    # --- volumes ---

    def _mount(self, t: float) -> None:
        if not self.pod.spec.host_network and self._broken_until(NETWORK, t) is not None:
            self._tell("NetworkNotReady", f"network is not ready: {NETWORK_DOWN}", "Warning")
            self._stage, self._stage_due = "worker", self._retry_at(t, TRANSIENT_RETRY_S)
            return
        claims = claims_of(self.pod)
        if claims and self._attached.refuses(claims):
            self._stage, self._stage_due = "unmounted", None
            self._out.append(Refused(REASON, MESSAGE))
            return
        takes_s = self._mounting_s(claims)
        stage = ATTACH
        until = self._broken_until(ATTACH, t)
        if until is None:
            stage, until = MOUNT, self._broken_until(MOUNT, t)
        if until is None:
            self._stage, self._stage_due = "mount", t + takes_s
            return
        volume = self._volumes()[0]
        if stage == ATTACH:
            text = f'AttachVolume.Attach failed for volume "{volume}" : rpc error: code = Internal desc = emulated'
            self._tell("FailedAttachVolume", text, "Warning")
        else:
            text = f'MountVolume.SetUp failed for volume "{volume}" : mount failed: exit status 32'
            self._tell("FailedMount", text, "Warning")
        if until + takes_s < t + VOLUME_WAIT_S:
            # Mounting is tried over and over within the wait; it succeeds as soon as it can.
            self._stage, self._stage_due = "mount", until + takes_s
        else:
            self._stage, self._stage_due = "unmounted", t + VOLUME_WAIT_S

    def _mounting_s(self, claims: Sequence[Key]) -> float:
        """Return how long it takes until all volumes are there, unless something goes wrong."""
        if not claims:
            return self._latency.of("mount")
        is_new = self._attached.take(self.key, claims)
        return self._latency.of("mount-claim") + (self._latency.of("attach") if is_new else 0.0)

    def _unmounted(self, t: float) -> None:
        text = (
            f"Unable to attach or mount volumes: unmounted volumes=[{' '.join(self._volumes())}], "
            "unattached volumes=[], failed to process volumes=[]: context deadline exceeded"
        )
        self._tell("FailedMount", text, "Warning")
        self._stage, self._stage_due = "worker", self._retry_at(t)
        self._failed("FailedMount", text, t)

    def _volumes(self) -> list[str]:
        return [volume.name for volume in self.pod.spec.volumes] or ["kube-api-access"]

    def _take_faults(self, faults: StartFaults, now: float) -> None:
        """What is wrong with the node is another: who waits for volumes looks again."""
        self._node_faults = faults
        if self._stage == "unmounted" and self.termination is None:
            self._mount(now)

    # --- sandbox ---

    def _without_sandbox(self, t: float) -> None:
        text = (
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "
            f'"{self.key.uid}": emulated'
        )
        self._tell("FailedCreatePodSandBox", text, "Warning")
        self._stage, self._stage_due = "mount", self._retry_at(t)
        self._failed("FailedCreatePodSandBox", text, t)

    # --- containers ---

    def _cannot_start(self, container: Container, t: float) -> bool:
        """Return whether the container is not started this time, but when the pod is synced again."""
        if container.faults is None and not self._node_faults:
            return False
        for stage, reason in _TELLS.items():
            if self._broken_until(stage, t, container.faults or NO_FAULTS) is None:
                continue
            if stage == START:
                self._tell("Created", f"Created container: {container.name}")
            text = _words(stage, container.name)
            self._tell("Failed", f"Error: {text}", "Warning")
            container.waiting_reason, container.waiting_message = reason, text
            container.state, container.due_s = "stuck", self._retry_at(t)
            self._failed("RunContainerError", text, t)
            return True
        return False

    # --- what is counted ---

    def _failed(self, reason: str, message: str, t: float) -> None:
        count, first_s = self._failures.get(reason, (0, t))
        self._failures[reason] = count + 1, first_s
        least, over_s = _THRESHOLDS[reason]
        if count + 1 >= least and t - first_s >= over_s:
            self._out.append(StartFailed(reason, message))

    @property
    def may_be_returned(self) -> bool:
        """Whether nothing of the pod ever ran here, or is about to."""
        return self.termination is None and not any(c.has_run or c.state == "recording" for c in self.containers)


def _words(stage: str, name: str) -> str:
    match stage:
        case "config":
            return f'configuration of container "{name}" not found'
        case "create":
            return f'failed to create container "{name}": rpc error: code = Unknown desc = emulated'
        case _:
            return f'failed to start container "{name}": OCI runtime create failed: emulated: unknown'
