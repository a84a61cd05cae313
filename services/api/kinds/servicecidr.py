"""ServiceCIDR: a range of Service addresses (networking.k8s.io/v1, KEP-1880)."""

from services.api.meta import AGE, NAME, Column, Condition, ObjectView, Resource, View
from services.api.printing import join_values


class ServiceCIDRSpec(View, frozen=True):
    """Spec of a ServiceCIDR: at most one range per IP family."""

    cidrs: tuple[str, ...] = ()


class ServiceCIDRStatus(View, frozen=True):
    """Status of a ServiceCIDR: whether addresses are allocated from it."""

    conditions: tuple[Condition, ...] = ()


class ServiceCIDR(ObjectView, frozen=True):
    """A ServiceCIDR as components see it."""

    spec: ServiceCIDRSpec = ServiceCIDRSpec()
    status: ServiceCIDRStatus = ServiceCIDRStatus()


RESOURCE = Resource(
    ServiceCIDR,
    "networking.k8s.io",
    namespaced=False,
    subresources=("status",),
    columns=(NAME, Column("CIDRs", "spec.cidrs", show=join_values), AGE),
)
