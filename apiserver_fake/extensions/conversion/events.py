"""events.k8s.io/v1 Events, which are stored as core/v1 ones: the same object with other names (KEP-383).

Source: upstream `pkg/apis/core/types.go` (one internal type), `staging/src/k8s.io/api/events/v1/types.go`.
"""

from dataclasses import replace
from typing import Final

from apiserver_fake.registry.catalogue import OtherVersion
from apiserver_fake.registry.conversion import Conversion
from services.api.errors import BadRequest
from services.api.kinds.event import RESOURCE as EVENTS
from services.api.meta import Cell, Column, Document
from services.api.printing import cells

RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""Field names of core/v1 and their names in events.k8s.io/v1."""
_STORED = {newer: older for older, newer in RENAMED.items()}
FIELD_LABELS = {
    **{
        f"regarding.{name}": f"involvedObject.{name}"
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reportingController": "reportingComponent",
}
"""Field selector labels of events.k8s.io/v1 and their names in core/v1."""


def _cell(column: Column) -> Cell:
    return lambda document, now_s: cells((column,), _to_stored(document), now_s)[0]


EVENTS_V1 = replace(
    EVENTS,
    group="events.k8s.io",
    columns=tuple(replace(each, source=_cell(each), default="", show=None) for each in EVENTS.columns),
    selectable_fields={
        **{newer: EVENTS.selectable_fields[older] for newer, older in FIELD_LABELS.items()},
        **{name: EVENTS.selectable_fields[name] for name in ("reason", "type")},
    },
)


def _to_stored(document: Document) -> Document:
    version = document.get("apiVersion", EVENTS_V1.api_version)
    if version != EVENTS_V1.api_version:
        text = f"the API version in the data ({version}) does not match the expected API version"
        raise BadRequest(f"{text} ({EVENTS_V1.api_version})")
    found = {_STORED.get(name, name): value for name, value in document.items()}
    return {**found, "apiVersion": EVENTS.api_version, "involvedObject": found.get("involvedObject") or {}}


def _from_stored(document: Document) -> Document:
    found = {RENAMED.get(name, name): value for name, value in document.items()}
    if "apiVersion" in document:
        found["apiVersion"] = EVENTS_V1.api_version
    found.setdefault("eventTime", None)
    return found


TO_STORED = Conversion(lambda documents: [_to_stored(each) for each in documents])
"""Conversion from events.k8s.io/v1 to the stored form. It raises BadRequest for another version."""
FROM_STORED = Conversion(lambda documents: [_from_stored(each) for each in documents])
"""Conversion from the stored form to events.k8s.io/v1."""

OTHER_VERSION: Final = OtherVersion(EVENTS_V1, TO_STORED, FROM_STORED, FIELD_LABELS)
