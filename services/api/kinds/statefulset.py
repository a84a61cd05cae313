"""StatefulSet: pods that keep their names and storage, created and deleted in order (apps/v1)."""

from services.api.meta import AGE, NAME, Column, LabelSelector, ObjectView, Resource, View
from services.api.printing import TEMPLATE_COLUMNS, ready_of

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
ORDERED, PARALLEL = "OrderedReady", "Parallel"
ROLLING, ON_DELETE = "RollingUpdate", "OnDelete"
RETAIN, DELETE = "Retain", "Delete"


class RollingUpdate(View, frozen=True):
    """Rolling update. Pods below `partition` stay as they are. `max_unavailable`: a number or a percentage, default
    1.
    """

    partition: int = 0
    max_unavailable: int | str | None = None


class UpdateStrategy(View, frozen=True):
    """Update strategy. `type`: RollingUpdate, or OnDelete (pods of an old revision are replaced when they are
    deleted).
    """

    type: str = ROLLING
    rolling_update: RollingUpdate | None = None


class Ordinals(View, frozen=True):
    """Ordinal settings. `start`: the number of the first pod."""

    start: int = 0


class RetentionPolicy(View, frozen=True):
    """Retain or Delete for claims: when the set is deleted, and when their pod is scaled away."""

    when_deleted: str = RETAIN
    when_scaled: str = RETAIN


class ClaimTemplate(ObjectView, frozen=True):
    """Template of a claim that every pod gets; the whole template stays in the document."""


class StatefulSetSpec(View, frozen=True):
    """Spec of a StatefulSet. `template` stays in the document and in the revisions; controllers copy it from there."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector | None = None
    service_name: str = ""
    pod_management_policy: str = ORDERED
    update_strategy: UpdateStrategy = UpdateStrategy()
    revision_history_limit: int = 10
    ordinals: Ordinals = Ordinals()
    persistent_volume_claim_retention_policy: RetentionPolicy = RetentionPolicy()
    volume_claim_templates: tuple[ClaimTemplate, ...] = ()


class StatefulSetStatus(View, frozen=True):
    """Counters of the controller's last sync. `current_revision`: the last revision that all pods had."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int = 0


class StatefulSet(ObjectView, frozen=True):
    """A StatefulSet as components see it."""

    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()

    @property
    def ordinals(self) -> range:
        """Ordinals of its pods."""
        start = self.spec.ordinals.start
        return range(start, start + self.spec.replicas)


RESOURCE = Resource(
    StatefulSet,
    "apps",
    short_names=("sts",),
    categories=("all",),
    subresources=("status", "scale"),
    has_generation=True,
    columns=(NAME, Column("Ready", ready_of), AGE, *TEMPLATE_COLUMNS[:2]),
)
