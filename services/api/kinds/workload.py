"""Workload: templates from which a controller makes pod groups (KEP-4671)."""

from services.api.kinds.podgroup import DisruptionMode, PodGroupSchedulingPolicy
from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectView, Resource, View

TEMPLATES_MAX = 8


class TypedLocalObjectReference(View, frozen=True):
    """Reference to an object of the same namespace; the empty group is core."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class PodGroupTemplate(View, frozen=True):
    """Template of a pod group; later changes affect only new groups."""

    name: str = ""
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: int = 0
    preemption_policy: str = ""


class WorkloadSpec(View, frozen=True):
    """Spec of a Workload. `controllerRef`: the owner of the groups, for people and tools."""

    controller_ref: TypedLocalObjectReference | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] = ()


class Workload(ObjectView, frozen=True):
    """A workload as components see it."""

    spec: WorkloadSpec = WorkloadSpec()


def _owner(reference: Document) -> str:
    return f"{reference.get('kind', '')}/{reference.get('name', '')}" if reference else NONE


_COLUMNS = (
    NAME,
    Column("Controller", "spec.controllerRef", default=NONE, show=_owner),
    Column(
        "Templates", "spec.podGroupTemplates", show=lambda listed: ",".join(each.get("name", "") for each in listed)
    ),
    AGE,
)
RESOURCE = Resource(Workload, "scheduling.k8s.io", version="v1beta1", gate="GenericWorkload", columns=_COLUMNS)
