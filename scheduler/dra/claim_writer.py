"""Writes claims: grants them to a pod with the devices chosen, and releases them as the ledger asks.

A claim is granted by two writes, because finalizers are metadata and devices are status. Claims are handled one after
the other; when a later one fails, the earlier ones stay granted and Unreserve takes the pod off their lists.
A claim is released after a failed binding, an unbind, or in vain. What is written is decided by the claim as it is at
that moment: each write names the version it was decided on; a claim that changed meanwhile is read and judged again.
Source: dra-core 5 (writes 3 and 4), 6.5, 6.6; kubelet-unbinding 7.4.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from scheduler.cache.node_info import PodInfo
from scheduler.dra.ledger import ClaimLedger, PendingRelease, Release
from scheduler.framework.status import SUCCESS, Status, failed
from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import CLAIMS, FINALIZER, AllocationResult, ResourceClaim
from services.api.meta import Document, Key
from services.api.times import format_time
from services.dra.pod_claims import FindClaim, claim_keys

TRIES: Final = 5
RETRY_S: Final = 0.01
log = structlog.get_logger()


class Granter:
    """`find`: the claim as it is assumed to be. `wall`: seconds since 1970, for the time of the allocation."""

    def __init__(self, ledger: ClaimLedger, find: FindClaim, wall: Callable[[], float]) -> None:
        self._ledger = ledger
        self._find = find
        self._wall = wall

    async def grant(
        self, pod: PodInfo, claim: ResourceClaim, allocation: AllocationResult | None, client: Any
    ) -> Status:
        """Return when the pod may use the claim, or why it may not. `allocation` None: it has its devices.
        Never raises ApiError: a refused write ends the attempt, and the pod is scheduled again."""
        current = self._find(claim.metadata.key)
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(RETRY_S)
            try:
                if attempt:
                    current = await _read(client, claim.metadata.key)
                problem = _problem(claim, current, allocation)
                if problem or current is None:
                    return failed(f"claim {claim.metadata.key} got {problem} in the meantime")
                if current.status.is_reserved_for(pod.uid):
                    return SUCCESS  # our own write, of which no answer came
                current = await self._write(pod, current, allocation, client)
            except Conflict:
                continue
            except (ApiError, UnknownOutcome) as error:
                return failed(str(error))
            self._ledger.wrote(current)
            if allocation is not None:
                self._ledger.settle(current)
            return SUCCESS
        return failed(f"claim {claim.metadata.key} was changed by others {TRIES} times in a row")

    async def _write(
        self, pod: PodInfo, claim: ResourceClaim, allocation: AllocationResult | None, client: Any
    ) -> ResourceClaim:
        known = claim.metadata.finalizers
        if allocation is not None and FINALIZER not in known:
            finalizers: Document = {"metadata": {"finalizers": [*known, FINALIZER]}}
            claim = await _patch(client, claim, finalizers)
        consumer = {"resource": "pods", "name": pod.key.name, "uid": pod.uid}
        listed = [msgspec.to_builtins(each) for each in claim.status.reserved_for]
        status: Document = {"reservedFor": [*listed, consumer]}
        if allocation is not None:
            status["allocation"] = {**msgspec.to_builtins(allocation), "allocationTimestamp": format_time(self._wall())}
        return await _patch(client, claim, {"status": status}, "status")


def _problem(wanted: ResourceClaim, current: ResourceClaim | None, allocation: AllocationResult | None) -> str:
    if current is None or current.metadata.uid != wanted.metadata.uid or current.metadata.deletion_timestamp:
        return "deleted"
    if allocation is not None and current.status.allocation is not None:
        return "allocated elsewhere"
    if allocation is None and current.status.allocation is None:
        return "deallocated elsewhere"
    return ""


async def _read(client: Any, key: Key) -> ResourceClaim | None:
    try:
        return _view(await client.get(CLAIMS, key))
    except NotFound:
        return None


async def _patch(client: Any, claim: ResourceClaim, patch: Document, subresource: str = "") -> ResourceClaim:
    """Patch the version of the claim that the patch was decided on."""
    meta = claim.metadata
    return _view(
        await client.patch(
            CLAIMS, meta.key, patch, subresource=subresource, uid=meta.uid, resource_version=meta.resource_version
        )
    )


def _view(document: Document) -> ResourceClaim:
    return msgspec.convert(document, ResourceClaim)


def release_patch(claim: ResourceClaim, release: PendingRelease) -> Document | None:
    """Return what to write of the claim's status, None when there is nothing to release. Pure. Devices are freed only
    together with the last who may use them; a list that names others, or a workload, keeps them where they are."""
    if claim.metadata.uid != release.claim_uid:
        return None
    others = [each for each in claim.status.reserved_for if each.uid != release.pod_uid]
    is_listed = len(others) < len(claim.status.reserved_for)
    allocation = claim.status.allocation
    frees = release.how is Release.DEALLOCATE or (
        release.how is Release.UNBIND and is_listed and allocation is not None and allocation.node_selector is not None
    )
    frees = frees and not others and allocation is not None
    if not frees and (not is_listed or release.how is Release.DEALLOCATE):
        return None
    status: Document = {"reservedFor": [msgspec.to_builtins(each) for each in others] or None}
    if frees:
        status |= {"allocation": None, "devices": None}
    return {"status": status}


class ClaimReleaser:
    """Works off the ledger's list; only a scheduler that leads runs it."""

    def __init__(self, ledger: ClaimLedger, client: Any) -> None:
        self._ledger = ledger
        self._client = client
        self._wake = asyncio.Event()
        ledger.on_release = self._wake.set

    async def run(self) -> None:
        """Deallocate the claims that the ledger lists for release, until cancelled."""
        while True:
            while self._ledger.releases:
                await self._perform(self._ledger.releases.popleft())
            self._wake.clear()
            await self._wake.wait()

    async def _perform(self, release: PendingRelease) -> None:
        for _ in range(TRIES):
            try:
                claim = _view(await self._client.get(CLAIMS, release.claim))
                patch = release_patch(claim, release)
                if patch is None:
                    return
                stored = await _patch(self._client, claim, patch, "status")
            except Conflict:
                continue
            except NotFound:
                return
            except (ApiError, UnknownOutcome) as error:
                log.warning("claim.not_released", claim=str(release.claim), how=release.how.value, reason=str(error))
                return
            self._ledger.wrote(stored)
            log.info("claim.released", claim=str(release.claim), how=release.how.value)
            return
        log.warning("claim.not_released", claim=str(release.claim), how=release.how.value, reason="it keeps changing")


def release_unbound(pod: Pod, ledger: ClaimLedger, find: FindClaim) -> None:
    """Have every claim of the pod released before it is tried again; what others use stays where it is."""
    for key in claim_keys(pod):
        claim = find(key)
        if claim is not None:
            ledger.request_release(PendingRelease(Release.UNBIND, key, claim.metadata.uid, pod.metadata.uid))
