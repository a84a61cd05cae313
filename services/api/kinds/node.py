"""Node: a machine that runs pods (core/v1)."""

from services.api.meta import AGE, NAME, NONE, Column, Condition, Document, ObjectView, Resource, View, condition_status


class Taint(View, frozen=True):
    """A taint, which repels pods from the node. `effect`: NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodePodPreemptionPolicy(View, frozen=True):
    """Owners, as label keys, that do not allow evictions of pods on this node for a resize (KEP-5836)."""

    disable_resize_preemption: tuple[str, ...] = ()


class NodeSpec(View, frozen=True):
    """Settings of a node, written by an administrator or the node lifecycle controller."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_preemption_policy: NodePodPreemptionPolicy | None = None


_NODE_INFO = {"boot_id": "bootID", "kubelet_version": "kubeletVersion", "kubelet_session": "kubeletSession"}


class NodeInfo(View, frozen=True, rename=_NODE_INFO):
    """Node info. `kubelet_session` is keplab's own field: the fence of kubelet-unbinding 4.5."""

    boot_id: str = ""
    kubelet_version: str = ""
    kubelet_session: str = ""


class ContainerImage(View, frozen=True):
    """An image on the node, with all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class AttachedVolume(View, frozen=True):
    """A volume attached to the node, by its unique name `kubernetes.io/csi/DRIVER^HANDLE`."""

    name: str = ""


class NodeStatus(View, frozen=True):
    """Status that the kubelet reports; quantities as text. The attach/detach controller writes `volumes_attached`."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    images: tuple[ContainerImage, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(ObjectView, frozen=True):
    """A node as components see it."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether condition Ready is True."""
        return condition_status(self.status.conditions, "Ready") == "True"


_ROLE = "node-role.kubernetes.io/"


def _status(node: Document, now: float) -> str:
    ready = next((c for c in node.get("status", {}).get("conditions", ()) if c.get("type") == "Ready"), None)
    # A condition Unknown says that the kubelet has been silent: the node is not ready.
    state = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}.get(ready["status"]) if ready else None
    return f"{state or 'Unknown'}{',SchedulingDisabled' if node.get('spec', {}).get('unschedulable') else ''}"


def _roles(node: Document, now: float) -> str:
    labels = node["metadata"].get("labels", {})
    return ",".join(sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))) or NONE


def _address(name: str, kind: str) -> Column:
    def address_of(addresses: list[Document]) -> str:
        return {each.get("type"): each.get("address") for each in addresses}.get(kind) or NONE

    return Column(name, "status.addresses", priority=1, default=NONE, show=address_of)


RESOURCE = Resource(
    Node,
    namespaced=False,
    short_names=("no",),
    subresources=("status", "proxy"),
    columns=(
        NAME,
        Column("Status", _status),
        Column("Roles", _roles),
        AGE,
        Column("Version", "status.nodeInfo.kubeletVersion"),
        _address("Internal-IP", "InternalIP"),
        _address("External-IP", "ExternalIP"),
        Column("OS-Image", "status.nodeInfo.osImage", priority=1, default="<unknown>"),
        Column("Kernel-Version", "status.nodeInfo.kernelVersion", priority=1, default="<unknown>"),
        Column("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", priority=1, default="<unknown>"),
    ),
    selectable_fields={"spec.unschedulable": lambda d: str(bool(d.get("spec", {}).get("unschedulable"))).lower()},
)
