"""ReplicationController: keeps the requested number of pods alive (core/v1); ReplicaSets replace it."""

import msgspec

from services.api.meta import AGE, NAME, NONE, Column, Condition, LabelSelector, ObjectView, Resource, View
from services.api.printing import TEMPLATE_COLUMNS, labels_text


class ReplicationControllerSpec(View, frozen=True):
    """Spec of a ReplicationController. `labels` is its selector, equality only. `template` stays in the document;
    controllers copy it from there.
    """

    replicas: int = 1
    min_ready_seconds: int = 0
    labels: dict[str, str] = msgspec.field(name="selector", default={})

    @property
    def selector(self) -> LabelSelector | None:
        """The selector in the form of newer workloads; None if it has none."""
        return LabelSelector(match_labels=self.labels) if self.labels else None


class ReplicationControllerStatus(View, frozen=True):
    """Counters of the controller's last sync."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class ReplicationController(ObjectView, frozen=True):
    """A ReplicationController as components see it."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: ReplicationControllerStatus = ReplicationControllerStatus()


RESOURCE = Resource(
    ReplicationController,
    short_names=("rc",),
    categories=("all",),
    subresources=("status", "scale"),
    has_generation=True,
    columns=(
        NAME,
        Column("Desired", "spec.replicas", "integer", default=1),
        Column("Current", "status.replicas", "integer", default=0),
        Column("Ready", "status.readyReplicas", "integer", default=0),
        AGE,
        *TEMPLATE_COLUMNS[:2],
        Column("Selector", "spec.selector", priority=1, default=NONE, show=labels_text),
    ),
    selectable_fields={"status.replicas": lambda d: str(d.get("status", {}).get("replicas", 0))},
)
