"""IngressClass: which controller implements the Ingresses that name it (networking.k8s.io/v1)."""

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectView, Resource, View

DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
"""Annotation that makes a class the default for Ingresses that name none."""


class IngressClassSpec(View, frozen=True):
    """Spec of an IngressClass. `controller`: a name with a domain prefix."""

    controller: str = ""


class IngressClass(ObjectView, frozen=True):
    """An IngressClass as components see it."""

    spec: IngressClassSpec = IngressClassSpec()


def _parameters(reference: Document) -> str:
    group = f".{reference['apiGroup']}" if reference.get("apiGroup") else ""
    return f"{reference.get('kind', '')}{group}/{reference.get('name', '')}"


RESOURCE = Resource(
    IngressClass,
    "networking.k8s.io",
    plural="ingressclasses",
    namespaced=False,
    has_generation=True,
    columns=(
        NAME,
        Column("Controller", "spec.controller"),
        Column("Parameters", "spec.parameters", default=NONE, show=_parameters),
        AGE,
    ),
)
