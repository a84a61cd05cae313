"""Write the node's NodeResourceTopology: every `nrt.refresh_s`, or with `numa_scheduler=oracle` at every change.

One write at a time; what changed meanwhile is in the next. A write that failed is made again by the next tick.
Source: kubelet-unbinding 1.1.
"""

from __future__ import annotations

from typing import Final

import structlog

from kubelet.agent.host import Host, Tenant
from kubelet.kubelet import Kubelet
from kubelet.node.definition import NodeDefinition
from kubelet.node.topology_report import RESOURCE, topology_document
from kubelet.view import WorkerKey
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.meta import Document, Key
from services.client.client import Client

TIMER: Final = "topology"
_NODE: Final = WorkerKey("", 0)
log = structlog.get_logger()


class TopologyReporting:
    """The reports of one node that has NUMA nodes and aligns pods to them."""

    def __init__(self, host: Host, tenant: Tenant, definition: NodeDefinition, kubelet: Kubelet) -> None:
        switches = host.switches
        self._host, self._tenant, self._definition, self._kubelet = host, tenant, definition, kubelet
        self._at_once = switches.numa_scheduler == "oracle"
        self._period_s = switches.topology_period_s
        self._client: Client | None = None
        self._written: Document | None = None
        self._is_writing = False

    @staticmethod
    def is_wanted(host: Host, definition: NodeDefinition) -> bool:
        """Whether anybody reads it, and there is something to say."""
        is_read = host.switches.numa_scheduler != "none"
        return is_read and bool(definition.numa) and definition.topology_policy != "none"

    def begin(self, client: Client, now: float) -> None:
        """Report for the first time, and by the clock from now on."""
        self._client = client
        self.tick(now)

    def tick(self, now: float) -> None:
        """Report what is so now."""
        self._host.set_timer(now + self._period_s, self._tenant, TIMER, _NODE)
        self._report()

    def look(self) -> None:
        """Report what has just changed, if that is wanted at once."""
        if self._at_once and self._client is not None:
            self._report()

    def _now(self) -> Document:
        kubelet = self._kubelet
        return topology_document(self._definition, kubelet.managers, [key.uid for key in kubelet.ledger.entries])

    def _report(self) -> None:
        if not self._is_writing and self._now() != self._written:
            self._is_writing = True
            self._tenant.spawn(self._write())

    async def _write(self) -> None:
        assert self._client is not None
        try:
            while (document := self._now()) != self._written:
                await self._put(self._client, document)
                self._written = document
                if not self._at_once:
                    return
        except (ApiError, UnknownOutcome) as error:
            log.warning("node.topology_failed", node=self._definition.name, reason=str(error))
        finally:
            self._is_writing = False

    async def _put(self, client: Client, document: Document) -> None:
        patch = {name: document[name] for name in ("attributes", "zones")}
        try:
            await client.patch(RESOURCE, Key("", self._definition.name), patch)
        except NotFound:
            await client.create(RESOURCE, document)
