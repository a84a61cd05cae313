"""The start of a pod until its containers may run: volumes, claims, sandbox, each in its time and each may fail. Pure.

Events and reasons are upstream's. Source: kubelet 1, 3.2, 3.3, 8.
"""

from __future__ import annotations

from enum import IntEnum

from kubelet.pod.claims import Claims
from kubelet.pod.context import PodContext
from kubelet.pod.faults import TRANSIENT_RETRY_S, Faults
from kubelet.pod.volumes import Volumes
from kubelet.runtime.start_faults import NETWORK, NETWORK_DOWN, SANDBOX, StartFaults


class Stage(IntEnum):
    """What the start of a pod waits for."""

    WORKER = 0
    """The pod worker, or the next sync after a failure."""
    UNMOUNTED = 1
    """Volumes, by a try that fails; without `due_s` the pod is being rejected for them."""
    MOUNT = 2
    """Volumes, by a try that succeeds."""
    CLAIMS = 3
    """The pod's claims, or their next try."""
    SANDBOX = 4
    """The sandbox and its network."""
    CONTAINERS = 5
    """Nothing more, for good: containers may start."""


class Startup:
    """The start of one pod: `stage` ends at `due_s`; None: nothing happens by itself."""

    __slots__ = ("_faults", "_pod", "claims", "due_s", "stage", "volumes")

    def __init__(self, pod: PodContext, volumes: Volumes, claims: Claims, faults: Faults, now: float) -> None:
        self._pod, self._faults = pod, faults
        self.volumes, self.claims = volumes, claims
        self.stage = Stage.WORKER
        self.due_s: float | None = now + pod.latency.of("worker")

    @property
    def is_done(self) -> bool:
        """Whether containers may start."""
        return self.stage == Stage.CONTAINERS

    def step(self, t: float) -> bool:
        """Do what is due; return whether the containers' turn has come."""
        match self.stage:
            case Stage.WORKER:
                self._pod.reach("worker")
                self._mount(t)
            case Stage.UNMOUNTED:
                self.volumes.time_out(t)
                self.stage, self.due_s = Stage.WORKER, self.volumes.due_s
            case Stage.MOUNT | Stage.CLAIMS if self.claims.are_missing:
                self._pod.reach("mount")
                self.stage, self.due_s = Stage.CLAIMS, None
                self.claims.step(t)
            case Stage.MOUNT:
                self._pod.reach("mount")
                self.stage, self.due_s = Stage.SANDBOX, t + self._pod.latency.of("sandbox")
            case _:
                return self._make_sandbox(t)
        return False

    def _mount(self, t: float) -> None:
        if not self._pod.pod.spec.host_network and self._faults.fails_until(NETWORK, t) is not None:
            self._pod.event("NetworkNotReady", f"network is not ready: {NETWORK_DOWN}", "Warning")
            self.stage, self.due_s = Stage.WORKER, self._faults.retry_at_s(t, TRANSIENT_RETRY_S)
            return
        self.volumes.mount(t)
        self.stage = Stage.MOUNT if self.volumes.are_mounted else Stage.UNMOUNTED
        self.due_s = self.volumes.due_s

    def _make_sandbox(self, t: float) -> bool:
        if self._faults.fails_until(SANDBOX, t) is None:
            self._pod.reach("sandbox")
            self.finish()
            return True
        text = (
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "
            f'"{self._pod.key.uid}": emulated'
        )
        self._pod.event("FailedCreatePodSandBox", text, "Warning")
        self.stage, self.due_s = Stage.MOUNT, self._faults.retry_at_s(t)
        self._faults.count("FailedCreatePodSandBox", text, t)
        return False

    def finish(self) -> None:
        """The sandbox is there."""
        self.stage, self.due_s = Stage.CONTAINERS, None
        self._pod.has_ip = True

    def make_sandbox_again(self, now: float) -> None:
        """The sandbox ended with the machine: make another."""
        self._pod.event("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
        self._pod.has_ip = False
        self.stage, self.due_s = Stage.SANDBOX, now + self._pod.latency.of("sandbox")

    def restart_worker(self, now: float) -> None:
        """The pod was held back until now."""
        self.due_s = now + self._pod.latency.of("worker")

    def claims_prepared(self, now: float) -> None:
        """The devices of the pod's claims are ready."""
        if self.stage == Stage.CLAIMS and self._pod.termination is None:
            self.claims.prepared()
            self.stage, self.due_s = Stage.MOUNT, now

    def claims_failed(self, message: str, now: float) -> None:
        """The devices of the pod's claims are not ready."""
        if self.stage == Stage.CLAIMS and self._pod.termination is None:
            self.claims.failed(message, now)
            self.due_s = self.claims.due_s

    def faults_changed(self, faults: StartFaults, now: float) -> None:
        """Other things go wrong on the node now: a pod that waits for volumes looks again."""
        self._faults.node = faults
        if self.stage == Stage.UNMOUNTED and self._pod.termination is None:
            self._mount(now)
