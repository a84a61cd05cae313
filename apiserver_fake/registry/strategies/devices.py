"""Devices by dynamic resource allocation: classes, claims and their templates, slices (`resource.k8s.io`).

What this server cannot do yet is refused, field by field (`beyond`): a field that was stored and ignored would mislead
its reader, and one that was dropped could turn a request into another one. A class may change at any time: what was
allocated keeps the configuration it was given. A claim's request is fixed once made, its status belongs to its
allocator; of a slice, whose and where it is are fixed, what it offers is the driver's word. Templates are checked as
the claims made from them will be, and never changed. Texts of upstream's `pkg/apis/resource/validation`.
Source: KEP-4381; dra-core 1.3.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from apiserver_fake.strategy import WriteContext, declared, keep_all_but_status
from apiserver_fake.validation.fields import Check, Field, Report, Struct, amount_of, not_repeated, unique
from apiserver_fake.validation.formats import (
    Cause,
    Causes,
    forbidden,
    immutable,
    invalid,
    label,
    labels,
    qualified_name,
    required,
    subdomain,
    too_many,
)
from apiserver_fake.validation.pod.placement import NODE_TERM
from services.api.cel.device_selectors import SelectorError, compile_selector
from services.api.kinds.deviceclass import CLASSES
from services.api.kinds.resourceclaim import ALL, CLAIMS, CONSUMERS_MAX, DEVICES_MAX, EXACT_COUNT
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Document

LIST_MAX, CONFIG_BYTES_MAX, DRIVER_NAME_MAX, POOL_NAME_MAX = 32, 10 * 1024, 63, 253
_ID_RE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
ID_TEXT = "the name must be a C identifier of at most 32 characters"


def beyond(*names: str) -> Check:
    """Return a rule that refuses these fields when they are set: they mean something that nothing here does."""

    def check(holder: Document, at: str, report: Report) -> Causes:
        for name in names:
            if holder.get(name) not in (None, False, [], {}, ""):
                yield forbidden(at + name, "is not supported by this server")

    return check


def driver_name(path: str, value: str) -> list[Cause]:
    """Check a driver's name: a DNS subdomain of at most 63 characters."""
    if not value:
        return [required(path)]
    if len(value) > DRIVER_NAME_MAX:
        return [invalid(path, value, f"must be no more than {DRIVER_NAME_MAX} bytes")]
    return subdomain(path, value)


def pool_name(path: str, value: str) -> list[Cause]:
    """Check a pool's name: DNS subdomains separated by slashes, at most 253 characters."""
    if not value:
        return [required(path)]
    if len(value) > POOL_NAME_MAX:
        return [invalid(path, value, f"must be no more than {POOL_NAME_MAX} bytes")]
    return [cause for part in value.split("/") for cause in subdomain(path, part)]


def attribute_name(path: str, value: str, *, is_full: bool = False) -> list[Cause]:
    """Check `[domain/]id`; `is_full`: the domain must be there."""
    domain, slash, name = value.rpartition("/")
    if is_full and not slash:
        return [invalid(path, value, "must include a domain")]
    causes = driver_name(path, domain) if slash else []
    return causes if _ID_RE.fullmatch(name) else [*causes, invalid(path, value, ID_TEXT)]


def _selector(each: Document, at: str, report: Report) -> Causes:
    """CEL selectors: each must be an expression that can be evaluated here."""
    expression = (each.get("cel") or {}).get("expression") or ""
    if not expression:
        yield required(f"{at}cel" if each.get("cel") is None else f"{at}cel.expression")
        return
    try:
        compile_selector(expression)
    except SelectorError as error:
        yield invalid(f"{at}cel.expression", expression, str(error))


SELECTORS = Field("selectors", most=LIST_MAX, items=Struct(_selector))


def _parameters(parameters: Document, path: str, report: Report) -> Causes:
    if len(msgspec.json.encode(parameters)) > CONFIG_BYTES_MAX:
        yield Cause(path, "FieldValueTooLong", f"Too long: may not be more than {CONFIG_BYTES_MAX} bytes")


OPAQUE = Field(
    "opaque",
    required=True,
    struct=Struct(Field("driver", missing="", form=driver_name), Field("parameters", required=True, rule=_parameters)),
)
"""Configuration for one driver."""


def _one_term(terms: list[Document], path: str, report: Report) -> Causes:
    if len(terms) != 1:
        yield invalid(path, len(terms), "must have exactly one node selector term")
    else:
        NODE_TERM.check(terms[0], f"{path}[0].", report)


