"""Node: where pods run (core/v1)."""

from __future__ import annotations

from typing import Any

from services.api.meta import Condition, Document, ObjectMeta, View, find_condition
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource
from services.api.taints import Taint


class NodePodPreemptionPolicy(View, frozen=True):
    """Who, as label keys, does not want pods of this node evicted for the sake of a resize (KEP-5836)."""

    disable_resize_preemption: tuple[str, ...] = ()


class NodeSpec(View, frozen=True):
    """What an administrator or the node lifecycle controller wants of the node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_preemption_policy: NodePodPreemptionPolicy | None = None


class NodeInfo(View, frozen=True):
    """`kubelet_session` is ours: the fence of kubelet-unbinding 4.5."""

    boot_id: str = ""
    kubelet_version: str = ""
    kubelet_session: str = ""


class ContainerImage(View, frozen=True):
    """An image that is on the node, by all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeStatus(View, frozen=True):
    """What the kubelet reports. Quantities as text."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    images: tuple[ContainerImage, ...] = ()


class Node(View, frozen=True):
    """A node as rooms see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether condition Ready is True."""
        ready = find_condition(self.status.conditions, "Ready")
        return ready is not None and ready.status == "True"


def _cells(node: Document, now: float) -> list[Any]:
    status, meta = node.get("status", {}), node["metadata"]
    ready = next((c for c in status.get("conditions", ()) if c.get("type") == "Ready"), None)
    state = {"True": "Ready", "False": "NotReady"}.get(ready["status"], "Unknown") if ready else "Unknown"
    if ready and ready["status"] == "Unknown":
        state = "NotReady"
    if node.get("spec", {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(k[len(prefix) :] for k in meta.get("labels", {}) if k.startswith(prefix)))
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses", ())}
    info = status.get("nodeInfo", {})
    return [
        meta.get("name", ""), state, roles or "<none>", age(node, now), info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or "<none>", addresses.get("ExternalIP") or "<none>",
        info.get("osImage") or "<unknown>", info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]  # fmt: skip


RESOURCE = Resource(
    kind="Node",
    plural="nodes",
    singular="node",
    namespaced=False,
    short_names=("no",),
    subresources=("status",),
    view=Node,
    has_spec=True,
    columns=(
        NAME, Column("Status"), Column("Roles"), AGE, Column("Version"),
        Column("Internal-IP", priority=1), Column("External-IP", priority=1), Column("OS-Image", priority=1),
        Column("Kernel-Version", priority=1), Column("Container-Runtime", priority=1),
    ),
    cells=_cells,
    selectable_fields={"spec.unschedulable": lambda d: str(bool(d.get("spec", {}).get("unschedulable"))).lower()},
)  # fmt: skip
