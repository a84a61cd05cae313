"""Disruption budgets: one bound, not both; the status belongs to the disruption controller."""

from __future__ import annotations

from apiserver_fake.registry.strategies.deployment import count_or_percentage
from apiserver_fake.strategy import Cause, Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation.formats import invalid, label_selector, metadata, unsupported
from services.api.meta import Document

_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = new.get("spec") or {}
    drop_status(new, ctx)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    new["spec"] = new.get("spec") or {}


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        if spec.get(name) is not None:
            causes += count_or_percentage(f"spec.{name}", spec[name])
            if not causes and isinstance(spec[name], str) and int(spec[name][:-1]) > 100:
                causes.append(invalid(f"spec.{name}", spec[name], "must not be greater than 100%"))
    if spec.get("selector"):
        causes += label_selector("spec.selector", spec["selector"])
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _POLICIES:
        causes.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return causes


STRATEGIES = {
    "poddisruptionbudgets.policy": Strategy(
        prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate
    )
}
