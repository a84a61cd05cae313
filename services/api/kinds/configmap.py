"""ConfigMap (core/v1); stored only."""

from __future__ import annotations

from services.api.meta import Document
from services.api.printing import AGE, NAME
from services.api.resources import Column, Resource


def _entries(document: Document, now: float) -> str:
    return str(len(document.get("data") or {}) + len(document.get("binaryData") or {}))


RESOURCE = Resource(
    kind="ConfigMap",
    plural="configmaps",
    singular="configmap",
    short_names=("cm",),
    columns=(
        NAME,
        Column("Data", _entries),
        AGE,
    ),
)
