"""Workload: the templates that a controller makes pod groups from (KEP-4671)."""

from __future__ import annotations

from typing import Any

from services.api.kinds.podgroup import DisruptionMode, PodGroupSchedulingPolicy
from services.api.meta import Document, ObjectMeta, View
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource

TEMPLATES_MAX = 8


class TypedLocalObjectReference(View, frozen=True):
    """An object of the same namespace; the empty group is core."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class PodGroupTemplate(View, frozen=True):
    """What a group made from it starts with; later changes reach new groups only."""

    name: str = ""
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: int = 0
    preemption_policy: str = ""


class WorkloadSpec(View, frozen=True):
    """`controllerRef`: whose groups these are, for people and tools."""

    controller_ref: TypedLocalObjectReference | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] = ()


class Workload(View, frozen=True):
    """A workload as rooms see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


def _cells(document: Document, now: float) -> list[Any]:
    spec = document.get("spec", {})
    owner = spec.get("controllerRef") or {}
    templates = ",".join(t.get("name", "") for t in spec.get("podGroupTemplates") or ())
    named = f"{owner.get('kind', '')}/{owner.get('name', '')}" if owner else "<none>"
    return [document["metadata"].get("name", ""), named, templates, age(document, now)]


RESOURCE = Resource(
    kind="Workload",
    plural="workloads",
    singular="workload",
    group="scheduling.k8s.io",
    version="v1beta1",
    view=Workload,
    has_spec=True,
    columns=(NAME, Column("Controller"), Column("Templates"), AGE),
    cells=_cells,
)
