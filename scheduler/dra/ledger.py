"""The scheduler's assumptions about claims before the API server confirms them, and the devices in use. Pure.

Three layers, the upper one wins: the informers' objects; our writes that they do not show yet; allocations
that Reserve has made in memory and that are not written yet (in flight). Another pod may not rely on an
allocation in flight: if its write failed, that pod would be bound with a claim that has no devices. All
profiles of a scheduler share the ledger. Source: dra-core 6.1; upstream
`pkg/scheduler/framework/plugins/dynamicresources/dra_manager.go`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from scheduler.dra.metrics import ClaimMetrics
from services.api.kinds.resourceclaim import AllocationResult, ResourceClaim
from services.api.meta import Key
from services.dra.allocated_devices import Allocated
from services.reconcile.controller import Change


class Release(Enum):
    """The ways to release a claim.

    UNRESERVE: the pod may not use it any more, that is all. UNBIND: the same, and when no other pod may use it
    and it can be used on some nodes only, its devices are freed. DEALLOCATE: the devices are freed, and the
    pod's entry with them. UNRESERVE_GROUP: the pods' group may not use it any more (KEP-5729). DELETE: the
    claim is deleted, with its devices.
    """

    UNRESERVE = "unreserve"
    UNRESERVE_GROUP = "unreserve-group"
    DELETE = "delete"
    UNBIND = "unbind"
    DEALLOCATE = "deallocate"


@dataclass(frozen=True, slots=True)
class PendingRelease:
    """One claim to be released for a pod; the write depends on the claim as it is then.

    `with_workload`: entries of workloads are removed, too, unless a pod that uses the claim has a node.
    """

    how: Release
    claim: Key
    claim_uid: str
    pod_uid: str
    with_workload: bool = False


@dataclass
class _Pending:
    """An allocation in flight, and the pods that have reserved it, by uid.

    `moved_from`: the claim with the stored devices that were freed in memory for this allocation; None: it had
    none.
    """

    allocation: AllocationResult
    moved_from: ResourceClaim | None = None
    sharers: dict[str, None] = field(default_factory=dict)


@dataclass
class ClaimLedger:
    """The assumed claims of one scheduler.

    `releases` are for the releaser to write; `on_release` is called when there is a new one.
    """

    releases: deque[PendingRelease] = field(default_factory=deque)
    on_release: Callable[[], None] = lambda: None
    metrics: ClaimMetrics = field(default_factory=ClaimMetrics)
    allocated: Allocated = field(default_factory=Allocated)
    """The devices that claims have or are about to get."""
    _seen: dict[str, AllocationResult | None] = field(default_factory=dict)
    _written: dict[Key, ResourceClaim] = field(default_factory=dict)
    _in_flight: dict[str, _Pending] = field(default_factory=dict)

    def pending(self, claim_uid: str) -> AllocationResult | None:
        """Return the allocation that is made but not written yet."""
        found = self._in_flight.get(claim_uid)
        return found.allocation if found is not None else None

    def sharers(self, claim_uid: str) -> Iterable[str]:
        """Return the uids of the pods that have reserved the allocation in flight; the pod that made it is first."""
        found = self._in_flight.get(claim_uid)
        return found.sharers if found is not None else ()

    def moved_from(self, claim_uid: str) -> ResourceClaim | None:
        """Return the claim as it was before the allocation in flight; None if it had no devices.

        It is kept while its former devices are to be freed in the API.
        """
        found = self._in_flight.get(claim_uid)
        return found.moved_from if found is not None else None

    def of(self, key: Key, known: ResourceClaim | None) -> ResourceClaim | None:
        """Return the assumed form of a claim that the informer shows as `known`."""
        written = self._written.get(key)
        if written is None or known is None or known.metadata.uid != written.metadata.uid:
            return known
        return written if written.metadata.rv > known.metadata.rv else known

    def on_change(self, change: Change[ResourceClaim]) -> None:
        """Take a change of the informer; the same change twice does no harm."""
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
            self._seen[new.metadata.uid] = new.status.allocation
            self._count(new)

    def wrote(self, claim: ResourceClaim) -> None:
        """Assume the claim that the server returned for a write, until the informer shows it."""
        self._written[claim.metadata.key] = claim
        self._count(claim)

    def allocate(
        self,
        claim: ResourceClaim,
        allocation: AllocationResult,
        pod_uid: str,
        *,
        moved_from: ResourceClaim | None = None,
    ) -> None:
        """Put an allocation in flight for a pod, or let the pod share the one that is.

        `moved_from`: the claim with the devices that were freed in memory for it; these stay in use until PreBind
        has freed them in the API.
        """
        pending = self._in_flight.setdefault(claim.metadata.uid, _Pending(allocation, moved_from))
        pending.sharers[pod_uid] = None
        self._count(claim)

    def retract(self, claim: ResourceClaim, pod_uid: str) -> None:
        """Retract a pod from the allocation in flight; with the last pod it ends."""
        pending = self._in_flight.get(claim.metadata.uid)
        if pending is None or pod_uid not in pending.sharers:
            return
        del pending.sharers[pod_uid]
        if not pending.sharers:
            self.settle(claim)

    def settle(self, claim: ResourceClaim) -> None:
        """Forget the allocation in flight for all pods that share it, because it was written."""
        if self._in_flight.pop(claim.metadata.uid, None) is not None:
            self._count(claim)

    def request_release(self, release: PendingRelease) -> None:
        """Request the release of a claim."""
        self.releases.append(release)
        self.on_release()

    def _count(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
        written = self._written.get(claim.metadata.key)
        if written is not None and written.metadata.uid == uid:
            known = written.status.allocation
        else:
            known = self._seen.get(uid)
        self.allocated.put(uid, known, self.pending(uid))
