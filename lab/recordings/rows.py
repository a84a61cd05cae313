"""Values that a page shows of one object: read documents, return rows. Pure.

Requests are those that the scheduler counts: for a resized pod, the largest of desired, allocated and actual.
The resources that its node holds for it are those allocated, and none before the kubelet has seen the pod. Each
column is described in docs/reference/recordings.md.
Source: KEP-753, KEP-1287, KEP-4671, kubelet-unbinding 4.1, kep-5836 4.
"""

from functools import lru_cache
from sys import intern
from typing import Any, Final

import msgspec

from services.api.errors import UNREADABLE
from services.api.kinds.node import Node, Taint
from services.api.kinds.noderesourcetopology import NodeResourceTopology
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourceslice import ResourceSlice
from services.api.meta import Condition, Document, ObjectMeta, View, condition_status, find_condition
from services.api.podresources import Amounts, amounts, as_allocated, as_in_use, pod_requests
from services.api.quantity import milli
from services.api.times import parse_time

PODS, NODES = "pods", "nodes"
TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"
SLICES, CLAIMS = "resourceslices.resource.k8s.io", "resourceclaims.resource.k8s.io"
PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
"""Phases of pods; columns hold their positions in this tuple."""
POOLS: Final = ("", "in_flight", "active", "backoff", "error_backoff", "unschedulable", "gated")
"""Pools of the scheduling queue; columns hold their positions in this tuple."""
TERMINATING, NOMINATED, RESIZE_PENDING, EXCLUDED, IN_GROUP, WAS_UNBOUND, FROM_FACTS = (1 << i for i in range(7))
"""Flags of a pod. The last one: its row was made from the event log's facts, since its body was not recorded."""
NUMA_NODES: Final = 8
ZONE: Final = "topology.kubernetes.io/zone"
_NOT_DEVICES: Final = ("hugepages-", "attachable-volumes-")
_NO_NUMA: Final = (0,) * NUMA_NODES
_WAITING_WELL: Final = frozenset(("", "ContainerCreating", "PodInitializing"))


class PodRow(msgspec.Struct, frozen=True, gc=False):
    """A pod. `phase`: a position in PHASES. `cpu`: thousandths of a core, `memory`: bytes, `devices`: extended
    resources, all as requested; `held_cpu`, `held_memory`: resources that its node holds for it. `created`: seconds
    since the epoch. `node`, `nominated`: names of nodes, "" if there is none.
    """

    name: str
    namespace: str
    uid: str
    node: str = ""
    phase: int = 0
    priority: int = 0
    cpu: int = 0
    memory: int = 0
    devices: int = 0
    owner: str = ""
    flags: int = 0
    reason: str = ""
    created: float = 0.0
    nominated: str = ""
    held_cpu: int = 0
    held_memory: int = 0


class NodeRow(msgspec.Struct, frozen=True, gc=False):
    """A node. `ready`: 0 no, 1 yes, 2 unknown. `cpu`, `memory`, `pods` and `devices` (extended resources): allocatable
    amounts; `taints`: `key=value:Effect`, joined by commas.
    """

    name: str
    uid: str
    zone: str = ""
    ready: int = 2
    unschedulable: bool = False
    taints: str = ""
    cpu: int = 0
    memory: int = 0
    pods: int = 0
    devices: int = 0
    created: float = 0.0


class NumaRow(msgspec.Struct, frozen=True):
    """CPU of each NUMA node of a node, in thousandths of a core: allocatable and allocated."""

    node: str
    allocatable: tuple[int, ...] = _NO_NUMA
    allocated: tuple[int, ...] = _NO_NUMA


class SliceRow(msgspec.Struct, frozen=True):
    """Devices that one slice publishes for one node; `node` is "" if the slice is not for one node."""

    name: str
    driver: str
    pool: str
    generation: int
    node: str
    devices: tuple[str, ...]


class ClaimRow(msgspec.Struct, frozen=True):
    """Devices allocated to a claim: driver, pool and name of each."""

    namespace: str
    name: str
    devices: tuple[tuple[str, str, str], ...]


