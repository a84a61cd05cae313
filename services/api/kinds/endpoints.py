"""Endpoints: all addresses behind a Service in one object (core/v1); EndpointSlices replace it (KEP-752)."""

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectReference, ObjectView, Resource, View

SHOWN_MAX = 3


class EndpointAddress(View, frozen=True):
    """One address behind the service."""

    ip: str = ""
    hostname: str = ""
    node_name: str | None = None
    target_ref: ObjectReference | None = None


class EndpointPort(View, frozen=True):
    """One port that every address of the subset has."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    app_protocol: str | None = None


class EndpointSubset(View, frozen=True):
    """Addresses that have the same ports."""

    addresses: tuple[EndpointAddress, ...] = ()
    not_ready_addresses: tuple[EndpointAddress, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


class Endpoints(ObjectView, frozen=True):
    """An Endpoints object as components see it; it has the name of its Service."""

    subsets: tuple[EndpointSubset, ...] = ()


def _host(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip


def _addresses_text(subsets: list[Document]) -> str:
    endpoints = [
        f"{_host(address.get('ip', ''))}:{port.get('port')}" if port else address.get("ip", "")
        for subset in subsets
        for port in subset.get("ports") or [None]
        for address in subset.get("addresses") or ()
    ]
    text, more = ",".join(endpoints[:SHOWN_MAX]), len(endpoints) - SHOWN_MAX
    return f"{text} + {more} more..." if more > 0 else text


RESOURCE = Resource(
    Endpoints,
    plural="endpoints",
    short_names=("ep",),
    deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    columns=(
        NAME,
        Column("Endpoints", "subsets", default=NONE, show=lambda each: _addresses_text(each) if each else NONE),
        AGE,
    ),
)
