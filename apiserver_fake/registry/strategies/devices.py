"""Kinds of dynamic resource allocation: classes, claims and their templates, slices, taint rules
(`resource.k8s.io`).

A class may change at any time: devices already allocated keep the configuration they were given. A claim's
request is immutable. Its status belongs to its allocator, and `devices` in it to the drivers. A slice's driver,
pool and location are immutable; the driver decides what it offers. Templates are checked as the claims made
from them will be, and are immutable. The tables are in `validation/devices`, fields of feature gates in
`registry/gated_fields`. Source: KEP-4381, KEP-4817, KEP-5018, KEP-5055; dra-core 1, 9; kep-5194 2; upstream
`pkg/registry/resource` (v1.36).
"""

import json
from collections.abc import Iterable, Mapping
from functools import partial

from apiserver_fake.registry.authorization.claim_status import check_writer
from apiserver_fake.registry.gated_fields import CLAIM_TEMPLATES, drop_disabled
from apiserver_fake.registry.strategy import WriteContext, declare_strategy, keep_all_but_status
from apiserver_fake.registry.validation.conditions import CONDITION
from apiserver_fake.registry.validation.devices.claim import (
    ALLOCATION,
    CLAIM_SPEC,
    CONSUMER,
    names_claim,
    request_names,
)
from apiserver_fake.registry.validation.devices.device_status import DEVICE_STATUS, DeviceKey, key_of
from apiserver_fake.registry.validation.devices.names import LIST_MAX, OPAQUE, SELECTORS
from apiserver_fake.registry.validation.devices.slices import SLICE_SPEC
from apiserver_fake.registry.validation.devices.taints import CONDITIONS_MAX, TAINT_RULE_SPEC
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    forbidden,
    immutable,
    invalid,
    labels,
    qualified_name,
    too_many,
)
from services.api.errors import NotFound
from services.api.kinds.deviceclass import CLASSES
from services.api.kinds.devicetaintrule import TAINT_RULES
from services.api.kinds.resourceclaim import ADMIN_NAMESPACE_LABEL, CLAIMS
from services.api.kinds.resourceslice import SLICES
from services.api.meta import Document
from services.api.times import format_time

ADMIN_TEXT = f"admin access to devices requires the `{ADMIN_NAMESPACE_LABEL}: true` label on the containing namespace"
"""Refusal of admin access. Its path is upstream's, which leaves out `exactly`, and the outer spec of a template."""
CLAIM_RESERVED = "a claim is no workload: nothing would take its entry off the list; reservedFor.self=true allows it"
TEMPLATE_RESERVED = "may not be set in a template: each claim made from it would name the same workload"
BEING_DELETED = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
BAD_RESOURCE_NAME = "must be a valid extended resource name"


def _admin_access(requests: Iterable[Document], ctx: WriteContext) -> Causes:
    """Refuse devices that are in use to namespaces that are not marked for it; asked on creation only."""
    for index, request in enumerate(requests):
        if (request.get("exactly") or {}).get("adminAccess"):
            yield from _admin_namespace(f"spec.devices.requests[{index}].adminAccess", ctx)
            return


def _admin_namespace(path: str, ctx: WriteContext) -> Causes:
    marks = ctx.labels("namespaces", "", ctx.request.namespace) or {}
    if marks.get(ADMIN_NAMESPACE_LABEL) != "true":
        yield forbidden(path, ADMIN_TEXT)


def _requests(spec: Document) -> list[Document]:
    found: list[Document] = (spec.get("devices") or {}).get("requests") or []
    return found


