"""ServiceAccount (core/v1); stored only."""

from services.api.meta import AGE, NAME, Resource

RESOURCE = Resource(kind="ServiceAccount", short_names=("sa",), columns=(NAME, AGE))
