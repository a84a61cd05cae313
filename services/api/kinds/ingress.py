"""Ingress: routes from hosts and paths to Services (networking.k8s.io/v1); stored and shown, nothing routes."""

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectView, Resource, View

WIDTH_MAX = 16
"""Maximum width of the addresses in the table, in characters."""
HOSTS_MAX = 3


class IngressSpec(View, frozen=True):
    """Spec of an Ingress. Rules, TLS and the default backend stay in the document."""

    ingress_class_name: str | None = None


class Ingress(ObjectView, frozen=True):
    """An Ingress as components see it."""

    spec: IngressSpec = IngressSpec()


def _hosts(document: Document, now_s: float) -> str:
    rules = document.get("spec", {}).get("rules") or ()
    found = [each["host"] for each in rules if each.get("host")]
    if not found:
        return "*"
    text, more = ",".join(found[:HOSTS_MAX]), len(found) - HOSTS_MAX
    return f"{text} + {more} more..." if more > 0 else text


def _ports(document: Document, now_s: float) -> str:
    return "80, 443" if document.get("spec", {}).get("tls") else "80"


def _address(status: Document) -> str:
    points = status.get("ingress") or ()
    text = ",".join(dict.fromkeys(each.get("ip") or each.get("hostname") or "" for each in points))
    return text if len(text) <= WIDTH_MAX else f"{text[: WIDTH_MAX - 3]}..."


RESOURCE = Resource(
    Ingress,
    "networking.k8s.io",
    plural="ingresses",
    short_names=("ing",),
    subresources=("status",),
    has_generation=True,
    columns=(
        NAME,
        Column("Class", "spec.ingressClassName", default=NONE),
        Column("Hosts", _hosts),
        Column("Address", "status.loadBalancer", default="", show=_address),
        Column("Ports", _ports),
        AGE,
    ),
)
