"""NetworkPolicy: allowed traffic of pods (networking.k8s.io/v1); stored and shown, but not enforced, as without
a network plugin.
"""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource
from services.api.printing import selector_text


class NetworkPolicy(ObjectView, frozen=True):
    """A NetworkPolicy as components see it."""


RESOURCE = Resource(
    NetworkPolicy,
    "networking.k8s.io",
    plural="networkpolicies",
    short_names=("netpol",),
    has_generation=True,
    columns=(NAME, Column("Pod-Selector", "spec.podSelector", default="<none>", show=selector_text), AGE),
)
