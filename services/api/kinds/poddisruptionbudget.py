"""PodDisruptionBudget: limit on simultaneously unavailable pods (policy/v1)."""

from services.api.meta import AGE, NAME, Column, Condition, LabelSelector, ObjectView, Resource, View


class PodDisruptionBudgetSpec(View, frozen=True):
    """Spec of a budget. Exactly one of the two is set: a number or a percentage."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(View, frozen=True):
    """Status of a budget. `disrupted_pods`: pod name → time when its eviction was allowed."""

    observed_generation: int = 0
    disrupted_pods: dict[str, str] = {}
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(ObjectView, frozen=True):
    """A budget as components see it."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


_COLUMNS = (
    NAME,
    Column("Min Available", "spec.minAvailable", default="N/A", show=str),
    Column("Max Unavailable", "spec.maxUnavailable", default="N/A", show=str),
    Column("Allowed Disruptions", "status.disruptionsAllowed", "integer", default=0),
    AGE,
)
RESOURCE = Resource(
    PodDisruptionBudget, "policy", short_names=("pdb",), subresources=("status",), has_generation=True, columns=_COLUMNS
)
