"""Conditions as documents: set one, keeping the times that have not changed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.api.meta import Condition, Document
from services.api.times import format_time


def as_documents(conditions: Iterable[Condition]) -> list[Document]:
    """Return views as documents."""
    return [msgspec.to_builtins(condition) for condition in conditions]


def find(conditions: list[Document], condition_type: str) -> Document | None:
    """Return the condition of that type, or None."""
    for condition in conditions:
        if condition.get("type") == condition_type:
            return condition
    return None


def put(
    conditions: list[Document],
    condition_type: str,
    status: str,
    reason: str,
    message: str,
    wall_s: float,
    *,
    has_update_time: bool = False,
) -> None:
    """Set a condition in the list; nothing changes when status and reason are already so.

    `lastTransitionTime` stays while the status stays. `has_update_time`: also set `lastUpdateTime`.
    """
    old = find(conditions, condition_type)
    if old is not None and old.get("status") == status and old.get("reason") == reason:
        return
    now = format_time(wall_s)
    new: Document = {"type": condition_type, "status": status, "reason": reason, "message": message}
    if has_update_time:
        new["lastUpdateTime"] = now
    keeps = old is not None and old.get("status") == status and old.get("lastTransitionTime")
    new["lastTransitionTime"] = old["lastTransitionTime"] if old is not None and keeps else now
    remove(conditions, condition_type)
    conditions.append(new)


def remove(conditions: list[Document], condition_type: str) -> None:
    """Take the condition of that type out of the list."""
    conditions[:] = [c for c in conditions if c.get("type") != condition_type]
