"""ServiceAccount (core/v1); stored only."""

from __future__ import annotations

from services.api.printing import AGE, NAME
from services.api.resources import Resource

RESOURCE = Resource(
    kind="ServiceAccount",
    plural="serviceaccounts",
    singular="serviceaccount",
    short_names=("sa",),
    columns=(
        NAME,
        AGE,
    ),
)
