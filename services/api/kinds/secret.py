"""Secret (core/v1); stored only. Its data never reaches a log, an event or a trace (X-SEC)."""

from __future__ import annotations

from services.api.meta import Document
from services.api.printing import AGE, NAME
from services.api.resources import Column, Resource


def _entries(document: Document, now: float) -> str:
    return str(len(document.get("data") or {}))


RESOURCE = Resource(
    kind="Secret",
    plural="secrets",
    singular="secret",
    columns=(
        NAME,
        Column("Type", "type", default="Opaque"),
        Column("Data", _entries),
        AGE,
    ),
    selectable_fields={"type": lambda d: d.get("type", "")},
)
