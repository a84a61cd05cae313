"""The differences between two versions of an object, field by field. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from services.api.meta import Document

KEYS = ("name", "type", "uid", "key", "ip", "port", "containerPort", "mountPath", "devicePath", "node")
"""Candidate key fields of list members: the first one that all members have, with different values, identifies them."""
ALWAYS_NEW = (("metadata", "resourceVersion"), ("metadata", "managedFields"))
"""Fields that every write changes, and which are therefore not shown."""


class Difference(msgspec.Struct, frozen=True, omit_defaults=True, rename={"before": "from", "after": "to"}):
    """A difference in one field. `path`: as in `status.conditions[type=Ready].status`; a side without the field
    is None.

    In JSON `from` and `to`. A null field counts as absent, as everywhere in Kubernetes.
    """

    path: str
    before: Any = None
    after: Any = None


def differences(before: Document | None, after: Document | None) -> list[Difference]:
    """Return the differences, in the order of the fields; None stands for an absent object."""
    return [
        Difference(_text(path), was, now)
        for path, was, now in _walk((), before or {}, after or {})
        if path[:2] not in ALWAYS_NEW
    ]


_Path = tuple[str, ...]


def _walk(path: _Path, before: Any, after: Any) -> Iterator[tuple[_Path, Any, Any]]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            yield from _walk((*path, str(name)), before.get(name), after.get(name))
        return
    if isinstance(before, list) and isinstance(after, list) and (key := _key_of(before, after)):
        left, right = ({f"[{key}={each[key]}]": each for each in side} for side in (before, after))
        for member in dict.fromkeys((*left, *right)):
            yield from _walk((*path, member), left.get(member), right.get(member))
        return
    yield path, before, after


def _key_of(*sides: Sequence[Any]) -> str:
    """Return the field that identifies the members of these lists; "" when there is none."""
    members = [each for side in sides for each in side]
    if not members or not all(isinstance(each, Mapping) for each in members):
        return ""
    for key in KEYS:
        values = [[str(each[key]) for each in side if key in each] for side in sides]
        if all(len(set(found)) == len(side) for found, side in zip(values, sides, strict=True)):
            return key
    return ""


def _text(path: _Path) -> str:
    text = ""
    for part in path:
        is_plain = part.startswith("[") or not set(part) & set("./ ")
        text += part if part.startswith("[") else f".{part}" if is_plain and text else part if is_plain else f"[{part}]"
    return text
