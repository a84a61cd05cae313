"""A kubelet's reports about its node: the Node document, its status and its Lease. Pure.

Source: kubelet 2.1, 2.2; kubelet-unbinding 4.5 (kubeletSession).
"""

from collections.abc import Mapping

from kubelet.managers.device_calls import is_extended
from kubelet.node.definition import NodeDefinition
from kubelet.runtime.images import NodeImages
from services.api.kinds.node import NodeStatus
from services.api.meta import Document
from services.api.release import FOLLOWED, RELEASES
from services.api.times import format_micro_time, format_time

LEASE_NAMESPACE = "kube-node-lease"
STATUS_PERIOD_S = 10.0
"""Seconds within which changes of a node's status are written together once (kubelet 1)."""
REPORT_PERIOD_S = 300.0
"""Seconds between two writes of an unchanged status (kubelet 1)."""


_PRESSURES = {
    "MemoryPressure": (
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    ),
    "DiskPressure": (
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    ),
    "PIDPressure": (
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ),
}
"""Reason and message of each condition, when it is False and when it is True.

The Event when it turns has the same reason with `Node` for `Kubelet` (upstream `recordNodeStatusEvent`).
"""


def node_labels(definition: NodeDefinition) -> dict[str, str]:
    """Return the labels a node registers with."""
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": definition.name,
        "kubernetes.io/os": "linux",
    }
    if definition.zone:
        labels["topology.kubernetes.io/zone"] = definition.zone
    if definition.region:
        labels["topology.kubernetes.io/region"] = definition.region
    return labels | definition.labels


CONTROLLED: Document = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
"""The annotation of a node whose volumes the attach/detach controller attaches."""


def node_document(definition: NodeDefinition, *, is_controlled: bool = False, pod_network: str = "") -> Document:
    """Return the Node to register; `is_controlled`: the attach/detach controller attaches its volumes.

    `pod_network`: the first three numbers of the addresses that its pods get, which no controller allocates here.
    """
    spec: Document = {}
    if pod_network:
        spec["podCIDR"] = f"{pod_network}.0/24"
        spec["podCIDRs"] = [spec["podCIDR"]]
    if definition.taints:
        spec["taints"] = [
            {"key": t.key, "effect": t.effect, **({"value": t.value} if t.value else {})} for t in definition.taints
        ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": definition.name,
            "labels": node_labels(definition),
            **({"annotations": dict(CONTROLLED)} if is_controlled else {}),
        },
        "spec": spec,
        "status": {"capacity": definition.capacity(), "allocatable": definition.allocatable()},
    }


def annotation_change(stored: Document, *, is_controlled: bool) -> Document | None:
    """Return the change to the annotations of an existing Node; None if no change is needed."""
    held = stored["metadata"].get("annotations") or {}
    if is_controlled:
        return None if CONTROLLED.items() <= held.items() else CONTROLLED
    return dict.fromkeys(CONTROLLED) if CONTROLLED.keys() & held.keys() else None


