"""Validation of request policies: how requests for a share of a capacity are rounded (KEP-5075).

A policy lists values, or a range with steps, and a default for a claim that requests nothing. Steps count whole
units, as upstream's do (`pkg/apis/resource/validation`, v1.36).
"""

from itertools import pairwise

from apiserver_fake.registry.validation.formats import (
    Causes,
    duplicate,
    forbidden,
    invalid,
    quantity,
    required,
    too_many,
)
from services.api.meta import Document
from services.api.quantity import format_amount, milli, units

OPTIONS_MAX = 10


def check_policy(value: str, policy: Document, at: str) -> Causes:
    """Yield the errors in the policy of a capacity of `value`, a valid quantity."""
    options, span, default = policy.get("validValues") or [], policy.get("validRange"), policy.get("default")
    if options and span is not None:
        text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield forbidden(at, text)
        return
    if wrong := [*_unreadable(policy, at)]:
        yield from wrong
    elif options and default is None:
        yield required(f"{at}.default", "required when validValues is defined")
    elif options:
        yield from _options(value, options, default or "", f"{at}.validValues")
    elif span is not None and default is None:
        yield required(f"{at}.default", "required when validRange is defined")
    elif span is not None:
        yield from _range(value, span, default or "", f"{at}.validRange")


def _unreadable(policy: Document, at: str) -> Causes:
    span = policy.get("validRange") or {}
    named = [(f"{at}.default", policy.get("default"))]
    named += [(f"{at}.validValues[{index}]", text) for index, text in enumerate(policy.get("validValues") or [])]
    named += [(f"{at}.validRange.{name}", span.get(name)) for name in ("min", "max", "step")]
    for path, text in named:
        if text is not None:
            yield from quantity(path, "memory", text)


def _options(value: str, options: list[str], default: str, at: str) -> Causes:
    for index, (before, after) in enumerate(pairwise(options), 1):
        if milli(before) > milli(after):
            yield invalid(f"{at}[{index}]", after, "values must be sorted in ascending order")
    if wrong := too_many(at, len(options), OPTIONS_MAX):
        yield from wrong
    else:
        for index, option in enumerate(options):
            if milli(option) > milli(value):
                yield invalid(f"{at}[{index}]", option, f"option is larger than capacity value: {value}")
            if units(option) in map(units, options[:index]):
                yield duplicate(f"{at}[{index}]", str(units(option)))
    if milli(default) not in map(milli, options):
        yield invalid(at, default, "default value is not valid according to the requestPolicy")


def _range(value: str, span: Document, default: str, at: str) -> Causes:
    low, high, step = (span.get(name) for name in ("min", "max", "step"))
    if low is None:
        yield required(f"{at}.min", "required when validRange is defined")
        return
    if milli(low) > milli(value):
        yield invalid(f"{at}.min", low, f"min is larger than capacity value: {value}")
    if milli(default) < milli(low):
        yield invalid(f"{at}.min", default, f"default is less than min: {low}")
    if high is not None:
        if milli(low) > milli(high):
            yield invalid(f"{at}.max", low, f"min is larger than max: {high}")
        if milli(high) > milli(value):
            yield invalid(f"{at}.max", high, f"max is larger than capacity value: {value}")
        if milli(default) > milli(high):
            yield invalid(f"{at}.max", default, f"default is more than max: {high}")
    if step is None:
        return
    if units(step) <= 0:
        yield invalid(f"{at}.step", step, "must be greater than zero")
        return
    if milli(low) + milli(step) > milli(value):
        one = format_amount("memory", units(low) + units(step))
        yield invalid(f"{at}.step", step, f"one step {one} is larger than capacity value: {value}")
    for text in (default, *([high] if high is not None else [])):
        if (units(text) - units(low)) % units(step):
            yield invalid(f"{at}.step", text, f"value is not a multiple of a given step ({step}) from ({low})")
