"""Deployment: roll a ReplicaSet's template forward without losing too many pods (apps/v1)."""

from services.api.meta import AGE, NAME, Column, Condition, LabelSelector, ObjectView, Resource, View
from services.api.printing import TEMPLATE_COLUMNS, ready_of


class RollingUpdate(View, frozen=True):
    """Limits of a rolling update, each a number or a percentage."""

    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class DeploymentStrategy(View, frozen=True):
    """Update strategy. `type`: RollingUpdate or Recreate."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(View, frozen=True):
    """Spec of a Deployment. `template` stays in the document."""

    replicas: int = 1
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False
    selector: LabelSelector | None = None
    strategy: DeploymentStrategy = DeploymentStrategy()


class DeploymentStatus(View, frozen=True):
    """Counters over all ReplicaSets of the Deployment."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    collision_count: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(ObjectView, frozen=True):
    """A Deployment as components see it."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


RESOURCE = Resource(
    Deployment,
    "apps",
    short_names=("deploy",),
    categories=("all",),
    subresources=("status", "scale"),
    has_generation=True,
    columns=(
        NAME,
        Column("Ready", ready_of),
        Column("Up-to-date", "status.updatedReplicas", default=0),
        Column("Available", "status.availableReplicas", default=0),
        AGE,
        *TEMPLATE_COLUMNS,
    ),
)
