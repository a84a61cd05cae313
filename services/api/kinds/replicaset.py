"""ReplicaSet: keep as many pods alive as asked (apps/v1)."""

from __future__ import annotations

from typing import Any

from services.api.meta import Condition, Document, LabelSelector, ObjectMeta, View
from services.api.printing import AGE, NAME, age
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
    """A ReplicaSet as rooms see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


def template_cells(document: Document) -> list[Any]:
    """Return the wide columns Containers, Images, Selector of any workload."""
    spec = document.get("spec", {})
    containers = spec.get("template", {}).get("spec", {}).get("containers", ())
    selector = spec.get("selector") or {}
    parts = [f"{k}={v}" for k, v in sorted(selector.get("matchLabels", {}).items())]
    for term in selector.get("matchExpressions", ()):
        op, values = term.get("operator", ""), ",".join(term.get("values", ()))
        parts.append(
            {"Exists": term["key"], "DoesNotExist": "!" + term["key"]}.get(op, f"{term['key']} {op.lower()} ({values})")
        )
    return [
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
        ",".join(parts) or "<none>",
    ]


TEMPLATE_COLUMNS = (Column("Containers", priority=1), Column("Images", priority=1), Column("Selector", priority=1))


def _cells(document: Document, now: float) -> list[Any]:
    spec, status = document.get("spec", {}), document.get("status", {})
    return [
        document["metadata"].get("name", ""), spec.get("replicas", 1), status.get("replicas", 0),
        status.get("readyReplicas", 0), age(document, now), *template_cells(document),
    ]  # fmt: skip


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
        NAME, Column("Desired", "integer"), Column("Current", "integer"), Column("Ready", "integer"), AGE,
        *TEMPLATE_COLUMNS,
    ),
    cells=_cells,
    selectable_fields={"status.replicas": lambda d: str(d.get("status", {}).get("replicas", 0))},
)  # fmt: skip
