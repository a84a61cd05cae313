"""Formats of cells in `kubectl get` tables: ages, lists, and the columns that kinds share."""

from collections.abc import Sequence
from typing import Any

from services.api.meta import NONE, Column, Document
from services.api.times import duration, parse_time


def cells(columns: Sequence[Column], document: Document, now_wall_s: float) -> list[Any]:
    """Return one object's row in the table of `kubectl get`."""
    return [_cell(column, document, now_wall_s) for column in columns]


def _cell(column: Column, document: Document, now_wall_s: float) -> Any:
    if not isinstance(column.source, str):
        return column.source(document, now_wall_s)
    value = value_at(column.source, document)
    if value is None or value == "":
        return column.default
    if column.is_age:
        return duration(now_wall_s - parse_time(value))
    return value if column.show is None else column.show(value)


def value_at(path: str, document: Document) -> Any:
    """Return the value at a path of members (`status.phase`); None if there is none."""
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def labels_text(labels: dict[str, str]) -> str:
    """Return `a=b,c=d`, or `<none>`."""
    return join_values([f"{k}={v}" for k, v in sorted(labels.items())])


def join_values(values: Sequence[Any]) -> str:
    """Return `a,b`, or `<none>`."""
    return ",".join(map(str, values)) or NONE


def phase(document: Document, now_wall_s: float) -> str:
    """Return the phase of an object, or Terminating while it is being deleted."""
    if document["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(document.get("status", {}).get("phase", ""))


def ready_of(document: Document, now_wall_s: float) -> str:
    """Return a workload's ready and desired replicas: `1/3`."""
    return f"{document.get('status', {}).get('readyReplicas', 0)}/{document.get('spec', {}).get('replicas', 1)}"


def selector_text(selector: Document) -> str:
    """Return a LabelSelector document as apimachinery's `FormatLabelSelector` does; `<none>` for an empty one."""
    parts = [f"{k}={v}" for k, v in sorted(selector.get("matchLabels", {}).items())]
    for term in selector.get("matchExpressions", ()):
        op, values = term.get("operator", ""), ",".join(term.get("values", ()))
        parts.append(
            {"Exists": term["key"], "DoesNotExist": "!" + term["key"]}.get(op, f"{term['key']} {op.lower()} ({values})")
        )
    return join_values(parts)


def pod_template_columns(at: str) -> tuple[Column, ...]:
    """Return the wide columns of kinds that make pods; `at`: path of the selector and the template."""
    containers = f"{at}.template.spec.containers"
    return (
        Column("Containers", containers, priority=1, show=lambda d: ",".join(each.get("name", "") for each in d)),
        Column("Images", containers, priority=1, show=lambda d: ",".join(each.get("image", "") for each in d)),
        Column("Selector", f"{at}.selector", priority=1, default=NONE, show=selector_text),
    )


TEMPLATE_COLUMNS = pod_template_columns("spec")
"""The wide columns of any workload."""
