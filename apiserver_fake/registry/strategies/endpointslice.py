"""Endpoint slices: addresses of one family, each port named once (discovery.k8s.io/v1).

The texts are upstream's (`pkg/apis/discovery/validation`).
"""

from ipaddress import IPv4Address, IPv6Address

from apiserver_fake.registry.strategies.endpoints import is_own
from apiserver_fake.strategy import WriteContext, declared
from apiserver_fake.validation.fields import Field, Report, Struct, not_repeated, unique
from apiserver_fake.validation.formats import Causes, invalid, label, label_value, required, subdomain
from services.api.meta import Document

ENDPOINTS_MAX, ADDRESSES_MAX, PORTS_MAX = 1000, 100, 20000
FAMILIES: dict[str, type[IPv4Address] | type[IPv6Address]] = {"IPv4": IPv4Address, "IPv6": IPv6Address}


def _family(document: Document, at: str, report: Report) -> Causes:
    report.scope = document.get("addressType") if not is_own(document) else None
    return ()


def _address(address: str, path: str, report: Report) -> Causes:
    yield from not_repeated(address, path, report)
    family = FAMILIES.get(report.scope)
    if family is None:  # a domain name, or where the API server itself listens
        yield from subdomain(path, address)
        return
    try:
        found = family(address)
    except ValueError:
        yield invalid(path, address, f"must be a valid {report.scope} address")
        return
    if found.is_unspecified or found.is_loopback or found.is_link_local or found.is_multicast:
        kinds = (("unspecified", found.is_unspecified), ("in the loopback range", found.is_loopback))
        kind = next((text for text, is_so in kinds if is_so), "in the link-local range")
        yield invalid(path, address, f"may not be {kind}" + (f" ({found})" if kind == "unspecified" else ""))


def _addresses(endpoint: Document, at: str, report: Report) -> Causes:
    if not endpoint.get("addresses"):
        yield required(f"{at}addresses", "must contain at least 1 address")


ENDPOINT = Struct(
    _addresses,
    Field("addresses", most=ADDRESSES_MAX, items=Field(rule=_address)),
    Field("nodeName", form=subdomain),
    Field("zone", form=label_value),
    Field("hostname", form=label),
)
PORT = Struct(
    unique("name"), Field("name", default="", form=label), Field("protocol", default="TCP", enum=("SCTP", "TCP", "UDP"))
)
FIELDS = Struct(
    Field("addressType", required=True, enum=("FQDN", "IPv4", "IPv6"), is_immutable=True),
    _family,
    Field("endpoints", most=ENDPOINTS_MAX, items=ENDPOINT),
    Field("ports", most=PORTS_MAX, items=PORT),
)
_COUNTED = ("endpoints", "ports", "addressType")


def _create(new: Document, ctx: WriteContext) -> None:
    new["metadata"] = {**new["metadata"], "generation": 1}


def _update(old: Document, new: Document, ctx: WriteContext) -> None:
    """Count the changes of everything but labels and annotations that only say how the slice came about."""
    before, after = old["metadata"], new["metadata"]
    is_same = all(old.get(name) == new.get(name) for name in _COUNTED)
    is_same = is_same and all(before.get(name) == after.get(name) for name in ("labels", "annotations"))
    generation = int(before.get("generation") or 0) + (not is_same)
    new["metadata"] = {**after, "generation": generation}


STRATEGIES = {"endpointslices.discovery.k8s.io": declared(FIELDS, on_create=_create, on_update=_update)}
