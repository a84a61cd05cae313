"""ReplicaSet: keep as many pods alive as asked (apps/v1)."""

from __future__ import annotations

from collections.abc import Callable

from services.api.meta import Condition, Document, LabelSelector, ObjectMeta, View
from services.api.printing import AGE, NAME, NONE, joined
from services.api.resources import Column, Resource


class ReplicaSetSpec(View, frozen=True):
    """`template` stays in the document; controllers copy it from there, unknown fields and all."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector | None = None


class ReplicaSetStatus(View, frozen=True):
    """Counters of the controller's last look."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class ReplicaSet(View, frozen=True):
    """A ReplicaSet as components see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


def _containers(field: str) -> Callable[[list[Document]], str]:
    return lambda containers: ",".join(each.get(field, "") for each in containers)


def _selector(selector: Document) -> str:
    parts = [f"{k}={v}" for k, v in sorted(selector.get("matchLabels", {}).items())]
    for term in selector.get("matchExpressions", ()):
        op, values = term.get("operator", ""), ",".join(term.get("values", ()))
        parts.append(
            {"Exists": term["key"], "DoesNotExist": "!" + term["key"]}.get(op, f"{term['key']} {op.lower()} ({values})")
        )
    return joined(parts)


_CONTAINERS = "spec.template.spec.containers"
TEMPLATE_COLUMNS = (
    Column("Containers", _CONTAINERS, priority=1, show=_containers("name")),
    Column("Images", _CONTAINERS, priority=1, show=_containers("image")),
    Column("Selector", "spec.selector", priority=1, default=NONE, show=_selector),
)
"""The wide columns of any workload."""


RESOURCE = Resource(
    kind="ReplicaSet",
    plural="replicasets",
    singular="replicaset",
    group="apps",
    short_names=("rs",),
    categories=("all",),
    subresources=("status", "scale"),
    view=ReplicaSet,
    has_spec=True,
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
