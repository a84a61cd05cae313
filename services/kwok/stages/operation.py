"""Operations of a stage on its object, and their outcomes, as values. Pure."""

from typing import Any, NamedTuple

import msgspec

from services.api.meta import Document


class StageEvent(msgspec.Struct, frozen=True):
    """Operation: record an Event about the object."""

    type: str
    reason: str
    message: str


class StagePatch(msgspec.Struct, frozen=True):
    """Operation: patch the object; `type`: json, merge or strategic. `as_user`: the impersonated user, empty for
    none.
    """

    type: str
    subresource: str
    body: Any
    as_user: str = ""


class StageDelete(msgspec.Struct, frozen=True):
    """Operation: delete the object at once."""


class StageApply(msgspec.Struct, frozen=True):
    """Operation: create a ResourceSlice, or replace the existing one."""

    name: str
    document: Document


Operation = StageEvent | StagePatch | StageDelete | StageApply
"""One operation of a stage on its object."""


class Outcome(NamedTuple):
    """Outcome of an operation: the last HTTP code (0: no answer), the message of a refusal, and the resulting
    object.
    """

    code: int
    said: str = ""
    body: bytes = b""

    @property
    def is_done(self) -> bool:
        """Whether the call succeeded."""
        return 200 <= self.code < 300

    @property
    def is_lost(self) -> bool:
        """Whether the same call may be repeated: no answer came, or one that does not concern the object."""
        return self.code in (0, 429) or self.code >= 500

    @property
    def is_refused(self) -> bool:
        """Whether the stage itself is wrong; False if the object is gone or was changed, or the call must wait."""
        return 400 <= self.code < 500 and self.code not in (404, 409, 429)
