"""DaemonSet: one pod on every node that fits (apps/v1)."""

from __future__ import annotations

from typing import Any

from services.api.kinds.pod import PodSpec
from services.api.kinds.replicaset import TEMPLATE_COLUMNS, template_cells
from services.api.meta import Condition, Document, LabelSelector, ObjectMeta, View
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource

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


class DaemonSet(View, frozen=True):
    """A DaemonSet as rooms see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


_COUNTERS = (
    "desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable",
)  # fmt: skip


def _cells(document: Document, now: float) -> list[Any]:
    spec, status = document.get("spec", {}), document.get("status", {})
    wanted = (spec.get("template", {}).get("spec") or {}).get("nodeSelector") or {}
    return [
        document["metadata"].get("name", ""), *(status.get(name, 0) for name in _COUNTERS),
        ",".join(f"{key}={value}" for key, value in sorted(wanted.items())) or "<none>", age(document, now),
        *template_cells(document),
    ]  # fmt: skip


RESOURCE = Resource(
    kind="DaemonSet",
    plural="daemonsets",
    singular="daemonset",
    group="apps",
    short_names=("ds",),
    categories=("all",),
    subresources=("status",),
    view=DaemonSet,
    has_spec=True,
    columns=(
        NAME, Column("Desired", "integer"), Column("Current", "integer"), Column("Ready", "integer"),
        Column("Up-to-date", "integer"), Column("Available", "integer"), Column("Node Selector"), AGE,
        *TEMPLATE_COLUMNS,
    ),
    cells=_cells,
)  # fmt: skip
