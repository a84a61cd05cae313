"""PodGroup: pods that are scheduled together, and perhaps evicted together (KEP-4671, KEP-5710)."""

from services.api.meta import AGE, NAME, Column, Condition, Document, Mark, ObjectView, Resource, View, find_condition

INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""Condition of a group. Once True it stays True: later evictions never reset it."""
DISRUPTION_TARGET = "DisruptionTarget"
PROTECTION_FINALIZER = "scheduling.k8s.io/podgroup-protection"


class GangSchedulingPolicy(View, frozen=True):
    """Gang policy, all or nothing: fewer than `minCount` members are never bound."""

    min_count: int = 1


class PodGroupSchedulingPolicy(View, frozen=True):
    """Scheduling policy; exactly one member is set. `basic`: members are scheduled like single pods."""

    basic: Mark | None = None
    gang: GangSchedulingPolicy | None = None


class DisruptionMode(View, frozen=True):
    """Disruption mode; exactly one member is set. Members are evicted one by one (`single`, the default), or all
    together.
    """

    single: Mark | None = None
    all: Mark | None = None


class WorkloadReference(View, frozen=True):
    """Reference to the template of a group. It is informative only: the group carries a copy of the policy."""

    workload_name: str = ""
    template_name: str = ""


class TopologyConstraint(View, frozen=True):
    """Constraint that all members lie within one value of a node label."""

    key: str = ""


class PodGroupSchedulingConstraints(View, frozen=True):
    """Constraints on the placement of all members together."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupResourceClaim(View, frozen=True):
    """A claim that all members share: an existing one, or one made for the group (KEP-5729)."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodGroupResourceClaimStatus(View, frozen=True):
    """The claim that the claim controller made for the group; without a claim name the group needs none."""

    name: str = ""
    resource_claim_name: str | None = None


class PodGroupSpec(View, frozen=True):
    """Spec of a pod group: scheduling and eviction of the members. Admission sets `priority`, as for pods.

    `preemptionPolicy` exists with the gate PodGroupPreemptionPolicy only.
    """

    workload_ref: WorkloadReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: int = 0
    preemption_policy: str = ""
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()

    @property
    def min_count(self) -> int:
        """Number of members that must be placed before any is bound; 1 for a basic group."""
        gang = self.scheduling_policy.gang
        return gang.min_count if gang is not None else 1

    @property
    def is_gang(self) -> bool:
        """Whether the group is a gang: all members are placed or none."""
        return self.scheduling_policy.gang is not None

    @property
    def is_disrupted_as_a_whole(self) -> bool:
        """Whether the group is one unit of eviction."""
        return self.disruption_mode is not None and self.disruption_mode.all is not None


class PodGroupStatus(View, frozen=True):
    """Conditions from the scheduler, and the claims that the claim controller made."""

    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class PodGroup(ObjectView, frozen=True):
    """A group as components see it."""

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def is_scheduled(self) -> bool:
        """Whether the group's scheduling constraint was ever met."""
        found = find_condition(self.status.conditions, INITIALLY_SCHEDULED)
        return found is not None and found.status == "True"


def _scheduled_status(document: Document, now: float) -> str:
    conditions = document.get("status", {}).get("conditions", ())
    return next((c.get("status", "") for c in conditions if c.get("type") == INITIALLY_SCHEDULED), "Unknown")


_COLUMNS = (
    NAME,
    Column("Policy", "spec.schedulingPolicy.gang", default="basic", show=lambda d: f"gang ({d.get('minCount', 0)})"),
    Column("Scheduled", _scheduled_status),
    Column("Priority", "spec.priority", "integer", default=0),
    AGE,
)
RESOURCE = Resource(
    PodGroup,
    "scheduling.k8s.io",
    version="v1beta1",
    subresources=("status",),
    has_generation=True,
    gate="GenericWorkload",
    columns=_COLUMNS,
)
