"""Writer of the NodeResourceTopology that NUMA-aware schedulers read.

It writes every `nrt.refresh_s`, or with `numa_scheduler=oracle` at every change. One write at a time;
changes made meanwhile are in the next write. A write that failed is made again by the next tick.
`available` is what the resource managers could still allocate, by NUMA node. Devices without topology
belong to no zone. Source: kubelet-unbinding 1.1 (`numa_scheduler`); kubernetes-sigs/scheduler-plugins,
noderesourcetopology.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from kubelet.admission.predicates import Ledger
from kubelet.agent.node import NodeShell
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.node.definition import NodeDefinition
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.kinds.noderesourcetopology import COUNTED_PODS, POLICY, SCOPE
from services.api.meta import Document, Key

RESOURCE: Final = "noderesourcetopologies.topology.node.k8s.io"
TIMER: Final = "topology"
log = structlog.get_logger()


def topology_document(definition: NodeDefinition, managers: ResourceManagers, counted: Iterable[str]) -> Document:
    """Return the whole object. `counted`: uids of the pods whose share is already subtracted."""
    zones = []
    for numa in range(len(definition.numa)):
        resources = []
        if managers.cpus is not None:
            free, usable = managers.cpus.free_and_usable(numa)
            resources.append(_resource("cpu", definition.numa[numa].cpus, usable, free))
        if managers.memory is not None:
            total, left = definition.memory_by_numa().total[numa], managers.memory.free[numa]
            usable_now = managers.memory.allocatable[numa]
            resources += [_resource(kind, total[kind], usable_now[kind], left[kind]) for kind in sorted(left)]
        for name, (all_healthy, free_ones) in managers.devices.counts_by_numa().items():
            resources.append(_resource(name, all_healthy[numa], all_healthy[numa], free_ones[numa]))
        zones.append({"name": f"node-{numa}", "type": "Node", "resources": resources})
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": definition.name},
        "attributes": [
            {"name": POLICY, "value": definition.topology_policy},
            {"name": SCOPE, "value": definition.topology_scope},
            {"name": COUNTED_PODS, "value": ",".join(sorted(counted))},
        ],
        "zones": zones,
    }


def _resource(name: str, capacity: int, allocatable: int, available: int) -> Document:
    return {"name": name, "capacity": str(capacity), "allocatable": str(allocatable), "available": str(available)}


def is_wanted(node: NodeShell) -> bool:
    """Whether a scheduler reads the object and the node aligns pods to NUMA nodes."""
    is_read, definition = node.switches.numa_scheduler != "none", node.definition
    return is_read and bool(definition.numa) and definition.topology_policy != "none"


class TopologyReporting:
    """The reports of one node that has NUMA nodes and aligns pods to them."""

    def __init__(self, node: NodeShell, managers: ResourceManagers, ledger: Ledger) -> None:
        switches = node.switches
        self._node, self._managers, self._ledger = node, managers, ledger
        self._at_once = switches.numa_scheduler == "oracle"
        self._period_s = switches.topology_period_s
        self._has_begun = self._is_writing = False
        self._written: Document | None = None

    def tick(self, now: float) -> None:
        """Report the present state, and again after each period."""
        self._has_begun = True
        self._node.set_timer(now + self._period_s, TIMER)
        self._report()

    def look(self) -> None:
        """Report a change at once, if the switch asks for it."""
        if self._at_once and self._has_begun:
            self._report()

    def _now(self) -> Document:
        return topology_document(self._node.definition, self._managers, [key.uid for key in self._ledger.entries])

    def _report(self) -> None:
        if not self._is_writing and self._now() != self._written:
            self._is_writing = True
            self._node.spawn(self._write())

    async def _write(self) -> None:
        try:
            while (document := self._now()) != self._written:
                await self._put(document)
                self._written = document
                if not self._at_once:
                    return
        except (ApiError, UnknownOutcome) as error:
            log.warning("node.topology_failed", node=self._node.name, reason=str(error))
        finally:
            self._is_writing = False

    async def _put(self, document: Document) -> None:
        patch = {name: document[name] for name in ("attributes", "zones")}
        try:
            await self._node.client.patch(RESOURCE, Key("", self._node.name), patch)
        except NotFound:
            await self._node.client.create(RESOURCE, document)
