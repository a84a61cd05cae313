"""ConfigMap (core/v1)."""

from services.api.meta import AGE, NAME, Column, Document, ObjectView, Resource


class ConfigMap(ObjectView, frozen=True):
    """A config map as components see it."""

    data: dict[str, str] = {}


def _entries(document: Document, now: float) -> str:
    return str(len(document.get("data") or {}) + len(document.get("binaryData") or {}))


RESOURCE = Resource(ConfigMap, short_names=("cm",), columns=(NAME, Column("Data", _entries), AGE))
