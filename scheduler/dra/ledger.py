"""What the scheduler assumes of claims before the API server confirms it, and which devices are in use. Pure.

Three layers, the upper one wins: what informers show; what we wrote and they do not show yet; what Reserve has
allocated in memory and is not written yet (in flight). Another pod may not rely on that: if its write failed, that pod
would be bound with a claim that has no devices. All profiles of a scheduler share the ledger.
Source: dra-core 6.1; upstream `pkg/scheduler/framework/plugins/dynamicresources/dra_manager.go`.
"""

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from enum import Enum

from scheduler.cache.node_info import count
from services.api.kinds.resourceclaim import AllocationResult, ResourceClaim
from services.api.meta import Key
from services.dra.pools import DeviceId
from services.reconcile.controller import Change


class Release(Enum):
    """How a claim is released.

    UNRESERVE: the pod may not use it any more, that is all. UNBIND: the same, and when no other pod may use it and
    it can be used on some nodes only, its devices are freed. DEALLOCATE: the devices are freed, the pod with them.
    """

    UNRESERVE = "unreserve"
    UNBIND = "unbind"
    DEALLOCATE = "deallocate"


@dataclass(frozen=True, slots=True)
class PendingRelease:
    """One claim to be released for a pod; what is written is decided by the claim as it is then."""

    how: Release
    claim: Key
    claim_uid: str
    pod_uid: str


@dataclass
class ClaimLedger:
    """`releases` are for the deallocator to write; `on_release` is called when there is a new one."""

    releases: deque[PendingRelease] = field(default_factory=deque)
    on_release: Callable[[], None] = lambda: None
    _seen: dict[str, tuple[DeviceId, ...]] = field(default_factory=dict)
    _written: dict[Key, ResourceClaim] = field(default_factory=dict)
    _in_flight: dict[str, AllocationResult] = field(default_factory=dict)
    _counted: dict[str, tuple[DeviceId, ...]] = field(default_factory=dict)
    _in_use: dict[DeviceId, int] = field(default_factory=dict)

    @property
    def in_use(self) -> Container[DeviceId]:
        """The devices that some claim has or is about to get."""
        return self._in_use

    def is_in_flight(self, claim_uid: str) -> bool:
        """Whether devices were allocated to the claim and that is not written yet."""
        return claim_uid in self._in_flight

    def of(self, key: Key, known: ResourceClaim | None) -> ResourceClaim | None:
        """Return what is assumed of a claim that the informer shows as `known`."""
        written = self._written.get(key)
        if written is None or known is None or known.metadata.uid != written.metadata.uid:
            return known
        return written if written.metadata.rv > known.metadata.rv else known

    def on_change(self, change: Change[ResourceClaim]) -> None:
        """Follow the informer; the same change twice does no harm."""
        key, new = change.object.metadata.key, change.new
        written = self._written.get(key)
        if written is not None and (
            new is None or new.metadata.uid != written.metadata.uid or new.metadata.rv >= written.metadata.rv
        ):
            del self._written[key]
        if change.old is not None and (new is None or new.metadata.uid != change.old.metadata.uid):
            self._seen.pop(change.old.metadata.uid, None)
            self._count(change.old)
        if new is not None:
            self._seen[new.metadata.uid] = _devices(new.status.allocation)
            self._count(new)

    def wrote(self, claim: ResourceClaim) -> None:
        """Assume what the server answered to a write, until the informer shows it."""
        self._written[claim.metadata.key] = claim
        self._count(claim)

    def allocate(self, claim: ResourceClaim, allocation: AllocationResult) -> None:
        """Put an allocation in flight."""
        self._in_flight[claim.metadata.uid] = allocation
        self._count(claim)

    def settle(self, claim: ResourceClaim) -> None:
        """Forget the allocation in flight: it was written, or will not be."""
        if self._in_flight.pop(claim.metadata.uid, None) is not None:
            self._count(claim)

    def request_release(self, release: PendingRelease) -> None:
        """Have a claim released."""
        self.releases.append(release)
        self.on_release()

    def _count(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
        written = self._written.get(claim.metadata.key)
        if written is not None and written.metadata.uid == uid:
            known = _devices(written.status.allocation)
        else:
            known = self._seen.get(uid, ())
        devices = tuple(dict.fromkeys((*known, *_devices(self._in_flight.get(uid)))))
        for each in self._counted.pop(uid, ()):
            count(self._in_use, each, -1)
        if devices:
            self._counted[uid] = devices
        for each in devices:
            count(self._in_use, each, 1)


def _devices(allocation: AllocationResult | None) -> tuple[DeviceId, ...]:
    return allocation.device_ids if allocation is not None else ()
