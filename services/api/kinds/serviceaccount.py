"""ServiceAccount (core/v1); stored only."""

from __future__ import annotations

from typing import Any

from services.api.meta import Document
from services.api.printing import AGE, NAME, age
from services.api.resources import Resource


def _cells(document: Document, now: float) -> list[Any]:
    return [document["metadata"].get("name", ""), age(document, now)]


RESOURCE = Resource(
    kind="ServiceAccount",
    plural="serviceaccounts",
    singular="serviceaccount",
    short_names=("sa",),
    columns=(NAME, AGE),
    cells=_cells,
)
