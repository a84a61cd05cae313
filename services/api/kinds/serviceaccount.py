"""ServiceAccount (core/v1); stored only."""

from __future__ import annotations

from services.api.meta import AGE, NAME, Resource

RESOURCE = Resource(kind="ServiceAccount", short_names=("sa",), columns=(NAME, AGE))
