"""Leases: durations above zero; the server remembers when it saw each renewal."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import invalid, metadata, not_negative
from services.api.meta import Document


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    meta = new["metadata"]
    ctx.memory.renewed_s[f"{meta.get('namespace', '')}/{meta.get('name', '')}"] = ctx.now_s


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    if (old.get("spec") or {}).get("renewTime") != (new.get("spec") or {}).get("renewTime"):
        _prepare_create(new, ctx)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    return causes + not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))


STRATEGIES = {
    "leases.coordination.k8s.io": Strategy(
        prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate
    )
}
