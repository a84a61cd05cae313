"""The writer of claims for pods that are being bound: the allocated devices, and the consumers.

A claim is granted by two writes, because finalizers are metadata and devices are status. Claims are handled
one after the other; when a later one fails, the earlier ones stay granted and Unreserve removes the pod
from their lists. Each write names the version it was decided on; after a conflict the claim is read anew
and decided again. Source: dra-core 5 (writes 3 and 4), 6.6; kep-5194-reservedfor-workloads 3.1, 3.3;
upstream `pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go`, `bindClaim`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from scheduler.cache.node_info import PodInfo
from scheduler.dra.extended_resources import Mappings, claim_to_write
from scheduler.dra.ledger import ClaimLedger
from scheduler.dra.metrics import CONFLICTS, CREATES, WRITES
from scheduler.dra.reservation import Reservation, reservation
from scheduler.framework.status import SUCCESS, Status, error_status, unresolvable
from scheduler.switches import ReservationSwitches
from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.podgroup import PodGroup
from services.api.kinds.resourceclaim import (
    CLAIMS,
    FINALIZER,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from services.api.meta import Document, Key
from services.api.seams import Random
from services.api.times import format_time
from services.dra.pod_claims import FindClaim

TRIES: Final = 5
RETRY_S: Final = 0.01
RETRY_JITTER: Final = 0.1
"""Jitter of a retry as a share of its wait.

The values are those of client-go's `retry.DefaultRetry`: five steps, 10 ms apart, up to a tenth of that
longer.
"""
APART_S: Final = 0.0014
"""Seconds between the first writes of two pods that share a claim.

Chosen: one cycle at the 720 pods a second that the real scheduler was seen to do with 100 nodes, after
which the next cycle begins, so that two pods do not come to PreBind together. A cycle here may take no time
at all, and then all pods that one event woke would lose against each other.
"""
AT_ONCE: Final = 8
"""Maximal number of pods that share a claim and are between reading and writing it at once.

