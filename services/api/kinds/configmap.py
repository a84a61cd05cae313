"""ConfigMap (core/v1); stored only."""

from services.api.meta import AGE, NAME, Column, Document, Resource


def _entries(document: Document, now: float) -> str:
    return str(len(document.get("data") or {}) + len(document.get("binaryData") or {}))


RESOURCE = Resource(kind="ConfigMap", short_names=("cm",), columns=(NAME, Column("Data", _entries), AGE))
