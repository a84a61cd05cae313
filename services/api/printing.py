"""How cells of `kubectl get` tables are spelled: ages, lists, and the columns that kinds share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from services.api.meta import NONE, Column, Document
from services.api.times import parse_time


def cells(columns: Sequence[Column], document: Document, now_wall_s: float) -> list[Any]:
    """Return one object's row in the table of `kubectl get`."""
    return [_cell(column, document, now_wall_s) for column in columns]


def _cell(column: Column, document: Document, now_wall_s: float) -> Any:
    if not isinstance(column.source, str):
        return column.source(document, now_wall_s)
    value: Any = document
    for name in column.source.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or value == "":
        return column.default
    if column.is_age:
        return duration(now_wall_s - parse_time(value))
    return value if column.show is None else column.show(value)


def duration(seconds: float) -> str:
    """Return a human duration as apimachinery's `HumanDuration` does: `45s`, `5m3s`, `3h12m`, `5d`."""
    s = int(seconds)
    if s < 0:
        return "<invalid>" if s < -1 else "0s"
    if s < 120:
        return f"{s}s"
    minutes = s // 60
    if minutes < 10:
        return f"{minutes}m{s % 60}s" if s % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = s // 3600
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    if days < 365 * 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def labels_text(labels: dict[str, str]) -> str:
    """Return `a=b,c=d`, or `<none>`."""
    return joined([f"{k}={v}" for k, v in sorted(labels.items())])


def joined(values: Sequence[Any]) -> str:
    """Return `a,b`, or `<none>`."""
    return ",".join(map(str, values)) or NONE


def phase(document: Document, now_wall_s: float) -> str:
    """Return the phase of an object that says Terminating while it is being deleted."""
    if document["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(document.get("status", {}).get("phase", ""))


def ready_of(document: Document, now_wall_s: float) -> str:
    """Return a workload's ready replicas of those desired: `1/3`."""
    return f"{document.get('status', {}).get('readyReplicas', 0)}/{document.get('spec', {}).get('replicas', 1)}"


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
