"""Conditions as documents: create and set them, keeping unchanged transition times."""

from collections.abc import Iterable

import msgspec

from services.api.meta import Condition, Document
from services.api.times import format_time


def as_documents(conditions: Iterable[Condition]) -> list[Document]:
    """Return views as documents."""
    return [msgspec.to_builtins(condition) for condition in conditions]


def new(condition_type: str, status: str, reason: str, message: str, wall_s: float) -> Document:
    """Return a new condition, with this time of transition."""
    said = {"type": condition_type, "status": status, "reason": reason, "message": message}
    return {**said, "lastTransitionTime": format_time(wall_s)}


def find(conditions: list[Document], condition_type: str) -> Document | None:
    """Return the condition of that type, or None."""
    return next((each for each in conditions if each.get("type") == condition_type), None)


def put(
    conditions: list[Document], condition_type: str, status: str, reason: str, message: str, wall_s: float
) -> Document | None:
    """Set a condition in the list and return it; return None without a change if status and reason are equal.

    `lastTransitionTime` stays while the status stays.
    """
    old = find(conditions, condition_type)
    if old is not None and (old.get("status"), old.get("reason")) == (status, reason):
        return None
    condition = new(condition_type, status, reason, message, wall_s)
    if old is not None and old.get("status") == status and (since := old.get("lastTransitionTime")):
        condition["lastTransitionTime"] = since
    remove(conditions, condition_type)
    conditions.append(condition)
    return condition


def remove(conditions: list[Document], condition_type: str) -> None:
    """Remove the condition of that type from the list."""
    conditions[:] = [c for c in conditions if c.get("type") != condition_type]
