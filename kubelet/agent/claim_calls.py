"""The calls one node makes about devices: read the claims of a pod, publish and withdraw slices of its drivers.

Source: dra-core 7 (prepare reads live, slices are wiped at start-up and when a driver is gone).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec
import structlog

from kubelet.agent.host import Host
from kubelet.effects import PublishSlices, ReadClaims
from kubelet.kubelet import Kubelet
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Key
from services.client.client import Client

RETRY_S = 5.0
log = structlog.get_logger()
_CLAIM = msgspec.json.Decoder(ResourceClaim)


class Caller(Protocol):
    """What the calls need of the node they are made for."""

    kubelet: Kubelet
    client: Client | None
    node_uid: str

    @property
    def name(self) -> str:
        """The node's name."""

    def drain(self) -> None:
        """Perform what the machine wants, in order."""


class ClaimCalls:
    """Invariant: slices are published by one task at a time, so that what was asked for last is what stays."""

    def __init__(self, host: Host, node: Caller) -> None:
        self._host, self._node = host, node
        self._publishing = asyncio.Lock()

    async def read(self, read: ReadClaims) -> None:
        """Read the claims live, and hand them, or what went wrong, to the machine."""
        client = self._node.client
        assert client is not None
        found: list[ResourceClaim] | str = []
        for name in read.names:
            try:
                claim = _CLAIM.decode(await client.get_raw(CLAIMS, Key(read.pod.metadata.namespace, name)))
            except (ApiError, UnknownOutcome, msgspec.DecodeError) as error:
                found = f"fetch ResourceClaim {name}: {error}"
                break
            assert isinstance(found, list)
            found.append(claim)
        self._node.kubelet.claims.claims_read(read.key, read.pod, found, self._host.clock.now())
        self._node.drain()

    async def publish(self, wanted: PublishSlices) -> None:
        """Withdraw and publish until the API server has it."""
        async with self._publishing:
            while True:
                try:
                    await self._publish(wanted)
                    return
                except (ApiError, UnknownOutcome) as error:
                    log.warning("slices.unpublished", node=self._node.name, reason=str(error))
                    await asyncio.sleep(RETRY_S)

    async def _publish(self, wanted: PublishSlices) -> None:
        client, node = self._node.client, self._node
        assert client is not None
        items, _ = await client.list(SLICES, field_selector=f"spec.nodeName={node.name}")
        for item in items:
            driver, meta = item["spec"]["driver"], item["metadata"]
            if wanted.wipe is None or driver in wanted.wipe or driver in wanted.publish:
                try:
                    await client.delete(SLICES, Key("", meta["name"]), uid=meta["uid"])
                except NotFound:
                    continue
        for name in wanted.publish:
            for document in node.kubelet.claims.drivers[name].slices(node.node_uid):
                await client.create(SLICES, document)
