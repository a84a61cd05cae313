"""Endpoints (core/v1): subsets of addresses with the same ports, in the words of `pkg/apis/core/validation`."""

from ipaddress import ip_address, ip_network

from apiserver_fake.strategy import declared
from apiserver_fake.validation.fields import Field, Report, Struct, unique
from apiserver_fake.validation.formats import Causes, invalid, label, required, subdomain
from services.api.meta import Document

PROTOCOLS = ("SCTP", "TCP", "UDP")
_LINK_LOCAL_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))


def _address(value: str, path: str, report: Report) -> Causes:
    try:
        found = ip_address(value)
    except ValueError:
        yield invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
        return
    if report.scope:
        return
    if found.is_unspecified:
        yield invalid(path, value, f"may not be unspecified ({found})")
    if found.is_loopback:
        yield invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if found.is_link_local:
        yield invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(found in each for each in _LINK_LOCAL_MULTICAST if each.version == found.version):
        yield invalid(path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


def _some_address(subset: Document, at: str, report: Report) -> Causes:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield required(at[:-1], "must specify `addresses` or `notReadyAddresses`")


def _named(subset: Document, at: str, report: Report) -> Causes:
    ports = subset.get("ports") or []
    if len(ports) > 1:
        yield from [required(f"{at}ports[{index}].name") for index, port in enumerate(ports) if not port.get("name")]


def is_own(document: Document) -> bool:
    """Whether these are the API server's own endpoints: it may listen on this machine alone."""
    meta = document["metadata"]
    return bool(meta.get("namespace") == "default" and meta.get("name") == "kubernetes")


def _whose(document: Document, at: str, report: Report) -> Causes:
    report.scope = is_own(document)
    return ()


ADDRESS = Struct(
    Field("ip", missing="", rule=_address), Field("hostname", form=label), Field("nodeName", form=subdomain)
)
PORT = Struct(
    Field("name", form=label),
    Field("port", missing=0, minimum=1, maximum=65535),
    Field("protocol", default="TCP", enum=PROTOCOLS),
    unique("name", is_empty_a_key=False),
)
SUBSET = Struct(
    _some_address,
    Field("addresses", items=ADDRESS),
    Field("notReadyAddresses", items=ADDRESS),
    _named,
    Field("ports", items=PORT),
)
STRATEGIES = {"endpoints": declared(Struct(_whose, Field("subsets", items=SUBSET)))}
