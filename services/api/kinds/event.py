"""Event: what a component reports about an object (core/v1; the old schema, with aggregation)."""

from typing import Any

from services.api.meta import Column, Document, ObjectReference, ObjectView, Resource, View
from services.api.times import duration, parse_time


class EventSource(View, frozen=True):
    """The component that reported the event."""

    component: str = ""
    host: str = ""


class Event(ObjectView, frozen=True):
    """An event as components see it. `type`: Normal or Warning."""

    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""


def _ago(stamp: str | None, now: float) -> str:
    return duration(now - parse_time(stamp)) if stamp else "<unknown>"


def _first(event: Document) -> str | None:
    return event.get("firstTimestamp") or event.get("eventTime")


def _last_seen(event: Document, now: float) -> str:
    return _ago((event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or _first(event), now)


def _first_seen(event: Document, now: float) -> str:
    return _ago(_first(event) or event.get("metadata", {}).get("creationTimestamp"), now)


def _count(event: Document, now: float) -> int:
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)


def _object(involved: Document) -> str:
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _source(event: Document, now: float) -> str:
    source = event.get("source", {})
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or event.get("reportingInstance", "")
    return f"{component}, {host}" if host else component


def _involved_field(field: str) -> Any:
    return lambda d: d.get("involvedObject", {}).get(field, "")


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
RESOURCE = Resource(
    Event,
    short_names=("ev",),
    columns=(
        Column("Last Seen", _last_seen),
        Column("Type", "type"),
        Column("Reason", "reason"),
        Column("Object", "involvedObject", default="/", show=_object),
        Column("Subobject", "involvedObject.fieldPath", priority=1),
        Column("Source", _source, priority=1),
        Column("Message", lambda d, now: str(d.get("message") or d.get("note") or "").strip()),
        Column("First Seen", _first_seen, priority=1),
        Column("Count", _count, priority=1),
        Column("Name", "metadata.name", priority=1, format="name"),
    ),
    selectable_fields={
        **{f"involvedObject.{field}": _involved_field(field) for field in _INVOLVED},
        "reason": lambda d: d.get("reason", ""),
        "type": lambda d: d.get("type", ""),
        "source": lambda d: d.get("source", {}).get("component", ""),
        "reportingComponent": lambda d: d.get("reportingComponent", ""),
    },
)
