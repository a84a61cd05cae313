"""What a claim for devices may ask for, and what may be written down as granted.

Source: KEP-4381; upstream `pkg/apis/resource/validation`; dra-core 1.3.
"""

from __future__ import annotations

from collections.abc import Iterable

from apiserver_fake.validation.device import (
    LIST_MAX,
    ONE_TERM,
    OPAQUE,
    SELECTORS,
    attribute_name,
    beyond,
    driver_name,
    pool_name,
)
from apiserver_fake.validation.fields import Field, Report, Struct, not_repeated, unique
from apiserver_fake.validation.formats import Cause, Causes, forbidden, immutable, invalid, label, required, subdomain
from services.api.kinds.resourceclaim import ALL, CONSUMERS_MAX, DEVICES_MAX, EXACT_COUNT
from services.api.meta import Document

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
        "adminAccess",
        "tolerations",
        "shareID",
        "consumedCapacity",
        "bindingConditions",
        "bindingFailureConditions",
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


def check_claim_status(old: Document, new: Document) -> list[Cause]:
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
