"""Releases claims as the ledger asks: after a failed binding, after an unbind, or because the pod fits nowhere.

What is written is decided by the claim as it is at that moment; a claim that changed meanwhile is read and judged
again. Source: dra-core 6.5, 6.6; kep-5194-reservedfor-workloads 3.2, 3.4; kubelet-unbinding 7.4.
"""

import asyncio
from typing import Any, Final

import msgspec
import structlog

from scheduler.dra.claim_writer import RETRY_S, TRIES, patch_claim
from scheduler.dra.ledger import ClaimLedger, PendingRelease, Release
from scheduler.dra.reservation import is_group_entry
from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import CLAIMS, FINALIZER, ResourceClaim
from services.api.meta import Document
from services.dra.pod_claims import FindClaim, claim_keys

log: Final = structlog.get_logger()


def release_patch(claim: ResourceClaim, release: PendingRelease) -> Document | None:
    """Return what to write of the claim's status, None when there is nothing to release. Pure. Devices are freed only
    together with the last who may use them; a list that names others, or a workload, keeps them where they are."""
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
    """Works off the ledger's list; only a scheduler that leads runs it."""

    def __init__(self, ledger: ClaimLedger, client: Any) -> None:
        self._ledger = ledger
        self._client = client
        self._wake = asyncio.Event()
        ledger.on_release = self._wake.set

    async def run(self) -> None:
        """Release the claims that the ledger lists, until cancelled."""
        while True:
            while self._ledger.releases:
                await self._perform(self._ledger.releases.popleft())
            self._wake.clear()
            await self._wake.wait()

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
                if release.with_workload and await self._is_consumed(release):
                    self._refused(release, "a pod that uses it has a node")
                    return
                stored = await patch_claim(self._client, claim, patch, "status")
            except Conflict:
                continue
            except NotFound:
                return
            except (ApiError, UnknownOutcome) as error:
                self._refused(release, str(error))
                return
            self._ledger.wrote(stored)
            log.info("claim.released", claim=str(release.claim), how=release.how.value)
            return
        self._refused(release, "it keeps changing")

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
    def _refused(release: PendingRelease, reason: str) -> None:
        log.warning("claim.not_released", claim=str(release.claim), how=release.how.value, reason=reason)

    async def _is_consumed(self, release: PendingRelease) -> bool:
        """Whether a pod with a node has the claim. Read live: a cache cannot know what others bound (kep-5194 8)."""
        documents, _ = await self._client.list("pods", namespace=release.claim.namespace)
        pods = (msgspec.convert(each, Pod) for each in documents)
        return any(
            pod.spec.node_name and not pod.is_terminal and release.claim in claim_keys(pod)
            for pod in pods
            if pod.metadata.uid != release.pod_uid
        )


def release_unbound(pod: Pod, ledger: ClaimLedger, find: FindClaim) -> None:
    """Have every claim of the pod released before it is tried again; what others use stays where it is."""
    for key in claim_keys(pod):
        claim = find(key)
        if claim is not None:
            ledger.request_release(PendingRelease(Release.UNBIND, key, claim.metadata.uid, pod.metadata.uid))
