"""Limit ranges: one item per type, with consistent bounds; defaults of containers are derived from the
bounds.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36), `ValidateLimitRange`.
"""

from apiserver_fake.registry.admission.limit_ranger import LIMIT_RANGES
from apiserver_fake.registry.strategy import declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct, unique
from apiserver_fake.registry.validation.formats import (
    QUANTITY_TEXT,
    Cause,
    Causes,
    forbidden,
    invalid,
    qualified_name,
    required,
)
from apiserver_fake.registry.validation.pod.resources import is_native, name_of_container, resource_name
from services.api.kinds.limitrange import CLAIM, CONTAINER, POD
from services.api.meta import Document
from services.api.quantity import canonical, milli

_RATIO = "maxLimitRequestRatio"
_PARTS = ("max", "min", "default", "defaultRequest", _RATIO)
_NO_DEFAULTS = ("default", "defaultRequest")


def _complete(item: Document) -> None:
    """Give a container's item limits by default from its maximum, requests from those, or from its minimum."""
    if item.get("type") != CONTAINER:
        return
    limits = {**(item.get("max") or {}), **(item.get("default") or {})}
    requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
    parts: Document = {"default": limits, "defaultRequest": requests}
    item.update({name: values for name, values in parts.items() if values})


def _type(kind: str, path: str, report: Report) -> Causes:
    causes = qualified_name(path, kind)
    yield from causes
    if not causes and "/" not in kind and kind not in (CONTAINER, POD, CLAIM):
        yield invalid(path, kind, "must be a standard limit type or fully qualified")


def _amounts(item: Document, at: str, report: Report) -> Causes:
    path = at[:-1]
    causes = [*_check_parts(item, item.get("type") or "", path)]
    yield from causes
    if not any(cause.message.endswith(QUANTITY_TEXT) for cause in causes):
        yield from _check_order(item, path)


def _check_parts(item: Document, kind: str, at: str) -> Causes:
    for part in _PARTS:
        values = item.get(part) or {}
        if kind == POD and part in _NO_DEFAULTS:
            if values:
                yield forbidden(f"{at}.{part}", "may not be specified when `type` is 'Pod'")
            continue
        if part == _RATIO and kind == CLAIM and "storage" not in {**(item.get("min") or {}), **(item.get("max") or {})}:
            text = "either minimum or maximum storage value is required, but neither was provided"
            yield required(f"{at}.limits", text)
        for name, text in values.items():
            here = f"{at}.{part}[{name}]"
            yield from check_name(name, kind, here)
            yield from _quantity_causes(here, text)


def _quantity_causes(path: str, text: str) -> list[Cause]:
    """Refuse what is no quantity; of what sign it is and whether it is whole does not matter here."""
    try:
        milli(text)
    except ValueError:
        return [invalid(path, text, QUANTITY_TEXT)]
    return []


def check_name(name: str, kind: str, at: str) -> list[Cause]:
    """Check the name of a resource in a limit of that type. A name without a domain must be a standard one."""
    return name_of_container(at, name) if kind in (CONTAINER, POD) else resource_name(at, name)


_ORDER = (
    # the smaller, the larger, whose path is named, whose value is shown, and what is said of them
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest",
     "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest",
     "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest",
     "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)  # fmt: skip


def _check_order(item: Document, at: str) -> Causes:
    is_of_pods = item.get("type") == POD
    values = {part: item.get(part) or {} for part in _PARTS if not (is_of_pods and part in _NO_DEFAULTS)}
    for name in sorted({name for amounts in values.values() for name in amounts}):
        has = {part: canonical(amounts[name]) for part, amounts in values.items() if name in amounts}
        for small, large, place, shown, text in _ORDER:
            if small in has and large in has and milli(has[small]) > milli(has[large]):
                yield invalid(f"{at}.{place}[{name}]", has[shown], text.format(has[small], has[large]))
        yield from _check_ratio(has, f"{at}.{_RATIO}[{name}]")
        yield from _check_overcommit(name, has, f"{at}.defaultRequest[{name}]")


def _check_overcommit(name: str, has: dict[str, str], at: str) -> Causes:
    """What cannot be overcommitted (hugepages, devices) has one default for both."""
    if (not is_native(name) or name.startswith("hugepages-")) and "default" in has and "defaultRequest" in has:
        limit, request = has["default"], has["defaultRequest"]
        if milli(limit) != milli(request):
            yield invalid(at, request, f"default value {limit} must equal to defaultRequest value {request} in {name}")


def _check_ratio(has: dict[str, str], at: str) -> Causes:
    ratio = has.get(_RATIO)
    if ratio is None:
        return
    if milli(ratio) < 1000:
        yield invalid(at, ratio, f"ratio {ratio} is less than 1")
    if "max" in has and (least := milli(has.get("min", "0"))):
        widest = milli(has["max"]) / least
        if milli(ratio) / 1000 > widest:
            yield invalid(at, ratio, f"ratio {ratio} is greater than max/min = {widest:f}")


LIMIT = Struct(Field("type", missing="", rule=_type), unique("type"), _amounts, completion=_complete)
SPEC = Struct(Field("limits", default=[], items=LIMIT))
STRATEGIES = {LIMIT_RANGES: declare_strategy(Struct(Field("spec", default={}, struct=SPEC)))}
