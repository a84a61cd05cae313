"""What playing a stage does to its object, as values. Pure."""

from typing import Any

import msgspec

from services.api.meta import Document


class StageEvent(msgspec.Struct, frozen=True):
    """Record an Event about the object."""

    type: str
    reason: str
    message: str


class StagePatch(msgspec.Struct, frozen=True):
    """Patch the object; `type`: json, merge or strategic. `as_user`: impersonated for it, "" for none."""

    type: str
    subresource: str
    body: Any
    as_user: str = ""


class StageDelete(msgspec.Struct, frozen=True):
    """Delete the object at once."""


class StageApply(msgspec.Struct, frozen=True):
    """Create a ResourceSlice, or replace the one that is there."""

    name: str
    document: Document


Operation = StageEvent | StagePatch | StageDelete | StageApply
"""What playing a stage does to its object."""