class _Head(View, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_DECODERS: Final[dict[type[Any], Any]] = {
    view: msgspec.json.Decoder(view) for view in (Pod, Node, NodeResourceTopology, ResourceSlice, ResourceClaim, _Head)
}


def _read(body: bytes | Document, view: type[Any]) -> Any:
    """Return the view of a body; None when it is of another kind."""
    try:
        return _DECODERS[view].decode(body) if isinstance(body, bytes) else msgspec.convert(body, view)
    except UNREADABLE:
        return None


def owners_of(body: bytes | Document) -> tuple[str, ...]:
    """Return the uids of an object's owners."""
    found = _read(body, _Head)
    return tuple(each.uid for each in found.metadata.owner_references) if found is not None else ()


def pod_row(document: bytes | Document) -> PodRow | None:
    """Return the row of a pod; None when the document is of another kind."""
    pod: Pod | None = _read(document, Pod)
    if pod is None:
        return None
    meta, spec, status = pod.metadata, pod.spec, pod.status
    try:
        in_use = as_in_use(pod)
        requests = pod_requests(in_use)
        # The pod itself, unless its node says otherwise: then it is what is allocated as well.
        held = requests if in_use is pod else pod_requests(as_allocated(pod))
        held = held if status.start_time else {}
    except ValueError:
        requests = held = {}
    owner = meta.controller
    flags = TERMINATING * (meta.deletion_timestamp is not None) | NOMINATED * bool(status.nominated_node_name)
    if condition_status(status.conditions, "PodResizePending") == "True":
        flags |= RESIZE_PENDING
    if not spec.node_name and any(each.exclude_seconds for each in status.unbind_history):
        flags |= EXCLUDED
    flags |= IN_GROUP * (spec.scheduling_group is not None) | WAS_UNBOUND * (status.unbind_count > 0)
    # What pods share is held once, not once a pod.
    return PodRow(
        name=meta.name,
        namespace=intern(meta.namespace),
        uid=meta.uid,
        node=intern(spec.node_name),
        phase=phase_number(status.phase),
        priority=spec.priority,
        cpu=requests.get("cpu", 0),
        memory=requests.get("memory", 0),
        devices=_devices(requests),
        owner=intern(f"{owner.kind}/{owner.name}") if owner is not None else "",
        flags=flags,
        reason=_reason(pod),
        created=_moment(meta.creation_timestamp),
        nominated=status.nominated_node_name,
        held_cpu=held.get("cpu", 0),
        held_memory=held.get("memory", 0),
    )


def pod_row_of_facts(namespace: str, name: str, uid: str, facts: Document, before: PodRow | None) -> PodRow:
    """Return the row of a pod whose body is not recorded, from its commit's line and the row before it."""
    requests = facts.get("requests")
    base = before if before is not None and before.uid == uid else PodRow(name, namespace, uid)
    if isinstance(requests, dict):
        sizes = {str(key): int(value) for key, value in requests.items()}
        cpu, memory = sizes.get("cpu", 0), sizes.get("memory", 0)
        base = msgspec.structs.replace(base, cpu=cpu, memory=memory, devices=_devices(sizes))
        if facts.get("phase") == "Running":
            base = msgspec.structs.replace(base, held_cpu=cpu, held_memory=memory)
    flags = FROM_FACTS | TERMINATING * bool(facts.get("deletion")) | NOMINATED * bool(facts.get("nominated"))
    flags |= (
        WAS_UNBOUND * bool(facts.get("unbind_count")) | (IN_GROUP & base.flags) | IN_GROUP * bool(facts.get("group"))
    )
    return msgspec.structs.replace(
        base,
        node=str(facts.get("node", "")),
        phase=phase_number(str(facts.get("phase", ""))),
        nominated=str(facts.get("nominated", "")),
        flags=flags,
        reason="",
    )


def node_row(document: bytes | Document) -> NodeRow | None:
    """Return the row of a node; None when the document is of another kind."""
    node: Node | None = _read(document, Node)
    if node is None:
        return None
    try:
        allocatable = amounts(node.status.allocatable)
    except ValueError:
        allocatable = {}
    ready = condition_status(node.status.conditions, "Ready")
    return NodeRow(
        name=node.metadata.name,
        uid=node.metadata.uid,
        zone=node.metadata.labels.get(ZONE, ""),
        ready={"True": 1, "False": 0}.get(ready, 2),
        unschedulable=node.spec.unschedulable,
        taints=",".join(_taint(each) for each in node.spec.taints),
        cpu=allocatable.get("cpu", 0),
        memory=allocatable.get("memory", 0),
        pods=allocatable.get("pods", 0),
        devices=_devices(allocatable),
        created=_moment(node.metadata.creation_timestamp),
    )


def node_row_of_facts(name: str, uid: str, facts: Document, before: NodeRow | None) -> NodeRow:
    """Return the row of a node whose body is not recorded, from its commit's line and the row before it."""
    base = before if before is not None and before.uid == uid else NodeRow(name, uid)
    sizes = facts.get("allocatable")
    if not isinstance(sizes, dict):
        return base
    allocatable = {str(key): int(value) for key, value in sizes.items()}
    return msgspec.structs.replace(
        base,
        cpu=allocatable.get("cpu", 0),
        memory=allocatable.get("memory", 0),
        pods=allocatable.get("pods", 0),
        devices=_devices(allocatable),
    )


def numa_row(document: bytes | Document) -> NumaRow | None:
    """Return the CPUs in a NodeResourceTopology; None when the document is of another kind."""
    topology: NodeResourceTopology | None = _read(document, NodeResourceTopology)
    if topology is None:
        return None
    allocatable, allocated = [0] * NUMA_NODES, [0] * NUMA_NODES
    for index, zone in enumerate(topology.zones[:NUMA_NODES]):
        cpu = next((each for each in zone.resources if each.name == "cpu"), None)
        if cpu is None:
            continue
        try:
            allocatable[index] = milli(cpu.allocatable)
            allocated[index] = allocatable[index] - milli(cpu.available)
        except ValueError:
            continue
    return NumaRow(topology.metadata.name, tuple(allocatable), tuple(allocated))


def slice_row(document: bytes | Document) -> SliceRow | None:
    """Return the devices that a ResourceSlice publishes; None when the document is of another kind."""
    resource_slice: ResourceSlice | None = _read(document, ResourceSlice)
    if resource_slice is None:
        return None
    spec = resource_slice.spec
    names = tuple(each.name for each in spec.devices)
    return SliceRow(
        resource_slice.metadata.name, spec.driver, spec.pool.name, spec.pool.generation, spec.node_name, names
    )


def claim_row(document: bytes | Document) -> ClaimRow | None:
    """Return the devices that a claim has for use, without those for administration only; None for another kind."""
    claim: ResourceClaim | None = _read(document, ResourceClaim)
    if claim is None:
        return None
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    devices = tuple((each.driver, each.pool, each.device) for each in results if not each.admin_access)
    return ClaimRow(claim.metadata.namespace, claim.metadata.name, devices)


def phase_number(phase: str) -> int:
    """Return the number of a phase; that of Pending if the phase is empty."""
    if not phase:
        return 0
    return PHASES.index(phase) if phase in PHASES else PHASES.index("Unknown")


def _devices(sizes: Amounts) -> int:
    return sum(size for name, size in sizes.items() if "/" in name and not name.startswith(_NOT_DEVICES))


def _taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


@lru_cache(maxsize=1024)
def _moment(text: str) -> float:
    # What is made in one second says the same.
    try:
        return parse_time(text) if text else 0.0
    except ValueError:
        return 0.0


def _reason(pod: Pod) -> str:
    """Return why the pod is as it is, in the word that `kubectl get` would show."""
    status = pod.status
    if status.reason:
        return status.reason
    scheduled: Condition | None = find_condition(status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return scheduled.reason
    for container_status in (*status.init_container_statuses, *status.container_statuses):
        waiting, ended = container_status.state.waiting, container_status.state.terminated
        if waiting is not None and waiting.reason not in _WAITING_WELL:
            return waiting.reason
        if ended is not None and ended.exit_code:
            return ended.reason
    return ""
