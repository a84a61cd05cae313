"""What a workload does, step by step; upstream calls a step an opcode."""

from dataclasses import dataclass, field
from typing import Literal

from lab.benchmarks.workloads import templates
from services.api.meta import Document

Count = int | Literal["nodes", "init_pods", "pods", "namespaces"]
Volume = Literal["", "in-tree", "csi"]


@dataclass(frozen=True)
class Size:
    """How big: nodes, pods that are there first, pods that are measured."""

    nodes: int
    init_pods: int
    pods: int

    @property
    def namespaces(self) -> int:
        """Over how many namespaces first pods are dealt where a workload deals them: one for 50 nodes."""
        return max(1, self.nodes // 50)

    def count(self, of: Count) -> int:
        """Return how many that is."""
        if isinstance(of, int):
            return of
        found: int = getattr(self, of)
        return found


@dataclass(frozen=True)
class CreateNodes:
    """Nodes of one template; every node has its name as `kubernetes.io/hostname`.

    `zones` are dealt out in turn. `name`: of the one node there is, instead of numbered ones. `attachable`:
    volumes a node takes, by CSI driver.
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
    """A device class, and devices that a driver publishes: a pool of each node, in one slice.

    `device`: a device as slices have it, without a name; `selector`: of the class, in CEL, "" for none.
    """

    driver: str
    per_node: int
    device: Document = field(default_factory=dict)
    class_name: str = "gpu"
    selector: str = ""


@dataclass(frozen=True)
class CreatePods:
    """Pods of one template, and waiting until all have a node.

    `namespace` "": one of its own. `is_dealt`: over namespaces `<namespace>-0` … in turn. `is_measured`: these
    are what the figures are of. `may_wait`: some or all cannot be scheduled, so that they are not waited for.
    `volume`: each pod brings a claim that is bound to a volume of this sort already. `claims`: each pod brings a
    ResourceClaim of each of these specs, or shares it with as many pods as `pods_per_claim` says. `per_s`: how many are
    created in a second, one after the other; 0: all at once.
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
    """Pods that are on the workload's nodes already, dealt out in turn, whose resize the node defers.

    `template` asks for what they request, `allocated` is what they have.
    """

    template: Document
    allocated: Document
    count: Count = "init_pods"
    namespace: str = "wishing"


@dataclass(frozen=True)
class Churn:
    """From here on, create one object of each template in every interval; `recreate`: and delete the last one.

    `templates`: `(resource, document)`.
    """

    templates: tuple[tuple[str, Document], ...]
    interval_s: float
    recreate: bool = False


@dataclass(frozen=True)
class DeletePods:
    """From here on, delete the pods of an earlier step one after the other. `of`: the step's namespace."""

    of: str
    per_s: float


Op = CreateNodes | CreateDevices | CreateNamespaces | CreateObject | CreatePods | DeferResizes | Churn | DeletePods


@dataclass(frozen=True)
class Workload:
    """`sizes`: upstream's own, smallest first; other numbers of nodes are scaled from the nearest."""

    name: str
    what: str
    ops: tuple[Op, ...]
    sizes: tuple[Size, ...]

    @property
    def is_scaled(self) -> bool:
        """Whether the number of nodes is free."""
        return any(isinstance(op, CreateNodes) and op.count == "nodes" for op in self.ops)

    def size(self, nodes: int, *, init_pods: int | None = None, pods: int | None = None) -> Size:
        """Return the size for so many nodes; what is given is kept as it is."""
        near = min(self.sizes, key=lambda size: abs(size.nodes - nodes))
        by = nodes / near.nodes if self.is_scaled else 1
        return Size(
            nodes if self.is_scaled else near.nodes,
            round(near.init_pods * by) if init_pods is None else init_pods,
            max(1, round(near.pods * by)) if pods is None else pods,
        )
