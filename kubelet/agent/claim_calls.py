"""The calls one node makes about devices: read the claims of a pod, publish and withdraw slices of its drivers.

Source: dra-core 7 (prepare reads live, slices are wiped at start-up and when a driver is gone).
"""

import asyncio

import msgspec
import structlog

from kubelet.agent.node import NodeShell
from kubelet.dra.manager import ClaimManager
from kubelet.effects import PublishSlices, ReadClaims
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Key

RETRY_S = 5.0
log = structlog.get_logger()
_CLAIM = msgspec.json.Decoder(ResourceClaim)


class ClaimCalls:
    """Invariant: slices are published by one task at a time, so that what was asked for last is what stays."""

    def __init__(self, node: NodeShell, claims: ClaimManager) -> None:
        self._node, self._claims = node, claims
        self._publishing = asyncio.Lock()

    async def read(self, wanted: ReadClaims) -> None:
        """Read the claims live, and hand them, or what went wrong, to the machine."""
        found: list[ResourceClaim] = []
        problem = ""
        for name in wanted.names:
            key = Key(wanted.pod.metadata.namespace, name)
            try:
                found.append(_CLAIM.decode(await self._node.client.get_raw(CLAIMS, key)))
            except (ApiError, UnknownOutcome, msgspec.DecodeError) as error:
                problem = f"fetch ResourceClaim {name}: {error}"
                break
        self._claims.claims_read(wanted.key, wanted.pod, problem or found, self._node.now())
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
        items, _ = await client.list(SLICES, field_selector=f"spec.nodeName={node.name}")
        for item in items:
            driver, meta = item["spec"]["driver"], item["metadata"]
            if wanted.wipe is None or driver in wanted.wipe or driver in wanted.publish:
                try:
                    await client.delete(SLICES, Key("", meta["name"]), uid=meta["uid"])
                except NotFound:
                    continue
        for name in wanted.publish:
            for document in self._claims.drivers[name].slices(node.node_uid):
                await client.create(SLICES, document)
