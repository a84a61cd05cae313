"""PriorityClass: a pod priority, and whether it may preempt other pods (KEP-268)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource


class PriorityClass(ObjectView, frozen=True):
    """A priority class as components see it."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


RESOURCE = Resource(
    PriorityClass,
    plural="priorityclasses",
    group="scheduling.k8s.io",
    namespaced=False,
    short_names=("pc",),
    has_generation=True,  # it has no spec: always 1, as upstream's strategy sets it
    columns=(
        NAME,
        Column("Value", "value", "integer", default=0),
        Column("Global-Default", "globalDefault", "boolean", default=False),
        AGE,
        Column("PreemptionPolicy", "preemptionPolicy", default="PreemptLowerPriority"),
    ),
)
