"""DaemonSets: defaults, either surge or unavailable nodes, and a count of the template's changes."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import (
    Cause,
    Causes,
    count_or_percentage,
    invalid,
    not_decremented,
    number_of,
    required,
)
from apiserver_fake.validation.pod.spec import workload_fields
from services.api.kinds.daemonset import TEMPLATE_GENERATION
from services.api.meta import Document

COUNTERS = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
)
ROLLING = {"maxUnavailable": 1, "maxSurge": 0}


def _with_numbers(strategy: Document) -> None:
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {**ROLLING, **(strategy.get("rollingUpdate") or {})}


def _check_numbers(strategy: Document, at: str, report: Report) -> Causes:
    if strategy["type"] != "RollingUpdate":
        return
    path, numbers = f"{at}rollingUpdate", strategy["rollingUpdate"]
    wrong = [cause for name in ROLLING for cause in count_or_percentage(f"{path}.{name}", numbers[name])]
    if wrong:
        yield from wrong
        return
    for name in ROLLING:
        if isinstance(numbers[name], str) and number_of(numbers[name]) > 100:
            yield invalid(f"{path}.{name}", numbers[name], "must not be greater than 100%")
    unavailable, surge = number_of(numbers["maxUnavailable"]), number_of(numbers["maxSurge"])
    if unavailable and surge:
        yield invalid(f"{path}.maxSurge", numbers["maxSurge"], "may not be set when maxUnavailable is non-zero")
    elif not unavailable and not surge:
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


STRATEGY = Struct(
    Field("type", default="RollingUpdate", is_blank_absent=True, enum=("RollingUpdate", "OnDelete")),
    _check_numbers,
    completion=_with_numbers,
    are_defaults_last=True,
)
SPEC = Struct(
    *workload_fields("daemonset", has_replicas=False),
    Field("updateStrategy", default={}, struct=STRATEGY),
)
STATUS = Struct(*(Field(name, minimum=0) for name in COUNTERS))


def _number_template(new: Document, number: int) -> None:
    """Write down how often the template has changed; no client may say so (a field before apps/v1)."""
    meta = new["metadata"]
    new["metadata"] = {**meta, "annotations": {**(meta.get("annotations") or {}), TEMPLATE_GENERATION: str(number)}}


def _template_number(document: Document) -> int:
    text = (document["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _create(new: Document, ctx: WriteContext) -> None:
    _number_template(new, max(1, _template_number(new)))


def _update(old: Document, new: Document, ctx: WriteContext) -> None:
    number = _template_number(old) + (new["spec"].get("template") != old["spec"].get("template"))
    if _template_number(new) != number:
        _number_template(new, number)


def _status_rules(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    before, after = (((each or {}).get("status") or {}).get("collisionCount") for each in (old, new))
    return not_decremented("status.collisionCount", before, after)


STRATEGIES = {
    "daemonsets.apps": declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        has_status=True,
        on_create=_create,
        on_update=_update,
        status=STATUS,
        status_rules=_status_rules,
    )
}
