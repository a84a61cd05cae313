"""The rules of whole definitions."""

from apiserver_fake.validation.formats import Cause
from services.api.meta import Document


def validate_definition(new: Document, old: Document | None) -> list[Cause]:
    """Return what is wrong with a definition."""
    return []
