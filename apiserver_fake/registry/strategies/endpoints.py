"""Endpoints (core/v1): subsets of addresses with the same ports, with the texts of `pkg/apis/core/validation`."""

from apiserver_fake.registry.strategy import declare_strategy
from apiserver_fake.registry.validation.addresses import ordinary
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import Causes, address, label, qualified_name, required, subdomain
from services.api.meta import Document

PROTOCOLS = ("SCTP", "TCP", "UDP")


def _address(item: Document, at: str, report: Report) -> Causes:
    ip, host, node = item.get("ip") or "", item.get("hostname") or "", item.get("nodeName")
    yield from address(f"{at}ip", ip)
    if host:
        yield from label(f"{at}hostname", host)
    if node is not None:
        yield from subdomain(f"{at}nodeName", node)
    if not report.scope:
        yield from ordinary(f"{at}ip", ip)


def _some_address(subset: Document, at: str, report: Report) -> Causes:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield required(at[:-1], "must specify `addresses` or `notReadyAddresses`")


def _port_name(port: Document, at: str, report: Report) -> Causes:
    name = port.get("name") or ""
    if name:
        yield from label(f"{at}name", name)
    elif report.scope:
        yield required(f"{at}name")


def is_own(document: Document) -> bool:
    """Whether these are the API server's own endpoints, which may have a loopback address."""
    meta = document["metadata"]
    return bool(meta.get("namespace") == "default" and meta.get("name") == "kubernetes")


def _whose(document: Document, at: str, report: Report) -> Causes:
    report.scope = is_own(document)
    return ()


def _ports(subset: Document, at: str, report: Report) -> Causes:
    before, report.scope = report.scope, len(subset.get("ports") or ()) > 1
    for index, port in enumerate(subset.get("ports") or ()):
        PORT.check(port, f"{at}ports[{index}].", report)
    report.scope = before
    return ()


ADDRESS = Struct(_address)
PORT = Struct(
    _port_name,
    Field("port", missing=0, minimum=1, maximum=65535),
    Field("protocol", default="TCP", is_blank_absent=True, enum=PROTOCOLS),
    Field("appProtocol", form=qualified_name),
)
SUBSET = Struct(
    _some_address,
    Field("addresses", items=ADDRESS),
    Field("notReadyAddresses", items=ADDRESS),
    Field("ports", items=PORT, is_checked=False),
    _ports,
)
STRATEGIES = {"endpoints": declare_strategy(Struct(_whose, Field("subsets", items=SUBSET)))}
