"""DaemonSet: one pod on every node that fits (apps/v1)."""

from services.api.kinds.pod import PodSpec
from services.api.meta import AGE, NAME, NONE, Column, Condition, LabelSelector, ObjectView, Resource, View
from services.api.printing import TEMPLATE_COLUMNS, labels_text

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""The annotation that counts changes of the template, as apps/v1 shows a field of older versions."""
TEMPLATE_GENERATION_LABEL = "pod-template-generation"


class DaemonPodTemplate(View, frozen=True):
    """What decides about nodes; pods are made from the template in the document, unknown fields and all."""

    spec: PodSpec = PodSpec()


class RollingUpdateDaemonSet(View, frozen=True):
    """A number or a percentage each; exactly one of them is not zero."""

    max_unavailable: int | str = 1
    max_surge: int | str = 0


class DaemonSetUpdateStrategy(View, frozen=True):
    """`type`: RollingUpdate or OnDelete."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(View, frozen=True):
    """Which pods, and how they are replaced when the template changes."""

    selector: LabelSelector | None = None
    template: DaemonPodTemplate = DaemonPodTemplate()
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10


class DaemonSetStatus(View, frozen=True):
    """Counters of nodes, not of pods: of several pods on a node the first counts."""

    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    observed_generation: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    collision_count: int = 0
    conditions: tuple[Condition, ...] = ()


class DaemonSet(ObjectView, frozen=True):
    """A DaemonSet as components see it."""

    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


RESOURCE = Resource(
    DaemonSet,
    "apps",
    short_names=("ds",),
    categories=("all",),
    subresources=("status",),
    has_generation=True,
    columns=(
        NAME,
        Column("Desired", "status.desiredNumberScheduled", "integer", default=0),
        Column("Current", "status.currentNumberScheduled", "integer", default=0),
        Column("Ready", "status.numberReady", "integer", default=0),
        Column("Up-to-date", "status.updatedNumberScheduled", "integer", default=0),
        Column("Available", "status.numberAvailable", "integer", default=0),
        Column("Node Selector", "spec.template.spec.nodeSelector", default=NONE, show=labels_text),
        AGE,
        *TEMPLATE_COLUMNS,
    ),
)
