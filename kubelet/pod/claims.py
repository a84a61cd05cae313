"""The resource claims of a pod: prepared before its sandbox, unprepared after its last container. Pure.

Each try begins from a fresh reading of the claims. A failure never fails the pod: it is recorded, tried again as other
failures of a start are, and counted, as the node may unbind the pod for it.
Source: dra-core 7; kubelet 3.3; guarantees N2; kubelet-unbinding 6.1.
"""

from __future__ import annotations

from enum import IntEnum

from kubelet.effects import CallDrivers, PrepareClaims, UnprepareClaims
from kubelet.pod.context import PodContext
from kubelet.pod.faults import Faults
from kubelet.runtime.claim_record import HeldClaim
from kubelet.runtime.start_faults import PREPARE

FAILED = "FailedPrepareDynamicResources"


class ClaimState(IntEnum):
    """How far the claims of a pod have come."""

    NONE = 0
    """Nothing was ever asked for."""
    READING = 1
    """They are being read and judged."""
    SAVING = 2
    """Which they are must be durable before a driver is called: the next kubelet has to know."""
    CALLING = 3
    """Drivers are preparing them."""
    FAILED = 4
    """A try failed; another follows."""
    PREPARED = 5
    """Containers may use their devices."""
    RELEASING = 6
    """Drivers are unpreparing them."""
    RELEASED = 7
    """Nothing is held any more."""


class Claims:
    """The claims of one pod. Invariant: the pod ends only when `state` is NONE or RELEASED."""

    __slots__ = ("_faults", "_pod", "_seq", "due_s", "state")

    def __init__(self, pod: PodContext, faults: Faults) -> None:
        self._pod, self._faults = pod, faults
        self.state = ClaimState.NONE
        self.due_s: float | None = None
        """When they are tried again."""
        self._seq = 0

    @property
    def are_missing(self) -> bool:
        """Whether the pod uses claims that are not prepared."""
        return bool(self._pod.pod.spec.resource_claims) and self.state != ClaimState.PREPARED

    def recover(self, claims: tuple[HeldClaim, ...]) -> None:
        """An earlier kubelet prepared these."""
        self._pod.claims = claims
        if claims:
            self.state = ClaimState.PREPARED

    def step(self, t: float) -> None:
        """Begin a try."""
        self.state, self.due_s = ClaimState.READING, None
        self._pod.effects.append(PrepareClaims(self._pod.key))

    def listed(self, claims: tuple[HeldClaim, ...]) -> None:
        """These are the claims."""
        if self.state != ClaimState.READING:
            return
        self._pod.claims = claims
        self.state = ClaimState.SAVING
        self._pod.save()
        self._seq = self._pod.saved_seq

    def saved(self, now: float) -> None:
        """A record is durable: the drivers may be called, if that is the one."""
        if self.state == ClaimState.SAVING and self._seq <= self._pod.durable_seq:
            self.state = ClaimState.CALLING
            is_broken = self._faults.fails_until(PREPARE, now) is not None
            self._pod.effects.append(CallDrivers(self._pod.key, is_broken))

    def prepared(self) -> None:
        """Their devices are ready."""
        self.state = ClaimState.PREPARED
        self._pod.reach("claims")

    def failed(self, message: str, now: float) -> None:
        """Their devices are not ready: try again later."""
        self.state = ClaimState.FAILED
        text = f"Failed to prepare dynamic resources: prepare dynamic resources: {message}"
        self._pod.event(FAILED, text, "Warning")
        self.due_s = self._faults.retry_at_s(now)
        self._faults.count(FAILED, text, now)

    def release(self) -> bool:
        """Have the claims unprepared, once; return whether the end of the pod has to wait for that."""
        if self.state in (ClaimState.NONE, ClaimState.RELEASED):
            return False
        if self.state != ClaimState.RELEASING:
            self.state = ClaimState.RELEASING
            self._pod.effects.append(UnprepareClaims(self._pod.key))
        return True

    def released(self) -> None:
        """Nothing is held any more."""
        self._pod.claims, self.state = (), ClaimState.RELEASED
