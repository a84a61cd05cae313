"""Secret (core/v1); stored only. Its data never reaches a log, an event or a trace (X-SEC)."""

from __future__ import annotations

from typing import Any

from services.api.meta import Document
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource


def _cells(document: Document, now: float) -> list[Any]:
    return [
        document["metadata"].get("name", ""), document.get("type", "Opaque"),
        str(len(document.get("data") or {})), age(document, now),
    ]  # fmt: skip


RESOURCE = Resource(
    kind="Secret",
    plural="secrets",
    singular="secret",
    columns=(NAME, Column("Type"), Column("Data"), AGE),
    cells=_cells,
    selectable_fields={"type": lambda d: d.get("type", "")},
)