Chosen: in the simulation, where computing takes no time, 256 pods are five on average and thirteen at most.
Upstream each is a goroutine that reads and writes without a pause; in one process that computes for all of
them, every pod would read before the first writes, and one of hundreds would win each round.
"""


class Granter:
    """Grants claims to pods.

    `find`: returns the claim as it is assumed to be. `wall`: seconds since 1970, for the time of the
    allocation, which is written where devices may have binding conditions: only these are given up after a
    time.
    """

    def __init__(
        self,
        ledger: ClaimLedger,
        find: FindClaim,
        wall: Callable[[], float],
        random: Random,
        rules: ReservationSwitches,
        *,
        has_binding_conditions: bool = True,
    ) -> None:
        self._ledger = ledger
        self._find = find
        self._wall = wall
        self._random = random
        self._rules = rules
        self._has_binding_conditions = has_binding_conditions
        self._begun: dict[str, float] = {}
        self._at_work: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def grant(
        self,
        pod: PodInfo,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        client: Any,
        group: PodGroup | None = None,
    ) -> Status:
        """Write what the pod needs to use the claim; return success, or why it may not use the claim.

        `claim`: as Filter saw it; `allocation` None: it has its devices. Never raises ApiError: a refused write
        ends the attempt, and the pod is scheduled again.
        """
        uid, rules, current = claim.metadata.uid, self._rules, self._find(claim.metadata.key) or claim
        is_listed = current.status.is_reserved_for(pod.uid)
        must_write = allocation is not None or self._entry(pod, current, None, group).consumer is not None
        if not must_write and (is_listed or rules.fence == "none"):
            return SUCCESS  # nothing is to be written: the allocation Filter saw is relied upon
        if must_write or rules.fence == "touch":
            await self._in_turn(uid)
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(RETRY_S * (1.0 + RETRY_JITTER * self._random.random()))
            async with self._at_work.setdefault(uid, asyncio.Semaphore(AT_ONCE)):
                try:
                    if attempt:
                        current = await self._read_again(claim, client)
                    elif not must_write and rules.fence == "get":
                        current = _view(await client.get(CLAIMS, claim.metadata.key))
                    else:
                        current = self._find(claim.metadata.key) or claim
                    return await self._try(pod, claim, current, allocation, client, group)
                except Conflict as error:
                    self._ledger.metrics.add(CONFLICTS)
                    problem = str(error)
                except (ApiError, UnknownOutcome) as error:
                    return error_status(str(error))
        return error_status(problem)

    async def _try(
        self,
        pod: PodInfo,
        claim: ResourceClaim,
        current: ResourceClaim,
        allocation: AllocationResult | None,
        client: Any,
        group: PodGroup | None,
    ) -> Status:
        """Write the `current` version of the claim if it is what Filter saw. Raises: ApiError, UnknownOutcome."""
        uid, rules = claim.metadata.uid, self._rules
        problem = _problem(claim, current, allocation)
        if allocation is not None and current.status.allocation is None and not self._ledger.pending(uid):
            problem = problem or "deallocated elsewhere"  # another pod wrote it, and it was cleared again
        if problem:
            return error_status(f"claim {claim.metadata.key} got {problem} in the meantime")
        pending = allocation if current.status.allocation is None else None
        entry = self._entry(pod, current, pending, group)
        if entry.consumer is not None and not entry.consumer.is_pod:
            known = await self._owner(claim, entry.consumer, client)
            if isinstance(known, Status):
                return known
            entry = Reservation(known, entry.for_any_pod)
        is_listed = current.status.is_reserved_for(pod.uid)
        if pending is None and entry.consumer is None and (rules.fence != "touch" or is_listed):
            return SUCCESS
        stored = await self._write(current, pending, entry, client)
        self._ledger.wrote(stored)
        self._ledger.settle(stored)
        return SUCCESS

    async def create(self, pod: PodInfo, in_memory: ResourceClaim, client: Any) -> ResourceClaim | Status:
        """Create the claim for the pod's extended resources and return it as written.

        Its devices are allocated to it from now on.
        """
        document = claim_to_write(pod.pod, in_memory.spec.devices.requests)
        try:
            claim = _view(await client.create(CLAIMS, document, namespace=pod.key.namespace))
        except (ApiError, UnknownOutcome) as error:
            self._ledger.metrics.add(CREATES, "failure", "false")
            return error_status(f"create claim for extended resources {pod.key.namespace}/: {error}")
        self._ledger.metrics.add(CREATES, "success", "false")
        allocation = self._ledger.pending(in_memory.metadata.uid)
        assert allocation is not None, f"{pod.key}: PreBind of extended resources without Reserve"
        self._ledger.allocate(claim, allocation, pod.uid)
        self._ledger.settle(in_memory)
        return claim

    async def name_in_status(self, pod: PodInfo, claim: ResourceClaim, mappings: Mappings, client: Any) -> Status:
        """Write into the pod's status its claim for extended resources, and which container has which part of it."""
        named = {
            "requestMappings": [msgspec.to_builtins(each) for each in mappings],
            "resourceClaimName": claim.metadata.name,
        }
        patch = {"status": {"extendedResourceClaimStatus": named}}
        try:
            await client.patch("pods", pod.key, patch, subresource="status", uid=pod.uid)
        except (ApiError, UnknownOutcome) as error:
            return error_status(f"update pod {pod.key} ExtendedResourceClaimStatus: {error}")
        return SUCCESS

    def _entry(
        self, pod: PodInfo, claim: ResourceClaim, allocation: AllocationResult | None, group: PodGroup | None
    ) -> Reservation:
        return reservation(self._rules.mode, claim, pod.pod, allocation, group)

    async def _in_turn(self, uid: str) -> None:
        """Return `APART_S` after the pod before, of those that come for this claim together, returned from here."""
        now = asyncio.get_running_loop().time()
        self._begun = {each: at for each, at in self._begun.items() if at + APART_S > now}
        begins = self._begun[uid] = max(now, self._begun.get(uid, 0.0) + APART_S)
        if begins > now:
            await asyncio.sleep(begins - now)

    async def _read_again(self, claim: ResourceClaim, client: Any) -> ResourceClaim:
        with _saying(f"get updated claim {claim.metadata.key} after conflict"):
            return _view(await client.get(CLAIMS, claim.metadata.key))

    async def _write(
        self, claim: ResourceClaim, allocation: AllocationResult | None, entry: Reservation, client: Any
    ) -> ResourceClaim:
        key = claim.metadata.key
        if allocation is not None and FINALIZER not in claim.metadata.finalizers:
            finalizers: Document = {"metadata": {"finalizers": [*claim.metadata.finalizers, FINALIZER]}}
            with _saying(f"add finalizer to claim {key}"):
                claim = await self._patch(client, claim, finalizers)
        consumers = (*claim.status.reserved_for, *((entry.consumer,) if entry.consumer is not None else ()))
        status: Document = {"reservedFor": [msgspec.to_builtins(each) for each in consumers]}
        if allocation is not None:
            status["allocation"] = msgspec.to_builtins(allocation)
            if self._has_binding_conditions:
                status["allocation"]["allocationTimestamp"] = format_time(self._wall())
            if entry.for_any_pod:
                status["allocation"]["reservedForAnyPod"] = True
        with _saying(f"add {'allocation and ' if allocation is not None else ''}reservation to claim {key}"):
            return await self._patch(client, claim, {"status": status}, "status")

    async def _patch(self, client: Any, claim: ResourceClaim, patch: Document, subresource: str = "") -> ResourceClaim:
        self._ledger.metrics.add(WRITES)
        return await patch_claim(client, claim, patch, subresource)

    async def _owner(
        self, claim: ResourceClaim, owner: ResourceClaimConsumerReference, client: Any
    ) -> ResourceClaimConsumerReference | Status:
        """Return the workload with its uid. It is looked up when the claim does not say which uid it has, and when a
        reference to a workload that is gone must not be written once more (`scheduler.verify_owner`)."""
        if owner.is_claim:
            return msgspec.structs.replace(owner, uid=claim.metadata.uid)
        if owner.uid and not self._rules.verifies_owner:
            return owner
        resource = f"{owner.resource}.{owner.api_group}" if owner.api_group else owner.resource
        try:
            live = await client.get(resource, Key(claim.metadata.namespace, owner.name))
        except NotFound:
            live = None
        uid = live["metadata"]["uid"] if live is not None else ""
        if not uid or owner.uid not in ("", uid):
            who = f'{resource} "{owner.name}"' + (f" with UID {owner.uid}" if owner.uid else "")
            return unresolvable(f"resourceclaim {claim.metadata.key} is reserved for {who}, which does not exist")
        return msgspec.structs.replace(owner, uid=uid)


