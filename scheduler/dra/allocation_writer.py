"""Writes down what was chosen: the finalizer, then the devices together with who may use them.

Two writes, because finalizers are metadata and devices are status. Claims are handled one after the other; when a
later one fails, the earlier ones stay granted and Unreserve takes the pod off their lists.
Source: dra-core 5 (writes 3 and 4), 6.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from scheduler.cache.node_info import PodInfo
from scheduler.dra.ledger import ClaimLedger
from scheduler.framework.status import SUCCESS, Status, failed
from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.resourceclaim import CLAIMS, FINALIZER, AllocationResult, ResourceClaim
from services.api.meta import Document, Key
from services.api.times import format_time

TRIES: Final = 5
RETRY_S: Final = 0.01


class Granter:
    """`find`: the claim as it is assumed to be. `wall`: seconds since 1970, for the time of the allocation."""

    def __init__(
        self, ledger: ClaimLedger, find: Callable[[Key], ResourceClaim | None], wall: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._find = find
        self._wall = wall

    async def grant(
        self, pod: PodInfo, claim: ResourceClaim, allocation: AllocationResult | None, client: Any
    ) -> Status:
        """Return when the pod may use the claim, or why it may not. `allocation` None: it has its devices.

        Never raises ApiError: a refused write ends the attempt, and the pod is scheduled again.
        """
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
        meta = claim.metadata
        if allocation is not None and FINALIZER not in meta.finalizers:
            finalizers: Document = {"metadata": {"finalizers": [*meta.finalizers, FINALIZER]}}
            claim = _view(
                await client.patch(CLAIMS, meta.key, finalizers, uid=meta.uid, resource_version=meta.resource_version)
            )
        consumer = {"resource": "pods", "name": pod.key.name, "uid": pod.uid}
        listed = [msgspec.to_builtins(each) for each in claim.status.reserved_for]
        status: Document = {"reservedFor": [*listed, consumer]}
        if allocation is not None:
            status["allocation"] = {**msgspec.to_builtins(allocation), "allocationTimestamp": format_time(self._wall())}
        meta = claim.metadata
        return _view(
            await client.patch(
                CLAIMS,
                meta.key,
                {"status": status},
                subresource="status",
                uid=meta.uid,
                resource_version=meta.resource_version,
            )
        )


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


def _view(document: Document) -> ResourceClaim:
    return msgspec.convert(document, ResourceClaim)
