"""Selectors as far as commit lines can answer them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from services.api.errors import ApiError
from services.api.selectors import parse_field_selector
from services.scenarios.invariants.view import Matches, Stored

_FIELDS: dict[str, Callable[[Stored], str]] = {
    "metadata.name": lambda stored: stored.name,
    "metadata.namespace": lambda stored: stored.namespace,
    "spec.nodeName": lambda stored: stored.node,
    "status.phase": lambda stored: stored.phase,
    "status.nominatedNodeName": lambda stored: stored.nominated,
}


@cache
def matcher(namespace: str, field_selector: str, label_selector: str) -> Matches | None:
    """Return whether an object is selected; None when commit lines do not tell (labels, other fields)."""
    if label_selector:
        return None
    try:
        terms = parse_field_selector(field_selector).terms if field_selector else ()
    except ApiError:
        return None
    if any(term.key not in _FIELDS for term in terms):
        return None
    wanted = [(_FIELDS[term.key], term.values, term.op == "in") for term in terms]

    def matches(stored: Stored) -> bool:
        if namespace and stored.namespace != namespace:
            return False
        return all((value(stored) in values) == is_in for value, values, is_in in wanted)

    return matches
