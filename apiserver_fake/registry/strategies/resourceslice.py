"""Slices of device pools: whose, and where they are, is fixed; what they offer is the driver's word (KEP-4381)."""

from __future__ import annotations

import re

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.device import attribute_name, beyond, check_one_term, driver_name, pool_name
from apiserver_fake.validation.formats import (
    duplicate,
    immutable,
    invalid,
    label,
    metadata,
    not_negative,
    quantity,
    required,
    subdomain,
    too_many,
)
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Document

DEVICES_MAX, PROPERTIES_MAX, TEXT_MAX = 128, 32, 64
_PLACES = ("nodeName", "nodeSelector", "allNodes")
_BEYOND_OF_SLICES = ("perDeviceNodeSelection", "sharedCounters")
_BEYOND_OF_DEVICES = (
    "nodeName", "nodeSelector", "allNodes", "consumesCounters", "taints", "bindsToNode", "bindingConditions",
    "bindingFailureConditions", "allowMultipleAllocations",
)  # fmt: skip
_SEMVER_RE = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = new.get("spec") or {}


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    new["spec"] = new.get("spec") or {}


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    spec, at = new["spec"], "spec"
    causes = metadata(new) + driver_name("spec.driver", spec.get("driver") or "")
    causes += beyond(spec, _BEYOND_OF_SLICES, at)
    pool = spec.get("pool") or {}
    causes += pool_name("spec.pool.name", pool.get("name") or "")
    causes += not_negative("spec.pool.generation", pool.get("generation"))
    count = pool.get("resourceSliceCount") or 0
    if count <= 0:
        causes.append(invalid("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    causes += _check_place(spec)
    devices = spec.get("devices") or []
    causes += too_many("spec.devices", len(devices), DEVICES_MAX)
    names: dict[str, None] = {}
    for index, each in enumerate(devices[:DEVICES_MAX]):
        here, name = f"spec.devices[{index}]", each.get("name") or ""
        causes += label(f"{here}.name", name) if name else [required(f"{here}.name")]
        if name in names:
            causes.append(duplicate(f"{here}.name", name))
        names[name] = None
        causes += _check_device(each, here)
    if old is not None:
        before = old["spec"]
        causes += immutable("spec.driver", before.get("driver"), spec.get("driver"))
        causes += immutable("spec.pool.name", (before.get("pool") or {}).get("name"), pool.get("name"))
        causes += immutable("spec.nodeName", before.get("nodeName"), spec.get("nodeName"))
    return causes


def _check_place(spec: Document) -> list[Cause]:
    named = [name for name in _PLACES if spec.get(name)]
    if len(named) != 1:
        text = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
        return [invalid("spec", "{" + ", ".join(named) + "}", text)] if named else [required("spec", text)]
    if named == ["nodeName"]:
        return subdomain("spec.nodeName", spec["nodeName"])
    return check_one_term(spec["nodeSelector"], "spec.nodeSelector") if named == ["nodeSelector"] else []


def _check_device(device: Document, at: str) -> list[Cause]:
    causes = beyond(device, _BEYOND_OF_DEVICES, at)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    causes += too_many(at, len(attributes) + len(capacity), PROPERTIES_MAX)
    for name, value in attributes.items():
        here = f"{at}.attributes[{name}]"
        causes += attribute_name(here, name) + _check_attribute(value, here)
    for name, value in capacity.items():
        here = f"{at}.capacity[{name}]"
        causes += attribute_name(here, name) + beyond(value, ("requestPolicy",), here)
        text = value.get("value")
        # Like memory: any amount that is not negative, thousandths included.
        causes += quantity(f"{here}.value", "memory", text) if text is not None else [required(f"{here}.value")]
    return causes


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


STRATEGIES = {SLICES: Strategy(prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate)}
