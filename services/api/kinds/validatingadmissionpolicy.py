"""ValidatingAdmissionPolicy: expressions that must be true of objects (admissionregistration.k8s.io/v1)."""

from services.api.meta import AGE, NAME, Column, Document, ObjectView, Resource

UNSET = "<unset>"


class ValidatingAdmissionPolicy(ObjectView, frozen=True):
    """A policy as components see it."""


def param_kind(policy: Document, now: float) -> str:
    """Return the kind of a policy's parameters, as tables show it."""
    found = (policy.get("spec") or {}).get("paramKind")
    return f"{found.get('apiVersion', '')}/{found.get('kind', '')}" if found else UNSET


RESOURCE = Resource(
    ValidatingAdmissionPolicy,
    plural="validatingadmissionpolicies",
    group="admissionregistration.k8s.io",
    namespaced=False,
    categories=("api-extensions",),
    subresources=("status",),
    has_generation=True,
    columns=(
        NAME,
        Column(
            "Validations",
            lambda document, now: len((document.get("spec") or {}).get("validations") or ()),
            type="integer",
        ),
        Column("ParamKind", param_kind),
        AGE,
    ),
)
