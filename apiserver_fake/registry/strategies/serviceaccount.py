"""Service accounts: nothing but the rules that all objects share."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import metadata
from services.api.meta import Document


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    return metadata(new)


STRATEGIES = {"serviceaccounts": Strategy(validate=_validate)}
