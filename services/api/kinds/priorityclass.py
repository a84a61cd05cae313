"""PriorityClass: how important a pod is, and whether it may preempt others (KEP-268)."""

from __future__ import annotations

from typing import Any

from services.api.meta import Document, ObjectMeta, View
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource


class PriorityClass(View, frozen=True):
    """A priority class as rooms see it."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


def _cells(document: Document, now: float) -> list[Any]:
    return [
        document["metadata"].get("name", ""), document.get("value", 0), bool(document.get("globalDefault")),
        age(document, now), document.get("preemptionPolicy", "PreemptLowerPriority"),
    ]  # fmt: skip


RESOURCE = Resource(
    kind="PriorityClass",
    plural="priorityclasses",
    singular="priorityclass",
    group="scheduling.k8s.io",
    namespaced=False,
    short_names=("pc",),
    view=PriorityClass,
    columns=(
        NAME, Column("Value", "integer"), Column("Global-Default", "boolean"), AGE, Column("PreemptionPolicy"),
    ),
    cells=_cells,
)  # fmt: skip