def _claim(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    if old is not None:
        return
    yield from _admin_access(_requests(new["spec"]), ctx)
    consumer = new["spec"].get("reservedFor") or {}
    if not names_claim(consumer):
        return
    if not ctx.switches.reserved_for_self:
        yield forbidden("spec.reservedFor", CLAIM_RESERVED)
    elif consumer.get("name") != new["metadata"]["name"]:
        yield invalid(
            "spec.reservedFor.name", consumer.get("name"), f"must be {new['metadata']['name']}, the claim's own name"
        )
    elif consumer.get("uid"):
        yield forbidden("spec.reservedFor.uid", "a claim has no uid before it is created")


def _template(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    if old is not None:
        return
    spec = new["spec"].get("spec") or {}
    yield from _admin_access(_requests(spec), ctx)
    if spec.get("reservedFor") is None:
        return
    if not ctx.switches.template_allow_reserved_for:
        yield forbidden("spec.spec.reservedFor", TEMPLATE_RESERVED)
    elif names_claim(spec["reservedFor"]):
        yield forbidden("spec.spec.reservedFor", "a template does not know the names of its claims")


def _results(claim: Document) -> list[Document]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found: list[Document] = (allocation.get("devices") or {}).get("results") or []
    return found


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Drop what drivers said of devices that the claim no longer has, and what feature gates do not allow."""
    keep_all_but_status(old, new, ctx)
    status = new.get("status") or {}
    if devices := status.get("devices"):
        gone = {key_of(each) for each in _results(old)} - {key_of(each) for each in _results(new)}
        kept = [each for each in devices if key_of(each) not in gone]
        rest = {name: value for name, value in status.items() if name != "devices"}
        new["status"] = {**rest, "devices": kept} if kept else rest
    drop_disabled(CLAIMS, old, new, ctx)


def _claim_status(old: Document, new: Document, ctx: WriteContext) -> list[Cause]:
    """Check a write of the status: granted once until taken back, and taken back only when no pod may use it."""
    before, status = old.get("status") or {}, new.get("status") or {}
    was, allocation = before.get("allocation"), status.get("allocation")
    report = Report(ctx.switches)
    causes = report.causes
    causes += check_writer(old, new, ctx)
    if not any(each.get("adminAccess") for each in _results(old)):
        for index, device_result in enumerate(_results(new)):
            if device_result.get("adminAccess"):
                causes += _admin_namespace(f"status.allocation.devices.results[{index}].adminAccess", ctx)
                break
    causes += _consumers(old, status, ctx, report)
    report.scope = {key_of(each) for each in _results(new)}
    DEVICE_STATUSES.check(status, "status.", report)
    if was is not None and allocation is not None:
        causes += immutable("status.allocation", was, allocation)
    elif allocation is not None:
        report.scope = request_names(_requests(new.get("spec") or {}))
        ALLOCATION.check(allocation, "status.allocation.", report)
        if not causes and ctx.switches.double_allocation_guard == "apiserver":
            causes += _already_granted(new, ctx.list(CLAIMS, ""))
    return causes


DEVICE_STATUSES = Struct(Field("devices", items=DEVICE_STATUS))


def _consumers(old: Document, status: Document, ctx: WriteContext, report: Report) -> Causes:
    consumers, path = status.get("reservedFor") or [], "status.reservedFor"
    if wrong := too_many(path, len(consumers), ctx.switches.reserved_for_max):
        yield from wrong
    else:
        report.seen = set()
        for index, consumer in enumerate(consumers):
            CONSUMER.check(consumer, f"{path}[{index}].", report)
    if not consumers:
        return
    if status.get("allocation") is None:
        # An alternative of KEP-5194: a controller reserves a claim for its workload before there are devices.
        are_pods = any(each.get("resource") == "pods" and not each.get("apiGroup") for each in consumers)
        if are_pods or not ctx.switches.reserved_for_allow_without_allocation:
            yield forbidden(path, "may not be specified when `allocated` is not set")
        return
    known = (old.get("status") or {}).get("reservedFor") or []
    if old["metadata"].get("deletionTimestamp") and any(each not in known for each in consumers):
        yield forbidden(path, BEING_DELETED)


def _already_granted(document: Document, others: Iterable[Document]) -> Causes:
    """Refuse devices that another claim has (switch dra.double_allocation_guard=apiserver)."""
    wanted = {key: index for index, each in enumerate(_results(document)) if (key := _exclusive(each))}
    for other in others:
        meta = other["metadata"]
        if meta.get("uid") == document["metadata"].get("uid"):
            continue
        for device_result in _results(other):
            if (key := _exclusive(device_result)) in wanted:
                text = f"is allocated to {meta.get('namespace')}/{meta.get('name')} already"
                yield invalid(f"status.allocation.devices.results[{wanted[key]}]", "/".join(filter(None, key)), text)


def _exclusive(result: Document) -> DeviceKey:
    """Return which device only one claim may have; empty where admin access takes nothing from others."""
    return ("", "", "", "") if result.get("adminAccess") else key_of(result)


def _resource_name(value: str, path: str, report: Report) -> Causes:
    """What `IsExtendedResourceName` takes: qualified, of no domain of Kubernetes' own, and of use as a quota's name."""
    is_own = "/" not in value or "kubernetes.io/" in value or value.startswith("requests.")
    if is_own or qualified_name(path, f"requests.{value}"):
        yield invalid(path, value, BAD_RESOURCE_NAME)


DEVICE_CLASS_SPEC = Struct(
    SELECTORS, Field("config", most=LIST_MAX, items=Struct(OPAQUE)), Field("extendedResourceName", rule=_resource_name)
)


def _keys(annotations: Mapping[str, str], path: str, report: Report) -> Causes:
    for key in annotations:
        yield from qualified_name(path, key.lower())


META = Struct(Field("labels", form=labels), Field("annotations", rule=_keys))
TEMPLATE_SPEC = Struct(Field("metadata", struct=META), Field("spec", default={}, struct=CLAIM_SPEC))


def _with_time_added(taint: Document, ctx: WriteContext) -> Document:
    return taint if taint.get("timeAdded") else {**taint, "timeAdded": format_time(ctx.wall_s)}


def _complete_slice(new: Document, ctx: WriteContext) -> None:
    _date_taints(new, ctx)
    driver = new["spec"].get("driver") or ""
    if driver != driver.lower():
        quoted = json.dumps(driver)
        text = f"spec.driver: driver names should be lowercase; {quoted} contains uppercase characters"
        ctx.warnings.append(text)


def _date_taints(new: Document, ctx: WriteContext) -> None:
    """Say of each taint since when it has been there: as long as its driver does not, since now."""
    devices = new["spec"].get("devices") or []
    if any(not taint.get("timeAdded") for device in devices for taint in device.get("taints") or ()):
        dated = [
            {**each, "taints": [_with_time_added(taint, ctx) for taint in each["taints"]]}
            if each.get("taints")
            else each
            for each in devices
        ]
        new["spec"] = {**new["spec"], "devices": dated}


def _date_rule(old: Document | None, new: Document, ctx: WriteContext) -> None:
    """The time of a rule's taint is that of its effect: another effect begins now, unless the writer says when."""
    taint = new["spec"].get("taint") or {}
    before = ((old or {}).get("spec") or {}).get("taint") or {}
    is_other = old is not None and taint.get("effect") != before.get("effect")
    if is_other and taint.get("timeAdded") == before.get("timeAdded"):
        taint = {name: value for name, value in taint.items() if name != "timeAdded"}
    if taint:
        new["spec"] = {**new["spec"], "taint": _with_time_added(taint, ctx)}


def _create_rule(new: Document, ctx: WriteContext) -> None:
    if not ctx.switches.dra_device_taint_rules:
        raise NotFound("the server could not find the requested resource (feature gate DRADeviceTaintRules is off)")


STRATEGIES = {
    CLASSES: declare_strategy(Struct(Field("spec", default={}, struct=DEVICE_CLASS_SPEC))),
    CLAIMS: declare_strategy(
        Struct(Field("spec", default={}, struct=CLAIM_SPEC, is_immutable=True)),
        has_status=True,
        rules=_claim,
        prepare_status=_prepare_status,
        status_rules=_claim_status,
    ),
    CLAIM_TEMPLATES: declare_strategy(
        Struct(Field("spec", default={}, struct=TEMPLATE_SPEC, is_immutable=True)), rules=_template
    ),
    SLICES: declare_strategy(
        Struct(Field("spec", default={}, struct=SLICE_SPEC)),
        on_create=_complete_slice,
        on_update=lambda old, new, ctx: _complete_slice(new, ctx),
    ),
    TAINT_RULES: declare_strategy(
        Struct(Field("spec", default={}, struct=TAINT_RULE_SPEC)),
        has_status=True,
        before_create=_create_rule,
        on_create=partial(_date_rule, None),
        on_update=_date_rule,
        status=Struct(Field("conditions", most=CONDITIONS_MAX, items=CONDITION)),
    ),
}
