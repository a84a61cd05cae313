"""How the desk of claims speaks to its kubelet: every answer goes to the pod's worker. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kubelet.runtime.claim_record import HeldClaim
from kubelet.view import KubeletPod, WorkerKey


class House(Protocol):
    """What the answers need of the kubelet."""

    pods: dict[str, KubeletPod]
    workers: Any

    def tell_worker(self, key: WorkerKey, what: Callable[[Any], list[Any]], now: float) -> None:
        """Have the pod's worker hear something, if there still is one."""

    def unprepared(self, key: WorkerKey, now: float) -> None:
        """No devices are held for the pod any more."""


class ClaimFloor:
    """The floor on which the desk of claims stands."""

    def __init__(self, house: House) -> None:
        self._house = house

    def claims_listed(self, key: WorkerKey, claims: tuple[HeldClaim, ...], now: float) -> None:
        """These are the pod's claims: make that durable, then call the drivers."""
        self._house.tell_worker(key, lambda worker: worker.claims_listed(claims, now), now)

    def prepared(self, key: WorkerKey, now: float) -> None:
        """All devices of the pod are ready."""
        self._house.tell_worker(key, lambda worker: worker.prepared(now), now)

    def not_prepared(self, key: WorkerKey, message: str, now: float) -> None:
        """They are not, and why."""
        self._house.tell_worker(key, lambda worker: worker.not_prepared(message, now), now)

    def unprepared(self, key: WorkerKey, now: float) -> None:
        """Nothing is held for the pod any more."""
        self._house.unprepared(key, now)

    def uses_devices(self, key: WorkerKey) -> bool:
        """Whether the pod is active here."""
        worker = self._house.workers.get(key)
        return worker is not None and worker.state != "terminated"

    def pod_of(self, key: WorkerKey) -> KubeletPod | None:
        """Return the pod, while it is known."""
        worker = self._house.workers.get(key)
        return worker.pod if worker is not None else self._house.pods.get(key.uid)
