"""A pod that uses devices: its part of the worker. Pure.

The devices are prepared after the volumes and before the sandbox, each try from a fresh reading of the claims, and
given back after the last container. A failure never fails the pod: it is told, tried again as other failures of a
start are, and counted, as the node may give the pod back for it.
Source: dra-core 7; kubelet 3.3; guarantees N2; kubelet-unbinding 6.1.
"""

from __future__ import annotations

from kubelet.pod.actions import CallDrivers, Prepare, Unprepare
from kubelet.pod.starting import StartingPod
from kubelet.runtime.claim_record import HeldClaim
from kubelet.runtime.start_faults import PREPARE, StartFaults

FAILED = "FailedPrepareDynamicResources"


class ClaimingPod(StartingPod):
    """The devices of one pod's machine; its stage `claims` comes after `mount`.

    `_claiming` goes from "" (nothing was asked for) by "reading", "saving" and "calling" to "held", from a failure back
    to "tried", and by "letting" to "free". Invariant: the pod ends only when it is "" or "free".
    """

    __slots__ = ("_claiming", "_claims_seq", "claims")

    def _begin_start(self, now: float, node_faults: StartFaults) -> None:
        self.claims: tuple[HeldClaim, ...] = ()
        self._claiming = ""
        self._claims_seq = 0
        super()._begin_start(now, node_faults)

    def _stage_step(self, t: float) -> bool:
        if self._stage == "claims" or (
            self._stage == "mount" and self.pod.spec.resource_claims and self._claiming != "held"
        ):
            self._reached("mount")
            self._stage, self._stage_due = "claims", None
            self._claiming = "reading"
            self._out.append(Prepare())
            return False
        return super()._stage_step(t)

    def _list_claims(self, claims: tuple[HeldClaim, ...]) -> None:
        """Remember the claims: what may be prepared from now on must be known to the next kubelet."""
        if self._claiming != "reading":
            return
        self.claims = claims
        self._claiming = "saving"
        self._persist()
        self._claims_seq = self._seq

    def _claims_saved(self, now: float) -> None:
        if self._claiming == "saving" and self._claims_seq <= self._durable:
            self._claiming = "calling"
            self._out.append(CallDrivers(self._broken_until(PREPARE, now) is not None))

    def _claims_ready(self, now: float) -> None:
        if self._stage == "claims" and self.termination is None:
            self._claiming = "held"
            self._reached("claims")
            self._stage, self._stage_due = "mount", now

    def _claims_failed(self, message: str, now: float) -> None:
        if self._stage != "claims" or self.termination is not None:
            return
        self._claiming = "tried"
        text = f"Failed to prepare dynamic resources: prepare dynamic resources: {message}"
        self._tell(FAILED, text, "Warning")
        self._stage_due = self._retry_at(now)
        self._failed(FAILED, text, now)

    def _let_claims_go(self) -> bool:
        """Have the devices given back, once; return whether the end of the pod has to wait for that."""
        if self._claiming in ("", "free"):
            return False
        if self._claiming != "letting":
            self._claiming = "letting"
            self._out.append(Unprepare())
        return True
