"""Endpoint slices: addresses of one family, each port named once (discovery.k8s.io/v1).

The texts are upstream's (`pkg/apis/discovery/validation`).
"""

from apiserver_fake.registry.strategies.endpoints import is_own
from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.addresses import ordinary, version_of
from apiserver_fake.registry.validation.fields import Field, Report, Struct, unique
from apiserver_fake.registry.validation.formats import (
    Causes,
    address,
    faults,
    invalid,
    label,
    label_value,
    labels,
    qualified_name,
    required,
    subdomain,
)
from services.api.meta import Document

ENDPOINTS_MAX, ADDRESSES_MAX, PORTS_MAX = 1000, 100, 20000
FAMILIES = {"IPv4": 4, "IPv6": 6}


def _family(document: Document, at: str, report: Report) -> Causes:
    report.scope = document.get("addressType") if not is_own(document) else None
    return ()


HINTS_MAX = 8


def _address(value: str, path: str, report: Report) -> Causes:
    if (version := FAMILIES.get(report.scope)) is not None:
        text = f"must be a valid IPv{version} address"
        wrong = [*address(path, value)]
        if not wrong and version_of(value) != version:
            wrong = [invalid(path, value, text)]
        yield from wrong
        yield from ordinary(path, value)
    elif report.scope == "FQDN":
        yield from _domain_name(value, path)
    elif report.scope is None:  # where the API server itself listens
        yield from subdomain(path, value)


def _domain_name(value: str, path: str) -> Causes:
    name = value.removesuffix(".")
    if not value:
        yield required(path)
    elif wrong := faults(subdomain, name):
        yield invalid(path, name, ",".join(wrong))
    elif "." not in name:
        yield invalid(path, name, "should be a domain with at least two segments separated by dots")
    else:
        for part in name.split("."):
            if wrong := faults(label, part):
                yield invalid(path, part, ",".join(wrong))


def _addresses(endpoint: Document, at: str, report: Report) -> Causes:
    if not endpoint.get("addresses"):
        yield required(f"{at}addresses", "must contain at least 1 address")


def _zone(zone: Document, at: str, report: Report) -> Causes:
    yield from label_value(f"{at}name", zone.get("name") or "")


def _node(node: Document, at: str, report: Report) -> Causes:
    yield from subdomain(f"{at}name", node.get("name") or "")


HINTS = Struct(
    Field("forZones", most=HINTS_MAX, items=Struct(unique("name"), _zone)),
    Field("forNodes", most=HINTS_MAX, items=Struct(unique("name"), _node)),
)
ENDPOINT = Struct(
    _addresses,
    Field("addresses", most=ADDRESSES_MAX, items=Field(rule=_address)),
    Field("nodeName", rule=lambda name, path, report: subdomain(path, name)),
    Field("deprecatedTopology", form=labels),
    Field("hostname", rule=lambda name, path, report: label(path, name)),
    Field("hints", struct=HINTS),
)
PORT = Struct(
    Field("name", default="", form=label),
    unique("name"),
    Field("protocol", default="TCP", enum=("SCTP", "TCP", "UDP")),
    Field("appProtocol", rule=lambda name, path, report: qualified_name(path, name)),
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


STRATEGIES = {"endpointslices.discovery.k8s.io": declare_strategy(FIELDS, on_create=_create, on_update=_update)}
