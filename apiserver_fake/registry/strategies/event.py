"""Events: core/v1 is lenient; events.k8s.io/v1 requires time, type and reporter, and makes them immutable.

An Event sent through core/v1 must only be consistent. Through events.k8s.io/v1 an Event needs an `eventTime`
and a type and must not set the older fields, and afterwards only its series changes. Source: upstream
`pkg/apis/core/validation/events.go`, `pkg/registry/core/event/strategy.go`; KEP-383.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    IMMUTABLE,
    Causes,
    invalid,
    metadata,
    path_segment,
    plain_text,
    qualified_name,
    required,
    subdomain,
)
from services.api.meta import Document

_MESSAGE_MAX = 4096
_NEW_EVENT_MAX = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
"""Maximum lengths of the texts of an Event that has an `eventTime`."""
_SORT: Final = ("reportingComponent", "reportingInstance", "action", "reason")
"""Members by which events of one sort are alike, besides their namespaces and whether they have an `eventTime`."""
_SIMPLE: Final = frozenset(("name", "namespace", "uid", "creationTimestamp"))
"""Metadata that needs no check besides the name."""
_SHORT: Final = min(_NEW_EVENT_MAX["message"] // 4, 256)
"""Length up to which any text is short enough."""
_OLD: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
"""Fields that an Event of events.k8s.io/v1 must leave unset."""
_FIXED: Final = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
)
_STORED: Final = {"reportingController": "reportingComponent"}
_REFERENCE: Final = {
    "Kind": "kind",
    "Namespace": "namespace",
    "Name": "name",
    "UID": "uid",
    "APIVersion": "apiVersion",
    "ResourceVersion": "resourceVersion",
    "FieldPath": "fieldPath",
}
_STRUCTS: Final = {
    "involvedObject": _REFERENCE,
    "related": _REFERENCE,
    "source": {"Component": "component", "Host": "host"},
}
"""Field names of upstream's internal types, as refusals show them."""
NEWER = "events.k8s.io/v1"
"""The API version in which an Event has other field names and stricter rules than in the stored one."""


def _series(event: Document) -> Causes:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        yield invalid("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def _is_strict(ctx: WriteContext) -> bool:
    return ctx.request.api_version == NEWER


def _lenient(event: Document, controller_field: str) -> Causes:
    """Yield what makes no sense in any event."""
    about, own = (event.get("involvedObject") or {}).get("namespace") or "", event["metadata"].get("namespace") or ""
    if not event.get("eventTime"):
        # Events about cluster-scoped objects name no namespace and live in default.
        if about != own and not (about == "" and own == "default"):
            yield invalid("involvedObject.namespace", about, "does not match event.namespace")
    else:
        if not about and own not in ("default", "kube-system"):
            yield invalid("involvedObject.namespace", about, "does not match event.namespace")
        controller = event.get("reportingComponent") or ""
        if not controller:
            yield required(controller_field)
        yield from qualified_name(controller_field, controller)
        for name, most in _NEW_EVENT_MAX.items():
            text = event.get(name) or ""
            if not text and name != "message":
                yield required(name)
            if len(text.encode()) > most:
                yield invalid(name, "", f"can have at most {most} characters")
    yield from subdomain("namespace", own)


def _create_causes(event: Document) -> Causes:
    """Yield what is wrong with a new event of events.k8s.io/v1."""
    yield from metadata(event, subdomain)
    yield from _series(event)
    if not event.get("eventTime"):
        yield required("eventTime")
    kind = event.get("type") or ""
    if kind not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {kind}")
    for name in _OLD:
        value = event.get(name)
        if any(value.values()) if isinstance(value, dict) else value:
            yield invalid(name, "", "needs to be unset")


def _update_causes(old: Document, new: Document) -> Causes:
    """Yield what changed and may not, in an event of events.k8s.io/v1."""
    if new.get("series") != old.get("series"):
        yield from _series(new)
    for name in _FIXED:
        before, after = (each.get(_STORED.get(name, name)) or None for each in (old, new))
        if before != after:
            yield invalid(name, _shown_value(name, after), IMMUTABLE)


def _shown_value(name: str, value: Any) -> Any:
    if value is None:
        return {"count": 0, "reason": "", "message": "", "type": "", "action": ""}.get(name)
    names = _STRUCTS.get(name)
    return value if names is None else {shown: value.get(own) or "" for shown, own in names.items()}


def _rules(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    yield from _lenient(new, "reportingController" if _is_strict(ctx) else "reportingComponent")
    if _is_strict(ctx):
        yield from _create_causes(new) if old is None else _update_causes(old, new)


def _shorten(event: Document, ctx: WriteContext | None = None) -> None:
    """Complete an event: its message is a text of the maximum length at most."""
    event["message"] = (event.get("message") or "")[:_MESSAGE_MAX]


EVENT_FIELDS = Struct(Field("reason", form=plain_text), Field("message", form=plain_text), completion=_shorten)
_CHECKED = declare_strategy(EVENT_FIELDS, name=path_segment, rules=_rules)


@lru_cache(maxsize=4096)
def _is_valid_sort(about: str, own: str, form: str, *texts: str | None) -> bool:
    """Whether events with these members have no error, whatever their names and messages; `texts`: as `_SORT`.

    `form`: "new" for events with an `eventTime`.
    """
    event: Document = {"metadata": {"namespace": own}, "involvedObject": {"namespace": about}, "eventTime": form}
    event.update(zip(_SORT, texts, strict=True))
    report = Report()
    EVENT_FIELDS.check(event, "", report)
    return not report.causes and not [*_lenient(event, "reportingComponent")]


def _is_valid(event: Document, ctx: WriteContext) -> bool:
    """Whether a new event of core/v1 surely has no error: another of its sort had none, and the rest is simple."""
    meta, name, message = event["metadata"], event["metadata"]["name"], event["message"]
    if not _SIMPLE.issuperset(meta) or "status" in event or ctx.request.api_version == NEWER:
        return False
    if name in ("", ".", "..") or "/" in name or "%" in name or len(message) > _SHORT or not message.isprintable():
        return False
    get = event.get
    texts = tuple(map(get, _SORT))
    if sum(map(len, filter(None, texts))) > _SHORT:
        return False
    about, own = (get("involvedObject") or {}).get("namespace") or "", meta.get("namespace") or ""
    return _is_valid_sort(about, own, "new" if get("eventTime") else "", *texts)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    return () if old is None and _is_valid(new, ctx) else _CHECKED.validate(old, new, ctx)


STRATEGIES = {"events": replace(_CHECKED, prepare_create=_shorten, validate=_validate)}
