"""Service (core/v1); stored only: no addresses are given out and no endpoints are made."""

from __future__ import annotations

from typing import Any

from services.api.meta import Document, ObjectMeta, View
from services.api.printing import AGE, NAME, age, labels_text
from services.api.resources import Column, Resource


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
    """A service as rooms see it: which pods belong together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


def _port(port: Document) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _cells(document: Document, now: float) -> list[Any]:
    spec = document.get("spec", {})
    return [
        document["metadata"].get("name", ""), spec.get("type", "ClusterIP"), spec.get("clusterIP") or "<none>",
        ",".join(spec.get("externalIPs", ())) or "<none>", ",".join(map(_port, spec.get("ports", ()))) or "<none>",
        age(document, now), labels_text(spec.get("selector")),
    ]  # fmt: skip


RESOURCE = Resource(
    kind="Service",
    plural="services",
    singular="service",
    short_names=("svc",),
    categories=("all",),
    subresources=("status",),
    view=Service,
    has_spec=True,
    columns=(
        NAME, Column("Type"), Column("Cluster-IP"), Column("External-IP"), Column("Port(s)"), AGE,
        Column("Selector", priority=1),
    ),
    cells=_cells,
)  # fmt: skip
