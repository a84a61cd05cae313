"""Slices of device pools: whose, and where they are, is fixed; what they offer is the driver's word (KEP-4381)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.device import ONE_TERM, attribute_name, beyond, driver_name, pool_name
from apiserver_fake.validation.fields import Field, Report, Struct, amount_of, unique
from apiserver_fake.validation.formats import Cause, Causes, invalid, label, required, subdomain, too_many
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Document

DEVICES_MAX, PROPERTIES_MAX, TEXT_MAX = 128, 32, 64
PLACES = ("nodeName", "nodeSelector", "allNodes")
_SEMVER_RE = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def _place(spec: Document, at: str, report: Report) -> Causes:
    named = [name for name in PLACES if spec.get(name)]
    if len(named) != 1:
        text = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
        wrong = invalid("spec", "{" + ", ".join(named) + "}", text) if named else required("spec", text)
        yield wrong
    elif named == ["nodeName"]:
        yield from subdomain("spec.nodeName", spec["nodeName"])
    elif named == ["nodeSelector"]:
        ONE_TERM.check(spec["nodeSelector"], "spec.nodeSelector.", report)


def _how_many(device: Document, at: str, report: Report) -> Causes:
    count = len(device.get("attributes") or {}) + len(device.get("capacity") or {})
    yield from too_many(at[:-1], count, PROPERTIES_MAX)


def _attributes(attributes: Mapping[str, Document], path: str, report: Report) -> Causes:
    for name, value in attributes.items():
        here = f"{path}[{name}]"
        yield from attribute_name(here, name) + _check_attribute(value, here)


def _check_attribute(value: Document, at: str) -> list[Cause]:
    named = [name for name in ("int", "bool", "string", "version") if value.get(name) is not None]
    if len(named) != 1:
        return [required(at, "exactly one value must be specified")]
    text = value[named[0]]
    if named[0] in ("string", "version") and len(text) > TEXT_MAX:
        return [Cause(f"{at}.{named[0]}", "FieldValueTooLong", f"Too long: may not be more than {TEXT_MAX} bytes")]
    if named[0] == "version" and not _SEMVER_RE.fullmatch(text):
        return [invalid(f"{at}.version", text, "must be a string compatible with semver.org spec 2.0.0")]
    return []


# Like memory: any amount that is not negative, thousandths included.
CAPACITY = Struct(beyond("requestPolicy"), Field("value", required=True, rule=amount_of("memory")))


def _capacity(amounts: Mapping[str, Document], path: str, report: Report) -> Causes:
    for name, value in amounts.items():
        yield from attribute_name(f"{path}[{name}]", name)
        CAPACITY.check(value, f"{path}[{name}].", report)


DEVICE = Struct(
    Field("name", required=True, form=label),
    unique("name"),
    beyond(
        "nodeName",
        "nodeSelector",
        "allNodes",
        "consumesCounters",
        "taints",
        "bindsToNode",
        "bindingConditions",
        "bindingFailureConditions",
        "allowMultipleAllocations",
    ),
    _how_many,
    Field("attributes", rule=_attributes),
    Field("capacity", rule=_capacity),
)
POOL = Struct(
    Field("name", missing="", form=pool_name, is_immutable=True),
    Field("generation", minimum=0),
    Field("resourceSliceCount", missing=0, minimum=1, text="must be greater than zero"),
)
SPEC = Struct(
    Field("driver", missing="", form=driver_name, is_immutable=True),
    beyond("perDeviceNodeSelection", "sharedCounters"),
    Field("pool", missing={}, struct=POOL),
    Field("nodeName", is_immutable=True),
    _place,
    Field("devices", most=DEVICES_MAX, items=DEVICE),
)
STRATEGIES = {SLICES: declared(Struct(Field("spec", default={}, struct=SPEC)))}
