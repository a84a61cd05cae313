"""What a claim for devices may ask for, and what may be written down as granted.

Source: KEP-4381; upstream `pkg/apis/resource/validation`; dra-core 1.3.
"""

from __future__ import annotations

from collections.abc import Iterable

from apiserver_fake.strategy import Cause
from apiserver_fake.validation.device import (
    LIST_MAX,
    attribute_name,
    beyond,
    check_one_term,
    check_opaque,
    check_selectors,
    driver_name,
    pool_name,
)
from apiserver_fake.validation.formats import (
    duplicate,
    forbidden,
    immutable,
    invalid,
    label,
    required,
    subdomain,
    too_many,
    unsupported,
)
from services.api.kinds.resourceclaim import ALL, CONSUMERS_MAX, DEVICES_MAX, EXACT_COUNT
from services.api.meta import Document

NOT_A_REQUEST = "must be the name of a request in the claim"
CONFIGS_GRANTED_MAX = 64
SOURCES = ("FromClaim", "FromClass")


def with_defaults(spec: Document) -> Document:
    """Return the claim's spec with what upstream fills in: the mode, and a count of one."""
    devices = spec.get("devices") or {}
    requests = [_filled(each) for each in devices.get("requests") or ()]
    if not requests:
        return spec
    return {**spec, "devices": {**devices, "requests": requests}}


def _filled(request: Document) -> Document:
    exactly = request.get("exactly")
    if exactly is None:
        return request
    exactly = {**exactly, "allocationMode": exactly.get("allocationMode") or EXACT_COUNT}
    if exactly["allocationMode"] == EXACT_COUNT and not exactly.get("count"):
        exactly["count"] = 1
    return {**request, "exactly": exactly}


def check_claim_spec(spec: Document, at: str) -> list[Cause]:
    """Check what a claim asks for; `at` is the path of its spec."""
    devices, here = spec.get("devices") or {}, f"{at}.devices"
    requests = devices.get("requests") or []
    causes = too_many(f"{here}.requests", len(requests), LIST_MAX)
    names: dict[str, None] = {}
    for index, each in enumerate(requests[:LIST_MAX]):
        place, name = f"{here}.requests[{index}]", each.get("name") or ""
        causes += label(f"{place}.name", name) if name else [required(f"{place}.name")]
        if name in names:
            causes.append(duplicate(f"{place}.name", name))
        names[name] = None
        causes += _check_request(each, place)
    constraints = devices.get("constraints") or []
    causes += too_many(f"{here}.constraints", len(constraints), LIST_MAX)
    for index, each in enumerate(constraints[:LIST_MAX]):
        causes += _check_constraint(each, names, f"{here}.constraints[{index}]")
    configs = devices.get("config") or []
    causes += too_many(f"{here}.config", len(configs), LIST_MAX)
    for index, each in enumerate(configs[:LIST_MAX]):
        place = f"{here}.config[{index}]"
        causes += _check_references(each.get("requests") or [], names, f"{place}.requests")
        causes += check_opaque(each, place)
    return causes


def _check_request(request: Document, at: str) -> list[Cause]:
    causes = beyond(request, ("firstAvailable",), at)
    exactly, here = request.get("exactly"), f"{at}.exactly"
    if exactly is None:
        return causes or [required(at, "exactly one of `exactly` or `firstAvailable` is required")]
    causes += beyond(exactly, ("adminAccess", "tolerations", "capacity"), here)
    name = exactly.get("deviceClassName") or ""
    causes += subdomain(f"{here}.deviceClassName", name) if name else [required(f"{here}.deviceClassName")]
    causes += check_selectors(exactly.get("selectors") or [], f"{here}.selectors")
    mode, count = exactly.get("allocationMode"), exactly.get("count") or 0
    if mode not in (ALL, EXACT_COUNT):
        causes.append(unsupported(f"{here}.allocationMode", mode, (ALL, EXACT_COUNT)))
    elif mode == ALL and count:
        text = f"must not be specified when allocationMode is '{ALL}'"
        causes.append(invalid(f"{here}.count", count, text))
    elif mode == EXACT_COUNT and count <= 0:
        causes.append(invalid(f"{here}.count", count, "must be greater than zero"))
    return causes


def _check_constraint(constraint: Document, names: Iterable[str], at: str) -> list[Cause]:
    causes = _check_references(constraint.get("requests") or [], names, f"{at}.requests")
    named = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name)]
    if len(named) != 1:
        return [*causes, required(at, "exactly one of matchAttribute or distinctAttribute is required")]
    return causes + attribute_name(f"{at}.{named[0]}", constraint[named[0]], is_full=True)


