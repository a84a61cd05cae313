"""Claims for devices: the request is fixed once made, the status belongs to whoever allocates (KEP-4381)."""

from __future__ import annotations

from apiserver_fake.rules import Cause, Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation import immutable, metadata
from services.api.meta import Document


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = new.get("spec") or {}
    drop_status(new, ctx)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes = metadata(new)
    return causes if old is None else causes + immutable("spec", old.get("spec"), new.get("spec"))


STRATEGIES = {
    "resourceclaims.resource.k8s.io": Strategy(
        prepare_create=_prepare_create, prepare_update=keep_status, validate=_validate
    )
}
