"""ControllerRevisions: they have data, and it never changes; only their number may."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import immutable, invalid, metadata, required
from services.api.meta import Document


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes = metadata(new)
    if new.get("data") is None:
        causes.append(required("data", "data is mandatory"))
    if (revision := new.get("revision") or 0) < 0:
        causes.append(invalid("revision", revision, "must be greater than or equal to 0"))
    return causes if old is None else causes + immutable("data", old.get("data"), new.get("data"))


STRATEGIES = {"controllerrevisions.apps": Strategy(validate=_validate)}
