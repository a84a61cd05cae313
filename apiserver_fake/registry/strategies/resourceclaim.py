"""Claims for devices: the request is fixed once made, the status belongs to its allocator (KEP-4381)."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext, keep_all_but_status
from apiserver_fake.validation.claim import CLAIM_SPEC, already_granted, check_claim_status
from apiserver_fake.validation.fields import Field, Struct
from apiserver_fake.validation.formats import Cause
from services.api.kinds.resourceclaim import CLAIMS
from services.api.meta import Document


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Drop what drivers say of their devices, as with the gate DRAResourceClaimDeviceStatus off."""
    keep_all_but_status(old, new, ctx)
    status = new.get("status") or {}
    if "devices" in status:
        new["status"] = {name: value for name, value in status.items() if name != "devices"}


def _status_rules(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    assert old is not None, "a status is of an object that exists"
    causes = check_claim_status(old, new)
    had, has = ((each.get("status") or {}).get("allocation") for each in (old, new))
    if not causes and had is None and has and ctx.switches.double_allocation_guard == "apiserver":
        causes += already_granted(new, ctx.list(CLAIMS, ""))
    return causes


STRATEGIES = {
    CLAIMS: declared(
        Struct(Field("spec", default={}, struct=CLAIM_SPEC, is_immutable=True)),
        has_status=True,
        prepare_status=_prepare_status,
        status_rules=_status_rules,
    )
}
