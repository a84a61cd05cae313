"""EndpointSlice: a part of the endpoints of a Service (discovery.k8s.io/v1)."""

from collections.abc import Sequence

from services.api.meta import AGE, NAME, Column, Document, ObjectReference, ObjectView, Resource, View

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
UNSET = "<unset>"
SHOWN_MAX = 3


class EndpointConditions(View, frozen=True):
    """Conditions of an endpoint: ready for traffic, able to serve, terminating."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Place(View, frozen=True):
    """Name of a zone or node that an endpoint is meant for."""

    name: str = ""


class EndpointHints(View, frozen=True):
    """Zones and nodes whose traffic should prefer the endpoint."""

    for_zones: tuple[Place, ...] = ()
    for_nodes: tuple[Place, ...] = ()


class Endpoint(View, frozen=True):
    """One backend of the service."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    target_ref: ObjectReference | None = None
    node_name: str | None = None
    zone: str | None = None
    hints: EndpointHints | None = None


class EndpointPort(View, frozen=True):
    """A port of every endpoint of the slice."""

    name: str = ""
    protocol: str = "TCP"
    port: int | None = None
    app_protocol: str | None = None


class EndpointSlice(ObjectView, frozen=True):
    """An EndpointSlice as components see it."""

    address_type: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


def _some(shown: Sequence[str]) -> str:
    text, more = ",".join(shown[:SHOWN_MAX]) or UNSET, len(shown) - SHOWN_MAX
    return f"{text} + {more} more..." if more > 0 else text


def _ports(ports: list[Document]) -> str:
    return _some([str(each.get("port") or each.get("name") or "*") for each in ports])


def _addresses(endpoints: list[Document]) -> str:
    return _some([",".join(each.get("addresses") or ()) for each in endpoints])


RESOURCE = Resource(
    EndpointSlice,
    "discovery.k8s.io",
    columns=(
        NAME,
        Column("AddressType", "addressType"),
        Column("Ports", "ports", default=UNSET, show=_ports),
        Column("Endpoints", "endpoints", default=UNSET, show=_addresses),
        AGE,
    ),
)
