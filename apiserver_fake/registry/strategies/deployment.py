"""Deployments: defaults, the rolling-update numbers, and a selector that never changes."""

from __future__ import annotations

import re

from apiserver_fake.strategy import Cause, Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation.formats import forbidden, immutable, invalid, metadata, unsupported
from apiserver_fake.validation.pod import defaults as pod_defaults
from apiserver_fake.validation.pod import spec as pod_rules
from services.api.meta import Document

_PERCENT = re.compile(r"[0-9]{1,9}%")


def _with_defaults(spec: Document) -> Document:
    completed = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, **spec}
    strategy = {**(spec.get("strategy") or {})}
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {
            "maxUnavailable": "25%",
            "maxSurge": "25%",
            **(strategy.get("rollingUpdate") or {}),
        }
    completed["strategy"] = strategy
    if template := spec.get("template"):
        completed["template"] = pod_defaults.template_with_defaults(template)
    return completed


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = _with_defaults(new.get("spec") or {})
    drop_status(new, ctx)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if new.get("spec") is not old.get("spec"):
        new["spec"] = _with_defaults(new.get("spec") or {})


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    if old is not None and spec is old["spec"]:
        return causes
    causes += pod_rules.check_template(
        spec, "deployment", comparing=ctx.switches.flag("TaintTolerationComparisonOperators")
    )
    causes += _check_strategy(spec["strategy"])
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if deadline is not None and deadline <= ready:
        causes.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    if old is not None:
        causes += immutable("spec.selector", old["spec"].get("selector"), spec.get("selector"))
    return causes


def _check_strategy(strategy: Document) -> list[Cause]:
    kind, numbers = strategy["type"], strategy.get("rollingUpdate")
    if kind not in ("Recreate", "RollingUpdate"):
        return [unsupported("spec.strategy.type", kind, ("Recreate", "RollingUpdate"))]
    if kind == "Recreate":
        if numbers is None:
            return []
        return [forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")]
    causes: list[Cause] = []
    at = "spec.strategy.rollingUpdate"
    numbers = numbers or {}
    for name in ("maxUnavailable", "maxSurge"):
        causes += count_or_percentage(f"{at}.{name}", numbers[name])
    if not causes:
        if _is_zero(numbers["maxUnavailable"]) and _is_zero(numbers["maxSurge"]):
            causes.append(
                invalid(f"{at}.maxUnavailable", numbers["maxUnavailable"], "may not be 0 when `maxSurge` is 0")
            )
        if isinstance(numbers["maxUnavailable"], str) and int(numbers["maxUnavailable"][:-1]) > 100:
            causes.append(invalid(f"{at}.maxUnavailable", numbers["maxUnavailable"], "must not be greater than 100%"))
    return causes


def count_or_percentage(path: str, value: int | str) -> list[Cause]:
    """Check a number not below 0 or a text such as `25%`."""
    if isinstance(value, int):
        return [] if value >= 0 else [invalid(path, value, "must be greater than or equal to 0")]
    if _PERCENT.fullmatch(value):
        return []
    return [
        invalid(
            path,
            value,
            "a valid percent string must be a numeric string followed by an ending '%' "
            "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        )
    ]


def _is_zero(value: int | str) -> bool:
    return value == 0 or (isinstance(value, str) and int(value[:-1]) == 0)


STRATEGIES = {
    "deployments.apps": Strategy(prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate)
}
