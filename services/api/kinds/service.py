"""Service (core/v1): a set of pods; nothing routes its address."""

import msgspec

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectView, Resource, View
from services.api.printing import join_values, labels_text


class ServicePort(View, frozen=True):
    """A port of the service and its target port on the pods; target None: the same number."""

    name: str = ""
    protocol: str = "TCP"
    port: int = 0
    target_port: int | str | None = None
    app_protocol: str | None = None


class ServiceSpec(View, frozen=True):
    """Spec of a service. `selector` empty: the service selects no pods."""

    type: str = "ClusterIP"
    selector: dict[str, str] = {}
    ports: tuple[ServicePort, ...] = ()
    allocate_load_balancer_node_ports: bool = True
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    publish_not_ready_addresses: bool = False
    traffic_distribution: str = ""


class Service(ObjectView, frozen=True):
    """A service as components see it."""

    spec: ServiceSpec = ServiceSpec()


def _port(port: Document) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def _external(document: Document, now_s: float) -> str:
    """Return the addresses from outside, as upstream's `getServiceExternalIP`."""
    spec, kind = document.get("spec", {}), document.get("spec", {}).get("type", "ClusterIP")
    own = list(spec.get("externalIPs") or ())
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    if kind != "LoadBalancer":
        return join_values(own)
    points = (document.get("status", {}).get("loadBalancer") or {}).get("ingress") or ()
    given = dict.fromkeys(each.get("ip") or each.get("hostname") or "" for each in points)
    return ",".join([*given, *own]) or "<pending>"


_COLUMNS = (
    NAME,
    Column("Type", "spec.type", default="ClusterIP"),
    Column("Cluster-IP", "spec.clusterIP", default=NONE),
    Column("External-IP", _external),
    Column("Port(s)", "spec.ports", default=NONE, show=lambda ports: join_values([*map(_port, ports)])),
    AGE,
    Column("Selector", "spec.selector", priority=1, default=NONE, show=labels_text),
)
RESOURCE = Resource(
    Service,
    short_names=("svc",),
    categories=("all",),
    subresources=("status", "proxy"),
    columns=_COLUMNS,
    selectable_fields={
        "spec.clusterIP": lambda d: d.get("spec", {}).get("clusterIP", ""),
        "spec.type": lambda d: d.get("spec", {}).get("type", ""),
    },
)
