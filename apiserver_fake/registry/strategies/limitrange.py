"""Limit ranges: one item a type, whose bounds agree with each other; containers' defaults follow from the bounds."""

from typing import Any

from apiserver_fake.admission.limit_ranger import LIMIT_RANGES
from apiserver_fake.strategy import declared
from apiserver_fake.validation.fields import Field, Report, Struct, unique
from apiserver_fake.validation.formats import Cause, Causes, forbidden, invalid, qualified_name, quantity, required
from services.api import quotas
from services.api.kinds.limitrange import CLAIM, CONTAINER, POD
from services.api.meta import Document
from services.api.quantity import milli

_PARTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_NO_DEFAULTS = ("default", "defaultRequest")
_CONTAINERS = frozenset(("cpu", "memory", "ephemeral-storage"))
_KNOWN = quotas.STANDARD | {"storage"}
_STANDARD = _CONTAINERS | {"storage", "pods"}


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
    yield from [*_check_parts(item, item.get("type") or "", path)] or _check_order(item, path)


def _check_parts(item: Document, kind: str, at: str) -> Causes:
    for part in _PARTS:
        values = item.get(part) or {}
        if kind == POD and part in _NO_DEFAULTS:
            if values:
                yield forbidden(f"{at}.{part}", "may not be specified when `type` is 'Pod'")
            continue
        for name, text in values.items():
            here = f"{at}.{part}[{name}]"
            yield from check_name(name, kind, here)
            yield from quantity(here, "cpu" if part == "maxLimitRequestRatio" else name, text)
    if kind == CLAIM and "storage" not in {**(item.get("min") or {}), **(item.get("max") or {})}:
        yield required(f"{at}.limits", "either minimum or maximum storage value is required, but neither was provided")


def check_name(name: str, kind: str, at: str) -> list[Cause]:
    """Check the name of a resource in a limit of that type; a name without a domain is a standard one."""
    causes = qualified_name(at, name)
    if causes or "/" in name or name.startswith("hugepages-"):
        return causes
    if name not in _KNOWN:
        causes = [invalid(at, name, "must be a standard resource type or fully qualified")]
    if kind in (CONTAINER, POD) and name not in _CONTAINERS:
        causes = [*causes, invalid(at, name, "must be a standard resource for containers")]
    return causes


_ORDER = (
    # the smaller, the larger, which of the two is wrong, and what is said of it
    ("min", "max", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "defaultRequest", "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default", "default value {} is greater than max value {}"),
)


def _check_order(item: Document, at: str) -> Causes:
    values = {part: item.get(part) or {} for part in _PARTS}
    for name in sorted({name for amounts in values.values() for name in amounts}):
        has = {part: amounts[name] for part, amounts in values.items() if name in amounts}
        for small, large, wrong, text in _ORDER:
            if small in has and large in has and milli(has[small]) > milli(has[large]):
                yield invalid(f"{at}.{wrong}[{name}]", has[wrong], text.format(has[small], has[large]))
        yield from _check_ratio(has, f"{at}.maxLimitRequestRatio[{name}]")
        yield from _check_overcommit(name, has, f"{at}.defaultRequest[{name}]")


def _check_overcommit(name: str, has: dict[str, Any], at: str) -> Causes:
    """What cannot be overcommitted (hugepages, devices) has one default for both."""
    if name not in _STANDARD and "default" in has and "defaultRequest" in has:
        limit, request = has["default"], has["defaultRequest"]
        if milli(limit) != milli(request):
            yield invalid(at, request, f"default value {limit} must equal to defaultRequest value {request} in {name}")


def _check_ratio(has: dict[str, Any], at: str) -> Causes:
    ratio = has.get("maxLimitRequestRatio")
    if ratio is None:
        return
    if milli(ratio) < 1000:
        yield invalid(at, ratio, f"ratio {ratio} is less than 1")
    elif "max" in has and (least := milli(has.get("min", "0"))):
        widest = milli(has["max"]) / least
        if milli(ratio) / 1000 > widest:
            yield invalid(at, ratio, f"ratio {ratio} is greater than max/min = {widest:f}")


LIMIT = Struct(Field("type", missing="", rule=_type), unique("type"), _amounts, completion=_complete)
SPEC = Struct(Field("limits", default=[], items=LIMIT))
STRATEGIES = {LIMIT_RANGES: declared(Struct(Field("spec", default={}, struct=SPEC)))}