@contextmanager
def _saying(what: str) -> Iterator[None]:
    """Put what was tried before the message of a refusal, as upstream's wrapped errors read."""
    try:
        yield
    except ApiError as error:
        error.args = (f"{what}: {error.message}",)
        raise


def _problem(wanted: ResourceClaim, current: ResourceClaim, allocation: AllocationResult | None) -> str:
    """Return what became of the claim since Filter saw it, "" when it is as it was. Another pod of the same scheduler
    may have written the allocation that both were to use."""
    present = current.status.allocation
    if current.metadata.uid != wanted.metadata.uid or current.metadata.deletion_timestamp:
        return "deleted"
    if allocation is not None:
        is_ours = present is None or present.device_ids == allocation.device_ids
    else:
        if present is None:
            return "deallocated elsewhere"
        before = wanted.status.allocation
        is_ours = before is None or present.device_ids == before.device_ids
    return "" if is_ours else "allocated elsewhere"


async def patch_claim(client: Any, claim: ResourceClaim, patch: Document, subresource: str = "") -> ResourceClaim:
    """Patch the claim at the version for which the patch was decided. Raises: ApiError, UnknownOutcome."""
    meta = claim.metadata
    return _view(
        await client.patch(
            CLAIMS, meta.key, patch, subresource=subresource, uid=meta.uid, resource_version=meta.resource_version
        )
    )


def _view(document: Document) -> ResourceClaim:
    return msgspec.convert(document, ResourceClaim)
