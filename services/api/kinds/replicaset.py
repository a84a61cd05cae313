"""ReplicaSet: keeps the requested number of pods alive (apps/v1)."""

from services.api.meta import AGE, NAME, Column, Condition, LabelSelector, ObjectView, Resource, View
from services.api.printing import TEMPLATE_COLUMNS


class ReplicaSetSpec(View, frozen=True):
    """Spec of a ReplicaSet. `template` stays in the document; controllers copy it from there, with unknown fields."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector | None = None


class ReplicaSetStatus(View, frozen=True):
    """Counters of the controller's last sync."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class ReplicaSet(ObjectView, frozen=True):
    """A ReplicaSet as components see it."""

    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


RESOURCE = Resource(
    ReplicaSet,
    "apps",
    short_names=("rs",),
    categories=("all",),
    subresources=("status", "scale"),
    has_generation=True,
    columns=(
        NAME,
        Column("Desired", "spec.replicas", "integer", default=1),
        Column("Current", "status.replicas", "integer", default=0),
        Column("Ready", "status.readyReplicas", "integer", default=0),
        AGE,
        *TEMPLATE_COLUMNS,
    ),
    selectable_fields={"status.replicas": lambda d: str(d.get("status", {}).get("replicas", 0))},
)
