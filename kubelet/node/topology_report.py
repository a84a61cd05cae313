"""What a node says of its NUMA nodes: the NodeResourceTopology that NUMA-aware schedulers read. Pure.

`available` is what the resource managers would still give away, by NUMA node. Devices without topology belong to no
zone. Source: kubelet-unbinding 1.1 (`numa_scheduler`); kubernetes-sigs/scheduler-plugins, noderesourcetopology.
"""

from collections.abc import Iterable

from kubelet.managers.resource_managers import ResourceManagers
from kubelet.node.definition import NodeDefinition
from services.api.kinds.noderesourcetopology import COUNTED_PODS, POLICY, SCOPE
from services.api.meta import Document

RESOURCE = "noderesourcetopologies.topology.node.k8s.io"


def topology_document(definition: NodeDefinition, managers: ResourceManagers, counted: Iterable[str]) -> Document:
    """Return the whole object. `counted`: uids of the pods that have their share already."""
    zones = []
    for numa in range(len(definition.numa)):
        resources = []
        if managers.cpus is not None:
            free, usable = managers.cpus.left(numa)
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
