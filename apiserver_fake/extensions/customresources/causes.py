"""Causes of a refusal, with values as the API server prints them. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/util/validation/field/errors.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from apiserver_fake.registry.validation.formats import Cause

NO_PATH: Final = "<nil>"
"""Field of a cause that concerns the whole object."""
_ESCAPED: Final = re.compile("[<>&\u2028\u2029]")
_QUOTES: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}


def quoted_text(text: str) -> str:
    """Return a text quoted as by Go's `%q`."""
    parts = []
    for sign in text:
        if sign in '"\\':
            parts.append(f"\\{sign}")
        elif sign in _QUOTES:
            parts.append(_QUOTES[sign])
        elif sign.isprintable():
            parts.append(sign)
        else:
            code = ord(sign)
            parts.append(f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return f'"{"".join(parts)}"'


def number(value: float) -> str:
    """Return a number formatted as by Go's `%v`."""
    if isinstance(value, int):
        return str(value)
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    return repr(value)


def as_json(value: Any, *, in_order: bool = False) -> str:
    """Return a value as Go's encoding/json: keys sorted, angle brackets escaped. `in_order`: keep the order (a
    struct's).
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=not in_order)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def value_text(value: Any, *, in_order: bool = False) -> str:
    """Return a value as a refusal shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted_text(value)
    return number(value) if isinstance(value, int | float) else as_json(value, in_order=in_order)


def invalid(path: str, value: Any, detail: str, *, in_order: bool = False) -> Cause:
    """Return the cause of an invalid value."""
    return Cause(path, "FieldValueInvalid", f"Invalid value: {value_text(value, in_order=in_order)}: {detail}")


def wrong_type(path: str, value: Any, detail: str) -> Cause:
    """Return the cause of a value of the wrong type; `value` is the name of its type."""
    return Cause(path, "FieldValueTypeInvalid", f"Invalid value: {value_text(value)}: {detail}")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> Cause:
    """Return the cause of a value that is not among `supported`, which are listed in their order."""
    values = ", ".join(map(quoted_text, supported))
    return Cause(path, "FieldValueNotSupported", f"Unsupported value: {value_text(value)}: supported values: {values}")


def duplicate(path: str, value: Any) -> Cause:
    """Return the cause of a value that occurs twice."""
    return Cause(path, "FieldValueDuplicate", f"Duplicate value: {value_text(value)}")


def too_long(path: str, most: int) -> Cause:
    """Return the cause of a text that is longer than its limit."""
    return Cause(path, "FieldValueTooLong", f"Too long: may not be more than {most} byte{'' if most == 1 else 's'}")


def too_many(path: str, count: int, most: int) -> Cause:
    """Return the cause of a list or map that has more items than its limit."""
    detail = f"must have at most {most} item{'' if most == 1 else 's'}"
    return Cause(path, "FieldValueTooMany", f"Too many: {count}: {detail}")