def _check_references(references: list[str], names: Iterable[str], at: str) -> list[Cause]:
    causes = too_many(at, len(references), LIST_MAX)
    for index, each in enumerate(references[:LIST_MAX]):
        if each not in names:
            causes.append(invalid(f"{at}[{index}]", each, NOT_A_REQUEST))
        if each in references[:index]:
            causes.append(duplicate(f"{at}[{index}]", each))
    return causes


def check_claim_status(old: Document, new: Document) -> list[Cause]:
    """Check a write of the status: granted once until taken back, and taken back only when nobody may use it."""
    before, status = old.get("status") or {}, new.get("status") or {}
    was, allocation = before.get("allocation"), status.get("allocation")
    consumers = status.get("reservedFor") or []
    causes = _check_consumers(old, before.get("reservedFor") or [], consumers)
    if consumers and allocation is None:
        causes.append(forbidden("status.reservedFor", "may not be specified when `allocated` is not set"))
    if was is not None and allocation is not None:
        causes += immutable("status.allocation", was, allocation)
    elif allocation is not None:
        causes += _check_allocation(allocation, new.get("spec") or {})
    return causes


def _check_consumers(claim: Document, before: list[Document], consumers: list[Document]) -> list[Cause]:
    at = "status.reservedFor"
    causes = too_many(at, len(consumers), CONSUMERS_MAX)
    seen: dict[str, None] = {}
    for index, each in enumerate(consumers[:CONSUMERS_MAX]):
        causes += [required(f"{at}[{index}].{name}") for name in ("resource", "name", "uid") if not each.get(name)]
        uid = each.get("uid") or ""
        if uid in seen:
            causes.append(duplicate(f"{at}[{index}].uid", uid))
        seen[uid] = None
    known = {each.get("uid") for each in before}
    if claim["metadata"].get("deletionTimestamp") and any(uid not in known for uid in seen):
        causes.append(forbidden(at, "new entries may not be added while `deletionTimestamp` is set"))
    return causes


def _check_allocation(allocation: Document, spec: Document) -> list[Cause]:
    at, devices = "status.allocation", allocation.get("devices") or {}
    results, here = devices.get("results") or [], f"{at}.devices.results"
    names = [each.get("name") for each in (spec.get("devices") or {}).get("requests") or ()]
    causes = too_many(here, len(results), DEVICES_MAX)
    for index, each in enumerate(results[:DEVICES_MAX]):
        place = f"{here}[{index}]"
        unknown = ("adminAccess", "tolerations", "shareID", "consumedCapacity", "bindingConditions",
                   "bindingFailureConditions")  # fmt: skip
        causes += beyond(each, unknown, place)
        if each.get("request") not in names:
            causes.append(invalid(f"{place}.request", each.get("request") or "", NOT_A_REQUEST))
        causes += driver_name(f"{place}.driver", each.get("driver") or "")
        causes += pool_name(f"{place}.pool", each.get("pool") or "")
        device = each.get("device") or ""
        causes += label(f"{place}.device", device) if device else [required(f"{place}.device")]
    configs = devices.get("config") or []
    causes += too_many(f"{at}.devices.config", len(configs), CONFIGS_GRANTED_MAX)
    for index, each in enumerate(configs[:CONFIGS_GRANTED_MAX]):
        place = f"{at}.devices.config[{index}]"
        if each.get("source") not in SOURCES:
            causes.append(unsupported(f"{place}.source", each.get("source") or "", SOURCES))
        causes += _check_references(each.get("requests") or [], [str(name) for name in names], f"{place}.requests")
        causes += check_opaque(each, place)
    if (selector := allocation.get("nodeSelector")) is not None:
        causes += check_one_term(selector, f"{at}.nodeSelector")
    return causes


def already_granted(document: Document, others: Iterable[Document]) -> list[Cause]:
    """Refuse devices that another claim has (switch dra.double_allocation_guard=apiserver)."""
    wanted = {each: index for index, each in enumerate(_devices(document))}
    uid = document["metadata"].get("uid")
    causes = []
    for other in others:
        if other["metadata"].get("uid") == uid:
            continue
        for each in _devices(other):
            if each in wanted:
                meta = other["metadata"]
                text = f"is allocated to {meta.get('namespace')}/{meta.get('name')} already"
                place = f"status.allocation.devices.results[{wanted[each]}]"
                causes.append(invalid(place, "/".join(each), text))
    return causes


def _devices(claim: Document) -> list[tuple[str, str, str]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(each.get("driver", ""), each.get("pool", ""), each.get("device", "")) for each in results]
