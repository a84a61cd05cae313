"""How a patch that cannot be applied is refused, whichever kind of patch it is."""

from __future__ import annotations

from typing import Any

from services.api.errors import Invalid


def unprocessable(detail: str) -> Invalid:
    """Return the 422 whose cause is that detail."""
    return Invalid(
        "the server rejected our request due to an error in our request",
        details={"causes": [{"reason": "FieldValueInvalid", "field": "patch", "message": detail}]},
    )


def type_name(value: Any) -> str:
    """Return what JSON calls the value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            return "a string"
        case _:
            return "a number"
