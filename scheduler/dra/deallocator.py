"""Releases claims, one after the other, as the ledger asks: after a failed binding, an unbind, or in vain.

What is written is decided by the claim as it is at that moment: each write names the version it was decided on, and
a claim that changed meanwhile is read and judged again.
Source: dra-core 6.5, 6.6; kubelet-unbinding 7.4.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import structlog

from scheduler.dra.ledger import ClaimLedger, PendingRelease, Release
from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim
from services.api.meta import Document

TRIES: Final = 5
log = structlog.get_logger()


def release_patch(claim: ResourceClaim, release: PendingRelease) -> Document | None:
    """Return what to write of the claim's status, None when there is nothing to release. Pure.

    Devices are freed only together with the last who may use them; a list that names others, or a workload, keeps
    them where they are.
    """
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
        """Let go whatever is asked for, until cancelled."""
        while True:
            while self._ledger.releases:
                await self._perform(self._ledger.releases.popleft())
            self._wake.clear()
            await self._wake.wait()

    async def _perform(self, release: PendingRelease) -> None:
        for _ in range(TRIES):
            try:
                claim = msgspec.convert(await self._client.get(CLAIMS, release.claim), ResourceClaim)
                patch = release_patch(claim, release)
                if patch is None:
                    return
                meta = claim.metadata
                stored = await self._client.patch(
                    CLAIMS, meta.key, patch, subresource="status", uid=meta.uid, resource_version=meta.resource_version
                )
            except Conflict:
                continue
            except NotFound:
                return
            except (ApiError, UnknownOutcome) as error:
                log.warning("claim.not_released", claim=str(release.claim), how=release.how.value, reason=str(error))
                return
            self._ledger.wrote(msgspec.convert(stored, ResourceClaim))
            log.info("claim.released", claim=str(release.claim), how=release.how.value)
            return
        log.warning("claim.not_released", claim=str(release.claim), how=release.how.value, reason="it keeps changing")
