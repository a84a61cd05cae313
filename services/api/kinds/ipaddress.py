"""IPAddress: an address that is allocated to a Service (networking.k8s.io/v1, KEP-1880)."""

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectView, Resource


class IPAddress(ObjectView, frozen=True):
    """An IPAddress as components see it; its name is the address."""


def _parent(reference: Document) -> str:
    resource = reference.get("resource", "")
    group = f".{reference['group']}" if reference.get("group") else ""
    return "/".join(filter(None, (f"{resource}{group}", reference.get("namespace", ""), reference.get("name", ""))))


RESOURCE = Resource(
    IPAddress,
    "networking.k8s.io",
    plural="ipaddresses",
    namespaced=False,
    short_names=("ip",),
    columns=(NAME, Column("ParentRef", "spec.parentRef", default=NONE, show=_parent), AGE),
)
