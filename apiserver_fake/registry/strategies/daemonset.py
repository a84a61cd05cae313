"""DaemonSets: defaults, either surge or unavailable nodes, and a count of the template's changes."""

from __future__ import annotations

from apiserver_fake.registry.strategies.deployment import count_or_percentage
from apiserver_fake.strategy import Cause, Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation.formats import immutable, invalid, metadata, not_negative, required, unsupported
from apiserver_fake.validation.pod import defaults as pod_defaults
from apiserver_fake.validation.pod import spec as pod_rules
from services.api.kinds.daemonset import TEMPLATE_GENERATION
from services.api.meta import Document

_COUNTERS = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
    "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
)  # fmt: skip


def _with_defaults(spec: Document) -> Document:
    completed = {"revisionHistoryLimit": 10, **spec}
    strategy = {**(spec.get("updateStrategy") or {})}
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {"maxUnavailable": 1, "maxSurge": 0, **(strategy.get("rollingUpdate") or {})}
    completed["updateStrategy"] = strategy
    if template := spec.get("template"):
        completed["template"] = pod_defaults.template_with_defaults(template)
    return completed


def _number_template(new: Document, number: int) -> None:
    """Write down how often the template has changed; nobody else may say so (a field before apps/v1)."""
    meta = new["metadata"]
    new["metadata"] = {**meta, "annotations": {**(meta.get("annotations") or {}), TEMPLATE_GENERATION: str(number)}}


def _template_number(document: Document) -> int:
    text = (document["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = _with_defaults(new.get("spec") or {})
    _number_template(new, max(1, _template_number(new)))
    drop_status(new, ctx)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    number = _template_number(old)
    if new.get("spec") is not old.get("spec"):
        new["spec"] = _with_defaults(new.get("spec") or {})
        number += new["spec"].get("template") != old["spec"].get("template")
    if _template_number(new) != number:
        _number_template(new, number)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new), new["spec"]
    if old is not None and spec is old["spec"]:
        return causes
    comparing = ctx.switches.flag("TaintTolerationComparisonOperators")
    causes += pod_rules.check_template(spec, "daemonset", comparing=comparing)
    causes += _check_strategy(spec["updateStrategy"])
    if old is not None:
        causes += immutable("spec.selector", old["spec"].get("selector"), spec.get("selector"))
    return causes


def _check_strategy(strategy: Document) -> list[Cause]:
    kind = strategy["type"]
    if kind not in ("RollingUpdate", "OnDelete"):
        return [unsupported("spec.updateStrategy.type", kind, ("RollingUpdate", "OnDelete"))]
    if kind == "OnDelete":
        return []
    causes: list[Cause] = []
    at, numbers = "spec.updateStrategy.rollingUpdate", strategy["rollingUpdate"]
    for name in ("maxUnavailable", "maxSurge"):
        causes += count_or_percentage(f"{at}.{name}", numbers[name])
    if causes:
        return causes
    for name in ("maxUnavailable", "maxSurge"):
        if isinstance(numbers[name], str) and _amount(numbers[name]) > 100:
            causes.append(invalid(f"{at}.{name}", numbers[name], "must not be greater than 100%"))
    unavailable, surge = _amount(numbers["maxUnavailable"]), _amount(numbers["maxSurge"])
    if unavailable and surge:
        text = "may not be set when maxUnavailable is non-zero"
        causes.append(invalid(f"{at}.maxSurge", numbers["maxSurge"], text))
    elif not unavailable and not surge:
        causes.append(required(f"{at}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return causes


def _amount(value: int | str) -> int:
    return value if isinstance(value, int) else int(value[:-1])


def _validate_status(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    before, status = (old or {}).get("status") or {}, new.get("status") or {}
    causes: list[Cause] = []
    for name in _COUNTERS:
        causes += not_negative(f"status.{name}", status.get(name))
    count = status.get("collisionCount") or 0
    if not causes and count < (before.get("collisionCount") or 0):
        causes.append(invalid("status.collisionCount", count, "cannot be decremented"))
    return causes


STRATEGIES = {
    "daemonsets.apps": Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_status=_validate_status,
    )
}
