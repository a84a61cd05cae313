"""Conditions as documents, under the name the folders know: `services.reconcile.conditions`."""

from services.reconcile.conditions import as_documents, find, new, put, remove

__all__ = ["as_documents", "find", "new", "put", "remove"]
