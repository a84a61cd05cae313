"""The events of a watch: changes, the state it begins with, bookmarks, and the error that ends it."""

from __future__ import annotations

import msgspec

from apiserver_fake.storage.records import ADDED, DELETED, MODIFIED, Change, Record, Selection
from services.api.errors import ApiError
from services.api.meta import Document, Resource
from services.api.wire import WatchEvent


def transition_type(change: Change, selection: Selection) -> str:
    """Return the event type of the change for a watch with that selection: ADDED, MODIFIED, DELETED or "" for
    none (W7).
    """
    record, previous = change.record, change.previous
    if previous is not None and previous.fields is record.fields and previous.labels is record.labels:
        # Name and namespace are the same, too: what selects the one selects the other.
        return change.type if selection.matches(record) else ""
    was = previous is not None and selection.matches(previous)
    if change.type != DELETED and selection.matches(record):
        return MODIFIED if was else ADDED
    return DELETED if was else ""


def event_of(kind: str, record: Record, traceparent: str) -> WatchEvent:
    """Return an event with the record's object."""
    return WatchEvent(
        type=kind,
        resource=record.resource,
        namespace=record.namespace,
        name=record.name,
        uid=record.uid,
        rv=record.rv,
        body=record.body,
        traceparent=traceparent,
    )


def event_for(kind: str, change: Change) -> WatchEvent:
    """Return the event of a change for watches that see it with type `kind`.

    An object that stops matching a selector is sent as it last matched, with the version of the change, so that
    informers with a selector see what they lose (W7). Source: upstream
    `staging/src/k8s.io/apiserver/pkg/storage/cacher`.
    """
    event = event_of(kind, change.record, change.traceparent)
    if kind != DELETED or change.type == DELETED or change.previous is None:
        return event
    last = msgspec.json.decode(change.previous.body)
    last["metadata"]["resourceVersion"] = str(change.rv)
    return msgspec.structs.replace(event, body=msgspec.json.encode(last))


def bookmark(resource: Resource, rv: int, *, initial_events_end: bool = False) -> WatchEvent:
    """Return a bookmark: everything up to `rv` was delivered before it (W6)."""
    metadata: Document = {"resourceVersion": str(rv)}
    if initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    body = msgspec.json.encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})
    return WatchEvent(type="BOOKMARK", resource=resource.name, rv=rv, body=body, initial_events_end=initial_events_end)


def error_event(error: ApiError, resource: Resource) -> WatchEvent:
    """Return the event that ends a watch with a Status."""
    return WatchEvent(type="ERROR", resource=resource.name, body=msgspec.json.encode(error.status()))