ONE_TERM = Struct(Field("nodeSelectorTerms", missing=[], rule=_one_term))
"""A node selector that must have exactly one term."""


NOT_A_REQUEST = "must be the name of a request in the claim"
CONFIGS_GRANTED_MAX = 64


def _exact_count(exactly: Document) -> None:
    if exactly["allocationMode"] == EXACT_COUNT and not exactly.get("count"):
        exactly["count"] = 1


def _count(exactly: Document, at: str, report: Report) -> Causes:
    mode, count = exactly.get("allocationMode"), exactly.get("count") or 0
    if mode == ALL and count:
        yield invalid(f"{at}count", count, f"must not be specified when allocationMode is '{ALL}'")
    elif mode == EXACT_COUNT and count <= 0:
        yield invalid(f"{at}count", count, "must be greater than zero")


_EXACTLY = Struct(
    beyond("adminAccess", "tolerations", "capacity"),
    Field("deviceClassName", required=True, form=subdomain),
    SELECTORS,
    Field("allocationMode", default=EXACT_COUNT, is_blank_absent=True, enum=(ALL, EXACT_COUNT)),
    _count,
    completion=_exact_count,
    are_defaults_last=True,
)
_first_available = beyond("firstAvailable")


def _kind_of_request(request: Document, at: str, report: Report) -> Causes:
    wrong = [*_first_available(request, at, report)]
    yield from wrong
    if request.get("exactly") is None and not wrong:
        yield required(at[:-1], "exactly one of `exactly` or `firstAvailable` is required")


_REQUEST = Struct(
    Field("name", required=True, form=label), unique("name"), _kind_of_request, Field("exactly", struct=_EXACTLY)
)


def _open_scope(devices: Document, at: str, report: Report) -> Causes:
    report.scope = [each.get("name") or "" for each in (devices.get("requests") or [])[:LIST_MAX]]
    return ()


def _known_request(name: str, path: str, report: Report) -> Causes:
    if name not in report.scope:
        yield invalid(path, name, NOT_A_REQUEST)
    yield from not_repeated(name, path, report)


_REQUESTS = Field("requests", most=LIST_MAX, items=Field(rule=_known_request))
"""References to requests of the claim."""


def _attribute(constraint: Document, at: str, report: Report) -> Causes:
    named = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name)]
    if len(named) != 1:
        yield required(at[:-1], "exactly one of matchAttribute or distinctAttribute is required")
    else:
        yield from attribute_name(at + named[0], constraint[named[0]], is_full=True)


CLAIM_SPEC = Struct(
    Field(
        "devices",
        struct=Struct(
            _open_scope,
            Field("requests", most=LIST_MAX, items=_REQUEST),
            Field("constraints", most=LIST_MAX, items=Struct(_REQUESTS, _attribute)),
            Field("config", most=LIST_MAX, items=Struct(_REQUESTS, OPAQUE)),
        ),
    )
)

_CONSUMER = Struct(
    Field("resource", required=True), Field("name", required=True), Field("uid", required=True), unique("uid")
)


def _request_of_result(result: Document, at: str, report: Report) -> Causes:
    if result.get("request") not in report.scope:
        yield invalid(f"{at}request", result.get("request") or "", NOT_A_REQUEST)


_RESULT = Struct(
    beyond(
        "adminAccess", "tolerations", "shareID", "consumedCapacity", "bindingConditions", "bindingFailureConditions"
    ),
    _request_of_result,
    Field("driver", missing="", form=driver_name),
    Field("pool", missing="", form=pool_name),
    Field("device", required=True, form=label),
)
_GRANTED_CONFIG = Struct(Field("source", missing="", enum=("FromClaim", "FromClass")), _REQUESTS, OPAQUE)
ALLOCATION = Struct(
    Field(
        "devices",
        struct=Struct(
            Field("results", most=DEVICES_MAX, items=_RESULT),
            Field("config", most=CONFIGS_GRANTED_MAX, items=_GRANTED_CONFIG),
        ),
    ),
    Field("nodeSelector", struct=ONE_TERM),
)
CLAIM_STATUS = Struct(Field("reservedFor", most=CONSUMERS_MAX, items=_CONSUMER))


