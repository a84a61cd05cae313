"""Service (core/v1); stored only: no addresses are given out and no endpoints are made."""

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectMeta, Resource, View
from services.api.printing import joined, labels_text


class ServicePort(View, frozen=True):
    """A port; only how many there are matters to anybody."""

    port: int = 0


class ServiceSpec(View, frozen=True):
    """`selector` empty: the service has no pods of its own."""

    type: str = "ClusterIP"
    selector: dict[str, str] = {}
    ports: tuple[ServicePort, ...] = ()
    allocate_load_balancer_node_ports: bool = True


class Service(View, frozen=True):
    """A service as components see it: which pods belong together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


def _port(port: Document) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _ports(ports: list[Document]) -> str:
    return joined([_port(port) for port in ports])


RESOURCE = Resource(
    view=Service,
    short_names=("svc",),
    categories=("all",),
    subresources=("status",),
    has_spec=True,
    columns=(
        NAME,
        Column("Type", "spec.type", default="ClusterIP"),
        Column("Cluster-IP", "spec.clusterIP", default=NONE),
        Column("External-IP", "spec.externalIPs", default=NONE, show=joined),
        Column("Port(s)", "spec.ports", default=NONE, show=_ports),
        AGE,
        Column("Selector", "spec.selector", priority=1, default=NONE, show=labels_text),
    ),
)
