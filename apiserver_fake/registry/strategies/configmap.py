"""ConfigMaps: keys that can be file names, base64 that decodes, and immutability once declared."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping

from apiserver_fake.strategy import Cause, Strategy, WriteContext
from apiserver_fake.validation.formats import duplicate, forbidden, invalid, metadata
from services.api.meta import Document

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def keys(path: str, names: Iterable[str]) -> list[Cause]:
    """Check the keys of a ConfigMap's or Secret's data."""
    return [
        invalid(f"{path}[{name}]", name, _KEY_TEXT) for name in names if not _KEY.fullmatch(name) or name in (".", "..")
    ]


def base64_values(path: str, values: Mapping[str, str]) -> list[Cause]:
    """Check that each value is base64. The causes never show a value: it may be secret (X-SEC)."""
    causes: list[Cause] = []
    for name, text in values.items():
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            causes.append(Cause(f"{path}[{name}]", "FieldValueInvalid", "Invalid value: not base64"))
    return causes


def frozen(old: Document | None, new: Document, names: tuple[str, ...]) -> list[Cause]:
    """Check that an object once declared immutable keeps its content."""
    if old is None or not old.get("immutable"):
        return []
    causes: list[Cause] = []
    if not new.get("immutable"):
        causes.append(forbidden("immutable", "field is immutable when `immutable` is set"))
    return causes + [
        forbidden(name, "field is immutable when `immutable` is set")
        for name in names
        if (old.get(name) or {}) != (new.get(name) or {})
    ]


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    causes = metadata(new) + keys("data", data) + keys("binaryData", binary) + base64_values("binaryData", binary)
    causes += [duplicate(f"data[{name}]", name) for name in data if name in binary]
    return causes + frozen(old, new, ("data", "binaryData"))


STRATEGIES = {"configmaps": Strategy(validate=_validate)}
