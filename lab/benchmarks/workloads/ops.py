"""Steps of a workload; upstream calls a step an opcode."""

import sys
from dataclasses import dataclass, field
from typing import Final, Literal

from lab.benchmarks.workloads import templates
from services.api.meta import Document

Count = int | Literal["nodes", "init_pods", "pods", "namespaces"]
UPSTREAM_NODES_MAX: Final = 15_000
SCALED_PODS_MAX: Final = 30_000
Volume = Literal["", "in-tree", "csi"]


@dataclass(frozen=True)
class Size:
    """Size of a workload: number of nodes, of pods created first, and of measured pods."""

    nodes: int
    init_pods: int
    pods: int

    @property
    def namespaces(self) -> int:
        """Number of namespaces among which a workload distributes its first pods: one per 50 nodes."""
        return max(1, self.nodes // 50)

    def count(self, of: Count) -> int:
        """Return a count as a number."""
        if isinstance(of, int):
            return of
        found: int = getattr(self, of)
        return found


@dataclass(frozen=True)
class CreateNodes:
    """Nodes from one template; every node has its name as `kubernetes.io/hostname`.

    `zones` are assigned in turn. `name`: of the only node, instead of numbered names. `attachable`: volumes
    per node, by CSI driver.
    """

    count: Count = "nodes"
    template: Document = field(default_factory=lambda: templates.NODE)
    zones: tuple[str, ...] = ()
    name: str = ""
    attachable: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class CreateNamespaces:
    """Namespaces `<prefix>-0`, `<prefix>-1` and so on."""

    prefix: str
    count: Count = 1
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class CreateObject:
    """One object of another kind; `plural` is its resource."""

    plural: str
    document: Document
    namespace: str = ""


@dataclass(frozen=True)
class CreateDevices:
    """A device class, and the devices of a driver: one pool per node, in one slice.

    `device`: a device as in a slice, without a name; `selector`: CEL expression of the class, empty for none.
    """

    driver: str
    per_node: int
    device: Document = field(default_factory=dict)
    class_name: str = "gpu"
    selector: str = ""


@dataclass(frozen=True)
class CreatePods:
    """Pods from one template, and a wait until all have a node.

    `namespace`: empty for one of its own. `is_dealt`: pods are distributed over the namespaces
    `<namespace>-0` … in turn. `is_measured`: the figures are of these pods. `may_wait`: some or all cannot be
    scheduled, so that the step does not wait. `volume`: each pod brings a claim that is already bound to a
    volume of this sort. `claims`: each pod brings a ResourceClaim of each of these specs, or shares it among
    `pods_per_claim` pods. `per_s`: pods created per second, one after the other; 0: all at once.
    """

    template: Document
    count: Count = "pods"
    namespace: str = ""
    is_dealt: bool = False
    is_measured: bool = False
    may_wait: bool = False
    volume: Volume = ""
    claims: tuple[Document, ...] = ()
    pods_per_claim: int = 1
    per_s: float = 0.0


@dataclass(frozen=True)
class DeferResizes:
    """Pods already bound to the workload's nodes, distributed in turn, whose resize the node defers.

    `template`: has the desired requests; `allocated`: the resources that the pods have.
    """

    template: Document
    allocated: Document
    count: Count = "init_pods"
    namespace: str = "wishing"


@dataclass(frozen=True)
class Churn:
    """Create one object of each template in every interval from here on; `recreate`: delete the previous ones
    first.

    `templates`: `(resource, document)`.
    """

    templates: tuple[tuple[str, Document], ...]
    interval_s: float
    recreate: bool = False


@dataclass(frozen=True)
class DeletePods:
    """Delete the pods of an earlier step one after the other from here on. `of`: the step's namespace."""

    of: str
    per_s: float


Op = CreateNodes | CreateDevices | CreateNamespaces | CreateObject | CreatePods | DeferResizes | Churn | DeletePods


@dataclass(frozen=True)
class Workload:
    """A named workload. `sizes`: upstream's own, smallest first; other numbers of nodes are scaled from the nearest."""

    name: str
    what: str
    ops: tuple[Op, ...]
    sizes: tuple[Size, ...]

    @property
    def is_scaled(self) -> bool:
        """Whether the number of nodes can be chosen."""
        return any(isinstance(op, CreateNodes) and op.count == "nodes" for op in self.ops)

    def size(self, nodes: int, *, init_pods: int | None = None, pods: int | None = None) -> Size:
        """Return the size for a number of nodes; `init_pods` and `pods` are scaled unless given.

        Above upstream's largest number of nodes pods are scaled no further than to upstream's largest number.
        """
        near = min(self.sizes, key=lambda size: abs(size.nodes - nodes))
        by = nodes / near.nodes if self.is_scaled else 1
        most = SCALED_PODS_MAX if nodes > UPSTREAM_NODES_MAX else sys.maxsize
        return Size(
            nodes if self.is_scaled else near.nodes,
            min(most, round(near.init_pods * by)) if init_pods is None else init_pods,
            min(most, max(1, round(near.pods * by))) if pods is None else pods,
        )
