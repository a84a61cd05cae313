"""What playing a stage does to its object, and how that ended, as values. Pure."""

from typing import Any, NamedTuple

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


class Outcome(NamedTuple):
    """How playing ended: the last code (0: no answer came), what a refusal said, and the object after it."""

    code: int
    said: str = ""
    body: bytes = b""

    @property
    def is_done(self) -> bool:
        """Whether the call was made."""
        return 200 <= self.code < 300

    @property
    def is_lost(self) -> bool:
        """Whether the same may be asked again: no answer came, or none that is about the object."""
        return self.code in (0, 429) or self.code >= 500

    @property
    def is_refused(self) -> bool:
        """Whether the stage itself is wrong, and not only late: for what is gone, was changed or must wait."""
        return 400 <= self.code < 500 and self.code not in (404, 409, 429)
