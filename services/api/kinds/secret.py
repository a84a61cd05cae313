"""Secret (core/v1); stored only. Its data never reaches a log, an event or a trace (X-SEC)."""

from services.api.meta import AGE, NAME, Column, Document, Resource


def _entries(document: Document, now: float) -> str:
    return str(len(document.get("data") or {}))


RESOURCE = Resource(
    kind="Secret",
    columns=(NAME, Column("Type", "type", default="Opaque"), Column("Data", _entries), AGE),
    selectable_fields={"type": lambda d: d.get("type", "")},
)
