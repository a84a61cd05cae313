"""MutatingAdmissionPolicy: expressions that change objects (admissionregistration.k8s.io/v1)."""

from services.api.kinds.validatingadmissionpolicy import param_kind
from services.api.meta import AGE, NAME, Column, ObjectView, Resource


class MutatingAdmissionPolicy(ObjectView, frozen=True):
    """A policy as components see it."""


RESOURCE = Resource(
    MutatingAdmissionPolicy,
    plural="mutatingadmissionpolicies",
    group="admissionregistration.k8s.io",
    namespaced=False,
    categories=("api-extensions",),
    has_generation=True,
    columns=(
        NAME,
        Column(
            "Mutations", lambda document, now: len((document.get("spec") or {}).get("mutations") or ()), type="integer"
        ),
        Column("ParamKind", param_kind),
        AGE,
    ),
)