class NodeReport:
    """The status of one node and when its conditions last turned."""

    def __init__(
        self,
        definition: NodeDefinition,
        *,
        session: str,
        address: str,
        port: int,
        release: str = FOLLOWED,
        declared: tuple[str, ...] | None = None,
    ) -> None:
        self.definition = definition
        self.version = RELEASES[release]
        self._declared = declared
        self.session, self.boot_id = session, ""
        self.address, self.port = address, port
        self._since: dict[str, tuple[str, str]] = {}
        self.has_disk_error = False
        self.pressures: tuple[str, ...] = ()
        self.news: list[tuple[str, str]] = [("Starting", "Starting kubelet.")]
        """Reasons and messages of Events that are still to be recorded of the node."""
        self._is_cordoned = False
        self.reasons: tuple[str, ...] = ()
        """Why the node is not Ready; none: it is."""
        present = NodeImages(definition.present_images())
        self.images: tuple[tuple[str, int], ...] = present.status_images()
        self.volumes_in_use: tuple[str, ...] | None = None
        """The attachable volumes that pods mount or are about to; None: nothing is said of them."""
        self.devices: Mapping[str, tuple[int, int]] = {}
        """(Capacity, allocatable) of the resources of device plugins."""
        self.advertised: Mapping[str, str] = {}
        """Extended resources that others put into the Node's capacity: allocatable as they are."""
        self._withdrawn: tuple[str, ...] = ()
        """Extended resources that are no longer in the Node's capacity, and still in its allocatable."""

    def _condition(self, kind: str, status: str, reason: str, message: str, event: str, wall_s: float) -> Document:
        now = format_time(wall_s)
        held = self._since.get(kind)
        if held is None or held[0] != status:
            held = self._since[kind] = (status, now)
            self._add_news(event)
        elif not held[1]:
            # Whoever made the Node said so without a time, as snapshots of other tools do.
            held = self._since[kind] = (status, now)
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": held[1],
        }

    def observe(self, kind: str, status: str, since: str) -> None:
        """Take over a condition from the API, so that an equal one keeps its transition time.

        `since`: "" if the API shows none.
        """
        self._since[kind] = (status, since)

    def resources_seen(self, shown: NodeStatus) -> bool:
        """Take over the Node's extended resources in capacity that belong neither to the machine nor to a plugin.

        Returns whether allocatable has to change for it. Source: upstream `pkg/kubelet/nodestatus/setters.go`
        (MachineInfo), the task "Advertise Extended Resources for a Node".
        """
        own = {*self.definition.capacity(), *self.devices}
        others = {name: text for name, text in shown.capacity.items() if name not in own and is_extended(name)}
        left = (name for name in shown.allocatable if name not in own and name not in others and is_extended(name))
        self.advertised, self._withdrawn = others, tuple(left)
        return bool(self._withdrawn) or not others.items() <= shown.allocatable.items()

    def set_cordoned(self, is_cordoned: bool) -> None:
        """Take over whether the Node is unschedulable; a kubelet that starts assumes schedulable, as upstream's.

        Source: upstream `pkg/kubelet/kubelet_node_status.go` (`recordNodeSchedulableEvent`).
        """
        if is_cordoned != self._is_cordoned:
            self._is_cordoned = is_cordoned
            self._add_news("NodeNotSchedulable" if is_cordoned else "NodeSchedulable")

    def _add_news(self, event: str) -> None:
        self.news.append((event, f"Node {self.definition.name} status is now: {event}"))

    def _allocatable(self) -> Document:
        devices = {name: str(n) for name, (_, n) in self.devices.items()}
        return {**self.definition.allocatable(), **self.advertised, **dict.fromkeys(self._withdrawn), **devices}

    def status(self, wall_s: float) -> Document:
        """Return the whole status; `lastHeartbeatTime` is now."""
        conditions = []
        for kind, words in _PRESSURES.items():
            has_failed = kind == "DiskPressure" and self.has_disk_error
            is_true = kind in self.pressures or has_failed
            reason, message = words[is_true]
            event = "Node" + reason.removeprefix("Kubelet")
            if has_failed:
                reason, message = "CheckpointFailed", "the runtime's record cannot be written"
            conditions.append(self._condition(kind, str(is_true), reason, message, event, wall_s))
        ready = ("True", "KubeletReady", "kubelet is posting ready status", "NodeReady")
        if reasons := self.reasons:
            text = reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]"  # as Go spells several errors
            ready = ("False", "KubeletNotReady", text, "NodeNotReady")
        conditions.append(self._condition("Ready", *ready, wall_s))
        status: Document = {
            "capacity": self.definition.capacity() | {name: str(n) for name, (n, _) in self.devices.items()},
            "allocatable": self._allocatable(),
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.definition.name},
            ],
            "nodeInfo": {
                "machineID": self.definition.name,
                "systemUUID": self.definition.name,
                "bootID": self.boot_id,
                "kernelVersion": "emulated",
                "osImage": "keplab",
                "containerRuntimeVersion": "keplab://0.1.0",
                "kubeletVersion": self.version,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "kubeletSession": self.session,
            },
        }
        if not self.definition.supplemental_groups_policy:
            status["features"] = {"supplementalGroupsPolicy": False}
        # Null takes away what another wrote, or a former kubelet with other gates.
        status["declaredFeatures"] = list(self._declared) if self._declared else None
        if self.images:
            status["images"] = [{"names": [name], "sizeBytes": size} for name, size in self.images]
        if self.volumes_in_use is not None:
            status["volumesInUse"] = list(self.volumes_in_use)
        if self.port > 0:
            status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self.port}}
        return status


def lease_document(node: str, node_uid: str, duration_s: int, wall_s: float) -> Document:
    """Return the node's Lease, owned by its Node."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}],
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": duration_s, "renewTime": format_micro_time(wall_s)},
    }
