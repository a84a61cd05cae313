"""ConfigMap (core/v1); stored only."""

from __future__ import annotations

from typing import Any

from services.api.meta import Document
from services.api.printing import AGE, NAME, age
from services.api.resources import Column, Resource


def _cells(document: Document, now: float) -> list[Any]:
    entries = len(document.get("data") or {}) + len(document.get("binaryData") or {})
    return [document["metadata"].get("name", ""), str(entries), age(document, now)]


RESOURCE = Resource(
    kind="ConfigMap",
    plural="configmaps",
    singular="configmap",
    short_names=("cm",),
    columns=(NAME, Column("Data"), AGE),
    cells=_cells,
)
