"""DaemonSet: one pod on every node that fits (apps/v1)."""

from services.api.kinds.pod import PodSpec
from services.api.meta import AGE, NAME, NONE, Column, Condition, LabelSelector, ObjectView, Resource, View
from services.api.printing import TEMPLATE_COLUMNS, labels_text

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""Annotation that counts changes of the template: apps/v1 keeps a field of older versions in it."""
TEMPLATE_GENERATION_LABEL = "pod-template-generation"


class DaemonPodTemplate(View, frozen=True):
    """The part of the template that selects nodes; pods are made from the template in the document, with unknown
    fields.
    """

    spec: PodSpec = PodSpec()


class RollingUpdateDaemonSet(View, frozen=True):
    """Update limits, each a number or a percentage; exactly one of them is not zero."""

    max_unavailable: int | str = 1
    max_surge: int | str = 0


class DaemonSetUpdateStrategy(View, frozen=True):
    """Update strategy. `type`: RollingUpdate or OnDelete."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(View, frozen=True):
    """The selected pods, and how they are replaced when the template changes."""

    selector: LabelSelector | None = None
    template: DaemonPodTemplate = DaemonPodTemplate()
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10


class DaemonSetStatus(View, frozen=True):
    """Counters of nodes, not of pods: if a node has several pods, the first counts."""

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