def _claim_status(old: Document, new: Document, ctx: WriteContext) -> list[Cause]:
    """Check a write of the status: granted once until taken back, and taken back only when no pod may use it."""
    before, status = old.get("status") or {}, new.get("status") or {}
    was, allocation = before.get("allocation"), status.get("allocation")
    consumers = status.get("reservedFor") or []
    report = Report()
    causes = report.causes
    CLAIM_STATUS.check(status, "status.", report)
    known = {each.get("uid") for each in before.get("reservedFor") or []}
    is_deleting = old["metadata"].get("deletionTimestamp")
    if is_deleting and any((each.get("uid") or "") not in known for each in consumers[:CONSUMERS_MAX]):
        text = "new entries may not be added while `deletionTimestamp` is set"
        causes.append(forbidden("status.reservedFor", text))
    if consumers and allocation is None:
        causes.append(forbidden("status.reservedFor", "may not be specified when `allocated` is not set"))
    if was is not None and allocation is not None:
        causes += immutable("status.allocation", was, allocation)
    elif allocation is not None:
        requests = ((new.get("spec") or {}).get("devices") or {}).get("requests") or ()
        report.scope = [each.get("name") for each in requests]
        ALLOCATION.check(allocation, "status.allocation.", report)
        if not causes and ctx.switches.double_allocation_guard == "apiserver":
            causes += _already_granted(new, ctx.list(CLAIMS, ""))
    return causes


def _already_granted(document: Document, others: Iterable[Document]) -> Causes:
    """Refuse devices that another claim has (switch dra.double_allocation_guard=apiserver)."""
    wanted = {each: index for index, each in enumerate(_devices(document))}
    for other in others:
        meta = other["metadata"]
        if meta.get("uid") == document["metadata"].get("uid"):
            continue
        for each in _devices(other):
            if each in wanted:
                text = f"is allocated to {meta.get('namespace')}/{meta.get('name')} already"
                place = f"status.allocation.devices.results[{wanted[each]}]"
                yield invalid(place, "/".join(each), text)


def _devices(claim: Document) -> list[tuple[str, str, str]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(each.get("driver", ""), each.get("pool", ""), each.get("device", "")) for each in results]


DEVICE_CLASS_SPEC = Struct(
    beyond("extendedResourceName"), SELECTORS, Field("config", most=LIST_MAX, items=Struct(OPAQUE))
)


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Drop what drivers say of their devices, as with the gate DRAResourceClaimDeviceStatus off."""
    keep_all_but_status(old, new, ctx)
    status = new.get("status") or {}
    if "devices" in status:
        new["status"] = {name: value for name, value in status.items() if name != "devices"}


def _keys(annotations: Mapping[str, str], path: str, report: Report) -> Causes:
    for key in annotations:
        yield from qualified_name(path, key.lower())


META = Struct(Field("labels", form=labels), Field("annotations", rule=_keys))
TEMPLATE_SPEC = Struct(Field("metadata", struct=META), Field("spec", default={}, struct=CLAIM_SPEC))


SLICE_DEVICES_MAX, PROPERTIES_MAX, TEXT_MAX = 128, 32, 64
PLACES = ("nodeName", "nodeSelector", "allNodes")
_SEMVER_RE = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def _place(spec: Document, at: str, report: Report) -> Causes:
    named = [name for name in PLACES if spec.get(name)]
    if len(named) != 1:
        text = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
        yield invalid("spec", "{" + ", ".join(named) + "}", text) if named else required("spec", text)
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
SLICE_SPEC = Struct(
    Field("driver", missing="", form=driver_name, is_immutable=True),
    beyond("perDeviceNodeSelection", "sharedCounters"),
    Field("pool", missing={}, struct=POOL),
    Field("nodeName", is_immutable=True),
    _place,
    Field("devices", most=SLICE_DEVICES_MAX, items=DEVICE),
)


STRATEGIES = {
    CLASSES: declared(Struct(Field("spec", default={}, struct=DEVICE_CLASS_SPEC))),
    CLAIMS: declared(
        Struct(Field("spec", default={}, struct=CLAIM_SPEC, is_immutable=True)),
        has_status=True,
        prepare_status=_prepare_status,
        status_rules=_claim_status,
    ),
    "resourceclaimtemplates.resource.k8s.io": declared(
        Struct(Field("spec", default={}, struct=TEMPLATE_SPEC, is_immutable=True))
    ),
    SLICES: declared(Struct(Field("spec", default={}, struct=SLICE_SPEC))),
}
