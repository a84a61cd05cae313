"""Claims for devices: the request is fixed once made, the status belongs to whoever allocates (KEP-4381)."""

from __future__ import annotations

from apiserver_fake.strategy import (
    Cause,
    Strategy,
    WriteContext,
    drop_status,
    keep_all_but_status,
    keep_status,
)
from apiserver_fake.validation.claim import already_granted, check_claim_spec, check_claim_status, with_defaults
from apiserver_fake.validation.formats import immutable, metadata
from services.api.kinds.resourceclaim import CLAIMS
from services.api.meta import Document


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = with_defaults(new.get("spec") or {})
    drop_status(new, ctx)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if new.get("spec") is not old.get("spec"):
        new["spec"] = with_defaults(new.get("spec") or {})


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Drop what drivers say of their devices, as with the gate DRAResourceClaimDeviceStatus off."""
    keep_all_but_status(old, new, ctx)
    status = new.get("status") or {}
    if "devices" in status:
        new["status"] = {name: value for name, value in status.items() if name != "devices"}


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    if old is not None:
        return metadata(new) + immutable("spec", old.get("spec"), new.get("spec"))
    return metadata(new) + check_claim_spec(new["spec"], "spec")


def _validate_status(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    assert old is not None, "a status is of an object that exists"
    causes = check_claim_status(old, new)
    had, has = ((each.get("status") or {}).get("allocation") for each in (old, new))
    if not causes and had is None and has and ctx.switches.choice("dra.double_allocation_guard") == "apiserver":
        causes += already_granted(new, ctx.list(CLAIMS, ""))
    return causes


STRATEGIES = {
    CLAIMS: Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        prepare_status=_prepare_status,
        validate_status=_validate_status,
    )
}
