"""MutatingAdmissionPolicyBinding: scope and parameters of a policy (admissionregistration.k8s.io/v1)."""

from services.api.kinds.validatingadmissionpolicybinding import param_ref
from services.api.meta import AGE, NAME, Column, ObjectView, Resource


class MutatingAdmissionPolicyBinding(ObjectView, frozen=True):
    """A binding as components see it."""


RESOURCE = Resource(
    MutatingAdmissionPolicyBinding,
    group="admissionregistration.k8s.io",
    namespaced=False,
    categories=("api-extensions",),
    has_generation=True,
    columns=(NAME, Column("PolicyName", "spec.policyName"), Column("ParamRef", param_ref), AGE),
)
