"""Nodes: taints that make sense, quantities that parse; the creator may bring a first status."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext, keep_status
from apiserver_fake.validation.formats import (
    duplicate,
    label_value,
    metadata,
    qualified_name,
    quantity,
    required,
    too_many,
    unsupported,
)
from services.api.meta import Document

EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_TAINTS_MAX = 200
_POLICY, _OWNERS_MAX = "podPreemptionPolicy", 20


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = new.get("spec") or {}
    _drop_policy(new, ctx)
    new["status"] = new.get("status") or {}


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    new["spec"] = new.get("spec") or {}
    if _POLICY not in (old.get("spec") or {}):
        _drop_policy(new, ctx)


def _drop_policy(new: Document, ctx: WriteContext) -> None:
    """Leave out what the feature gate does not know; what is stored already stays (KEP-5836)."""
    if not ctx.switches.flag("InPlacePodVerticalScalingSchedulerPreemption"):
        new["spec"].pop(_POLICY, None)


def _check_policy(spec: Document) -> list[Cause]:
    """Return what is wrong with the owners who opt out: a set of label keys."""
    owners = (spec.get(_POLICY) or {}).get("disableResizePreemption") or []
    here = f"spec.{_POLICY}.disableResizePreemption"
    causes = too_many(here, len(owners), _OWNERS_MAX)
    seen: set[str] = set()
    for index, owner in enumerate(owners[:_OWNERS_MAX]):
        causes += qualified_name(f"{here}[{index}]", str(owner))
        if owner in seen:
            causes.append(duplicate(f"{here}[{index}]", owner))
        seen.add(owner)
    return causes


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes = metadata(new)
    taints = new["spec"].get("taints") or []
    causes += too_many("spec.taints", len(taints), _TAINTS_MAX)
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints[:_TAINTS_MAX]):
        here = f"spec.taints[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        causes += qualified_name(f"{here}.key", key)
        causes += label_value(f"{here}.value", taint.get("value") or "")
        if not effect:
            causes.append(required(f"{here}.effect"))
        elif effect not in EFFECTS:
            causes.append(unsupported(f"{here}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            causes.append(duplicate(here, f"{key}:{effect}"))
        seen.add((key, effect))
    causes += _check_policy(new["spec"])
    return causes + (_validate_status(None, new, ctx) if old is None else [])


def _validate_status(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes: list[Cause] = []
    status = new.get("status") or {}
    for part in ("capacity", "allocatable"):
        for name, text in (status.get(part) or {}).items():
            causes += quantity(f"status.{part}[{name}]", name, text)
    return causes + too_many("status.conditions", len(status.get("conditions") or []), 64)


STRATEGIES = {
    "nodes": Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_status=_validate_status,
    )
}
