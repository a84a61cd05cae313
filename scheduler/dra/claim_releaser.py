"""The releaser of claims in the ledger: after a failed binding, after an unbind, or when the pod fits nowhere.

The write depends on the claim at that moment; a claim that changed meanwhile is read and decided again.
Source: dra-core 6.5, 6.6; kep-5194-reservedfor-workloads 3.2, 3.4; kubelet-unbinding 7.4.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from scheduler.dra.claim_writer import RETRY_S, TRIES, patch_claim
from scheduler.dra.ledger import ClaimLedger, PendingRelease, Release
from scheduler.dra.metrics import CONFLICTS, WRITES
from scheduler.dra.reservation import is_group_entry
from scheduler.framework.status import SUCCESS, Status, error_status
from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import CLAIMS, FINALIZER, ResourceClaim
from services.api.meta import Document, Key
from services.dra.pod_claims import FindClaim, claim_keys

log: Final = structlog.get_logger()


def release_patch(claim: ResourceClaim, release: PendingRelease) -> Document | None:
    """Return the patch of the claim's status; None when there is nothing to release. Pure.

    Devices are freed only together with the last consumer; entries of other consumers, or of a workload, keep
    them allocated.
    """
    if claim.metadata.uid != release.claim_uid:
        return None
    entries = claim.status.reserved_for
    match release.how:
        case Release.UNRESERVE_GROUP:
            others = [each for each in entries if not is_group_entry(each)]
        case Release.DEALLOCATE if release.with_workload:
            others = [each for each in entries if each.is_pod and each.uid != release.pod_uid]
        case _:
            others = [each for each in entries if each.uid != release.pod_uid]
    is_listed = len(others) < len(entries)
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
    """Works off the ledger's list; only a scheduler that leads runs it.

    `users`: by claim, how many pods use it that have a node or are assumed to.
    """

    def __init__(self, ledger: ClaimLedger, client: Any, users: Mapping[Key, int]) -> None:
        self._ledger = ledger
        self._client = client
        self._users = users
        self._wake = asyncio.Event()
        ledger.on_release = self._wake.set

    async def run(self) -> None:
        """Release the claims that the ledger lists, until cancelled."""
        while True:
            while self._ledger.releases:
                await self._perform(self._ledger.releases.popleft())
            self._wake.clear()
            await self._wake.wait()

    async def free_unused(self, claims: Callable[[], Iterable[ResourceClaim]], period_s: float) -> None:
        """Free unused claims periodically until cancelled.

        A claim is freed if it is reserved for workloads alone and no pod on a node uses it. Source:
        kep-5194-reservedfor-workloads 13 (`scheduler.periodic_release`).
        """
        while True:
            await asyncio.sleep(period_s)
            for known in claims():
                claim = self._ledger.of(known.metadata.key, known) or known
                entries, key = claim.status.reserved_for, claim.metadata.key
                is_for_workloads = bool(entries) and not any(each.is_pod for each in entries)
                if is_for_workloads and claim.status.allocation is not None and key not in self._users:
                    release = PendingRelease(Release.DEALLOCATE, key, claim.metadata.uid, "", with_workload=True)
                    self._ledger.request_release(release)

    async def _perform(self, release: PendingRelease) -> None:
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(RETRY_S)
            try:
                claim = msgspec.convert(await self._client.get(CLAIMS, release.claim), ResourceClaim)
                if release.how is Release.DELETE:
                    await self._delete(claim, release)
                    return
                patch = release_patch(claim, release)
                if patch is None:
                    return
                if release.with_workload and (
                    await _is_consumed(release, self._client) or release.claim in self._users
                ):
                    self._log_refusal(release, "a pod that uses it has a node")
                    return
                stored = await patch_claim(self._client, claim, patch, "status")
            except Conflict:
                continue
            except NotFound:
                return
            except (ApiError, UnknownOutcome) as error:
                self._log_refusal(release, str(error))
                return
            self._ledger.wrote(stored)
            log.info("claim.released", claim=str(release.claim), how=release.how.value)
            return
        self._log_refusal(release, "it keeps changing")

    async def _delete(self, claim: ResourceClaim, release: PendingRelease) -> None:
        """Delete the claim, its finalizer first. Raises: ApiError, UnknownOutcome."""
        meta = claim.metadata
        if meta.uid != release.claim_uid:
            return
        if FINALIZER in meta.finalizers:
            kept = [each for each in meta.finalizers if each != FINALIZER]
            await patch_claim(self._client, claim, {"metadata": {"finalizers": kept or None}})
        await self._client.delete(CLAIMS, meta.key, uid=meta.uid)
        log.info("claim.released", claim=str(release.claim), how=release.how.value)

    @staticmethod
    def _log_refusal(release: PendingRelease, reason: str) -> None:
        log.warning("claim.not_released", claim=str(release.claim), how=release.how.value, reason=reason)


async def _is_consumed(release: PendingRelease, client: Any) -> bool:
    """Whether a pod with a node has the claim. Read live: a cache cannot know what others bound (kep-5194 8).
    Raises: ApiError, UnknownOutcome."""
    documents, _ = await client.list("pods", namespace=release.claim.namespace)
    pods = (msgspec.convert(each, Pod) for each in documents)
    return any(
        pod.spec.node_name and not pod.is_terminal and release.claim in claim_keys(pod)
        for pod in pods
        if pod.metadata.uid != release.pod_uid
    )


async def deallocate_moved(claim: ResourceClaim, pod_uid: str, ledger: ClaimLedger, client: Any) -> Status:
    """Free the devices of a claim in the API if they were freed in memory for the allocation in flight.

    Otherwise do nothing; on an error return why the pod cannot be bound. If several pods share that allocation,
    the first writes. The write is for the version that PostFilter judged: any change since then ends the
    attempt, as upstream's update does. Never raises ApiError. Source: kep-5194-reservedfor-workloads 3.4
    (`in_memory`).
    """
    meta = claim.metadata
    before = ledger.moved_from(meta.uid)
    if before is None or _is_free(claim, before, ledger):
        return SUCCESS
    release = PendingRelease(Release.DEALLOCATE, meta.key, meta.uid, pod_uid, with_workload=True)
    try:
        if any(not each.is_pod for each in before.status.reserved_for) and await _is_consumed(release, client):
            return error_status(f"claim {meta.key} got a consumer in the meantime")
        cleared: Document = {"status": {"reservedFor": None, "allocation": None, "devices": None}}
        ledger.metrics.add(WRITES)
        stored = await patch_claim(client, before, cleared, "status")
    except Conflict as error:
        ledger.metrics.add(CONFLICTS)
        return SUCCESS if _is_free(claim, before, ledger) else error_status(f"deallocate claim {meta.key}: {error}")
    except (ApiError, UnknownOutcome) as error:
        return error_status(f"deallocate claim {meta.key}: {error}")
    ledger.wrote(stored)
    log.info("claim.released", claim=str(meta.key), how="in-memory")
    return SUCCESS


def _is_free(claim: ResourceClaim, before: ResourceClaim, ledger: ClaimLedger) -> bool:
    """Whether another pod has written by now that the devices of `before` are free."""
    if ledger.moved_from(claim.metadata.uid) is None:
        return True  # and the new allocation with it
    current = ledger.of(claim.metadata.key, before)
    return current is not None and current.status.allocation is None


def release_unbound(pod: Pod, ledger: ClaimLedger, find: FindClaim) -> None:
    """Request the release of every claim of the pod before it is tried again; other consumers keep theirs."""
    for key in claim_keys(pod):
        claim = find(key)
        if claim is not None:
            ledger.request_release(PendingRelease(Release.UNBIND, key, claim.metadata.uid, pod.metadata.uid))
