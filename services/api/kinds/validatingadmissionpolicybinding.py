"""ValidatingAdmissionPolicyBinding: scope and parameters of a policy (admissionregistration.k8s.io/v1)."""

import msgspec

from services.api.kinds.validatingadmissionpolicy import UNSET
from services.api.meta import AGE, NAME, Column, Document, LabelSelector, ObjectView, Resource
from services.api.selectors import selector_text


class ValidatingAdmissionPolicyBinding(ObjectView, frozen=True):
    """A binding as components see it."""


def param_ref(binding: Document, now: float) -> str:
    """Return the parameters that a binding names, as tables show them."""
    ref = (binding.get("spec") or {}).get("paramRef")
    if not ref:
        return UNSET
    if ref.get("name"):
        return f"{ref.get('namespace') or '*'}/{ref['name']}"
    return selector_text(msgspec.convert(ref.get("selector") or {}, LabelSelector))


RESOURCE = Resource(
    ValidatingAdmissionPolicyBinding,
    group="admissionregistration.k8s.io",
    namespaced=False,
    categories=("api-extensions",),
    has_generation=True,
    columns=(NAME, Column("PolicyName", "spec.policyName"), Column("ParamRef", param_ref), AGE),
)
