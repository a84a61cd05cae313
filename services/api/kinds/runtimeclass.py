"""RuntimeClass: a kind of container runtime that pods may ask for (node.k8s.io/v1, KEP-585)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource


class RuntimeClass(ObjectView, frozen=True):
    """A RuntimeClass as components see it; its overhead and scheduling stay in the document."""

    handler: str = ""


RESOURCE = Resource(
    RuntimeClass,
    "node.k8s.io",
    plural="runtimeclasses",
    namespaced=False,
    columns=(NAME, Column("Handler", "handler"), AGE),
)
