"""ConfigMaps: keys that can be file names, base64 that decodes, and immutability once declared."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from apiserver_fake.registry.declared import Rules, declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import Cause, Causes, duplicate, forbidden, invalid
from services.api.meta import Document

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
FROZEN = "field is immutable when `immutable` is set"


def keys(values: Mapping[str, str], path: str, report: Report) -> Causes:
    """A rule for the keys of a ConfigMap's or Secret's data."""
    for name in values:
        if not _KEY.fullmatch(name) or name in (".", ".."):
            yield invalid(f"{path}[{name}]", name, _KEY_TEXT)


def base64_values(values: Mapping[str, str], path: str, report: Report) -> Causes:
    """A rule for values in base64. The causes never show a value: it may be secret (X-SEC)."""
    for name, text in values.items():
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            yield Cause(f"{path}[{name}]", "FieldValueInvalid", "Invalid value: not base64")


def frozen(*names: str) -> Rules:
    """Return the rule that an object once declared immutable keeps its content."""

    def check(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
        if old is None or not old.get("immutable"):
            return []
        changed = [] if new.get("immutable") else ["immutable"]
        changed += [name for name in names if (old.get(name) or {}) != (new.get(name) or {})]
        return [forbidden(name, FROZEN) for name in changed]

    return check


def _distinct(new: Document, at: str, report: Report) -> Causes:
    binary = new.get("binaryData") or {}
    yield from [duplicate(f"data[{name}]", name) for name in new.get("data") or {} if name in binary]


FIELDS = Struct(
    Field("data", rule=keys), Field("binaryData", rule=keys), Field("binaryData", rule=base64_values), _distinct
)
STRATEGIES = {"configmaps": declared(FIELDS, rules=frozen("data", "binaryData"))}
