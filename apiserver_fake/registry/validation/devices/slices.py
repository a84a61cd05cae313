"""Validation of ResourceSlices: devices, their location, and the counters of their pool.

A slice has devices, or the counter sets that devices of the pool consume, but not both (KEP-4815). A device
that several claims may share states how requests for its capacities are rounded (KEP-5075). The texts are
upstream's (`pkg/apis/resource/validation`, v1.36). Source: dra-core 1.1.
"""

import re
from collections.abc import Mapping
from typing import Any

from apiserver_fake.registry.validation.devices.claim import binding_conditions
from apiserver_fake.registry.validation.devices.names import (
    NODE_SELECTOR,
    ONE_TERM,
    device_qualified_name,
    driver_name,
    no_two,
    pool_name,
)
from apiserver_fake.registry.validation.devices.request_policy import check_policy
from apiserver_fake.registry.validation.devices.taints import TAINT, TAINTS_MAX
from apiserver_fake.registry.validation.fields import Check, Field, Report, Struct, amount_of
from apiserver_fake.registry.validation.formats import (
    Causes,
    forbidden,
    invalid,
    label,
    required,
    subdomain,
    too_long,
    too_many,
)
from services.api.meta import Document

DEVICES_MAX, DEVICES_ADVANCED_MAX = 128, 64
PROPERTIES_MAX, VALUES_MAX, TEXT_MAX = 32, 48, 64
COUNTER_SETS_MAX, COUNTERS_MAX, CONSUMPTIONS_MAX = 8, 32, 2
PLACES = ("nodeName", "nodeSelector", "allNodes")
WHERE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
WHERE_OF_DEVICE = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
NOT_OF_DEVICES = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)
_PART = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER_RE = re.compile(
    rf"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-{_PART}(\.{_PART})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def _only_true(value: bool, path: str, report: Report) -> Causes:
    if not value:
        yield invalid(path, value, "must be either unset or set to true")


def _node_name(empty: str) -> Check:
    def check(value: str, path: str, report: Report) -> Causes:
        yield from subdomain(path, value) if value else [invalid(path, value, empty)]

    return check


def _places(holder: Document, names: tuple[str, ...]) -> str:
    """Return what a holder says of where it is, as refusals show it; "" when it says one thing."""
    said = [f"`{name}`" for name in names if holder.get(name) not in (None, "", False)]
    return "" if len(said) == 1 else "{" + ", ".join(said) + "}"


def _place(spec: Document, at: str, report: Report) -> Causes:
    if (said := _places(spec, (*PLACES, "perDeviceNodeSelection"))) == "{}":
        yield required(at[:-1], WHERE)
    elif said:
        yield invalid(at[:-1], said, f"{WHERE}, but multiple fields are set")


def _place_of_device(device: Document, at: str, report: Report) -> Causes:
    if not report.scope:
        if any(device.get(name) is not None for name in PLACES):
            yield invalid(at[:-1], None, NOT_OF_DEVICES)
    elif (places := _places(device, PLACES)) == "{}":
        yield required(at[:-1], WHERE_OF_DEVICE)
    elif places:
        yield invalid(at[:-1], places, WHERE_OF_DEVICE)


def _how_many(device: Document, at: str, report: Report) -> Causes:
    attributes = device.get("attributes") or {}
    count = len(attributes) + len(device.get("capacity") or {})
    if count > PROPERTIES_MAX:
        text = f"the total number of attributes and capacities must not exceed {PROPERTIES_MAX}"
        yield invalid(at[:-1], count, text)
    values = sum(max(1, *(len(each.get(name) or ()) for name in LISTS)) for each in attributes.values())
    if values > VALUES_MAX:
        yield invalid(at[:-1], values, f"the total number of attribute values must not exceed {VALUES_MAX}")


SINGLE, LISTS = ("int", "bool", "string", "version"), ("ints", "bools", "strings", "versions")


def _attributes(attributes: Mapping[str, Document], path: str, report: Report) -> Causes:
    for name, value in attributes.items():
        here = f"{path}[{name}]"
        yield from device_qualified_name(here, name)
        yield from _attribute(value, here)


def _attribute(value: Document, at: str) -> Causes:
    names = [name for name in (*SINGLE, *LISTS) if value.get(name) is not None]
    for name in names:
        if name in LISTS:
            if not value[name]:
                yield invalid(f"{at}.{name}", value[name], "must not be empty if specified")
            for index, entry in enumerate(value[name]):
                yield from _text(name[:-1], entry, f"{at}.{name}[{index}]")
        else:
            yield from _text(name, value[name], f"{at}.{name}")
    if len(names) != 1:
        yield invalid(at, value if names else "", "exactly one value must be specified")


def _text(kind: str, value: Any, path: str) -> Causes:
    if kind == "version" and not _SEMVER_RE.fullmatch(value):
        yield invalid(path, value, "must be a string compatible with semver.org spec 2.0.0")
    if kind in ("string", "version") and len(value.encode()) > TEXT_MAX:
        yield too_long(path, TEXT_MAX)


# Like memory: any amount that is not negative, thousandths included.
_AMOUNT = Struct(Field("value", required=True, rule=amount_of("memory")))


def _capacity(device: Document, at: str, report: Report) -> Causes:
    for name, capacity in (device.get("capacity") or {}).items():
        here, before = f"{at}capacity[{name}]", len(report.causes)
        yield from device_qualified_name(here, name)
        _AMOUNT.check(capacity, f"{here}.", report)
        if (policy := capacity.get("requestPolicy")) is None:
            continue
        if not device.get("allowMultipleAllocations"):
            yield forbidden(f"{here}.requestPolicy", "allowMultipleAllocations must be true")
        elif len(report.causes) == before:
            yield from check_policy(capacity["value"], policy, f"{here}.requestPolicy")


def _counters(counters: Mapping[str, Document], path: str, report: Report) -> Causes:
    if wrong := too_many(path, len(counters), COUNTERS_MAX):
        yield from wrong
        return
    for name, counter in counters.items():
        yield from label(f"{path}[{name}]", name)
        _AMOUNT.check(counter, f"{path}[{name}].", report)


_COUNTERS = Field("counters", required=True, missing={}, rule=_counters)
_COUNTER_SET = Struct(Field("name", required=True, form=label), no_two("name"), _COUNTERS)
_CONSUMPTION = Struct(Field("counterSet", required=True, form=label), no_two("counterSet"), _COUNTERS)

DEVICE = Struct(
    Field("name", missing="", form=label),
    no_two("name"),
    _how_many,
    Field("attributes", rule=_attributes),
    _capacity,
    Field("taints", most=TAINTS_MAX, items=TAINT),
    Field("consumesCounters", most=CONSUMPTIONS_MAX, items=_CONSUMPTION),
    Field("nodeName", rule=_node_name("must not be empty")),
    Field("nodeSelector", struct=NODE_SELECTOR),
    Field("allNodes", rule=_only_true),
    _place_of_device,
    binding_conditions,
)
POOL = Struct(
    Field("name", missing="", form=pool_name, is_immutable=True),
    Field("resourceSliceCount", missing=0, minimum=1, text="must be greater than zero"),
    Field("generation", minimum=0, text="must be greater than or equal to zero"),
)


def _is_advanced(device: Document) -> bool:
    attributes = (device.get("attributes") or {}).values()
    return bool(
        device.get("taints")
        or device.get("consumesCounters")
        or any(each.get(name) is not None for each in attributes for name in LISTS)
    )


def _devices(spec: Document, at: str, report: Report) -> Causes:
    """Check the devices: how many there may be depends on what they say, and what they say on the slice."""
    devices = spec.get("devices")
    if spec.get("sharedCounters") is not None and devices is not None:
        yield invalid(at[:-1], "", "only one of `sharedCounters` or `devices` is allowed")
    devices = devices or []
    most = DEVICES_ADVANCED_MAX if any(map(_is_advanced, devices)) else DEVICES_MAX
    if wrong := too_many(f"{at}devices", len(devices), most):
        yield from wrong
        return
    report.scope, report.seen = spec.get("perDeviceNodeSelection"), set()
    for index, device in enumerate(devices):
        DEVICE.check(device, f"{at}devices[{index}].", report)


SLICE_SPEC = Struct(
    Field("driver", missing="", form=driver_name, is_immutable=True),
    Field("pool", missing={}, struct=POOL),
    Field("nodeName", rule=_node_name("must be either unset or set to a non-empty string"), is_immutable=True),
    Field("nodeSelector", struct=ONE_TERM),
    Field("allNodes", rule=_only_true),
    Field("perDeviceNodeSelection", rule=_only_true),
    _place,
    _devices,
    Field("devices", items=DEVICE, is_checked=False),
    Field("sharedCounters", most=COUNTER_SETS_MAX, items=_COUNTER_SET),
)
