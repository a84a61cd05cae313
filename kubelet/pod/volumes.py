"""The volumes of a pod: attached and mounted before its sandbox is made. Pure.

One try waits for all volumes for 2 min 3 s. Claims that another pod of the node uses are attached already; more than
the node can attach is a reason to reject the pod. Events and reasons are upstream's.
Source: kubelet 3.3, 5.2, 8.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubelet.effects import PodRejected
from kubelet.pod.context import PodContext
from kubelet.pod.faults import Faults
from kubelet.runtime.start_faults import ATTACH, MOUNT
from kubelet.runtime.volumes import MESSAGE, REASON, NodeVolumes, claims_of
from services.api.meta import Key

VOLUME_WAIT_S = 123.0
"""How long one try waits for all volumes."""


class Volumes:
    """The volumes of one pod. `due_s`: when the present try ends; `are_mounted`: whether it succeeds then."""

    __slots__ = ("_faults", "_node", "_pod", "are_mounted", "due_s")

    def __init__(self, pod: PodContext, node: NodeVolumes, faults: Faults) -> None:
        self._pod, self._node, self._faults = pod, node, faults
        self.due_s: float | None = None
        self.are_mounted = False

    def recover(self) -> None:
        """An earlier kubelet mounted them."""
        self._node.take(self._pod.key, claims_of(self._pod.pod))

    def mount(self, t: float) -> None:
        """Begin a try."""
        self.due_s, self.are_mounted = None, False
        claims = claims_of(self._pod.pod)
        if claims and self._node.refuses(claims):
            self._pod.effects.append(PodRejected(self._pod.key, REASON, MESSAGE))
            return
        takes_s = self._takes_s(claims)
        stage = ATTACH
        until = self._faults.fails_until(ATTACH, t)
        if until is None:
            stage, until = MOUNT, self._faults.fails_until(MOUNT, t)
        if until is None:
            self.due_s, self.are_mounted = t + takes_s, True
            return
        volume = self._names()[0]
        if stage == ATTACH:
            text = f'AttachVolume.Attach failed for volume "{volume}" : rpc error: code = Internal desc = emulated'
            self._pod.event("FailedAttachVolume", text, "Warning")
        else:
            text = f'MountVolume.SetUp failed for volume "{volume}" : mount failed: exit status 32'
            self._pod.event("FailedMount", text, "Warning")
        # Mounting is tried over and over within the wait; it succeeds as soon as it can.
        self.are_mounted = until + takes_s < t + VOLUME_WAIT_S
        self.due_s = until + takes_s if self.are_mounted else t + VOLUME_WAIT_S

    def _takes_s(self, claims: Sequence[Key]) -> float:
        """Return how long it takes until all volumes are there, unless something goes wrong."""
        latency = self._pod.latency
        if not claims:
            return latency.of("mount")
        is_new = self._node.take(self._pod.key, claims)
        return latency.of("mount-claim") + (latency.of("attach") if is_new else 0.0)

    def time_out(self, t: float) -> None:
        """The try is over, in vain."""
        text = (
            f"Unable to attach or mount volumes: unmounted volumes=[{' '.join(self._names())}], "
            "unattached volumes=[], failed to process volumes=[]: context deadline exceeded"
        )
        self._pod.event("FailedMount", text, "Warning")
        self.due_s = self._faults.retry_at_s(t)
        self._faults.count("FailedMount", text, t)

    def _names(self) -> list[str]:
        return [volume.name for volume in self._pod.pod.spec.volumes] or ["kube-api-access"]
