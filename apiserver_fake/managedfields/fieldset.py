"""Sets of fields in the form in which `managedFields` keeps them (`FieldsV1`), and their algebra.

A set is a tree of steps: `f:NAME` is a member of an object, `k:{JSON}` an item of a keyed list, `v:JSON` an item of a
set. A node that is empty, or that has `.`, is in the set itself. Trees are never changed, so they share what
they have in common; the root stands for the whole object, which is in no set, so that an empty root is the empty set.
Source: KEP-555; `kubernetes-sigs/structured-merge-diff`, `fieldpath`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

Fields = Mapping[str, Any]
Path = tuple[str, ...]

LEAF: Fields = {}
NOTHING: Fields = {}
SELF = "."


def is_member(node: Fields) -> bool:
    """Whether the node itself is in the set, besides what is below it."""
    return not node or SELF in node


def made(*, member: bool, below: dict[str, Any]) -> Fields | None:
    """Return the node of those parts; None when nothing is in the set."""
    if not below:
        return LEAF if member else None
    return {SELF: LEAF, **below} if member else below


def of(paths: Iterable[Path]) -> Fields:
    """Return the set of these paths."""
    root: Fields = NOTHING
    for path in paths:
        node: Fields = LEAF
        for step in reversed(path):
            node = {step: node}
        root = union(root, node)
    return root


def union(one: Fields, other: Fields) -> Fields:
    """Return what is in either set."""
    if not one or one is other:
        return other
    return _merged(one, other) if other else one


def _merged(one: Fields, other: Fields) -> Fields:
    result = dict(one)
    for step, node in other.items():
        known = result.get(step)
        result[step] = node if known is None else _union(known, node)
    return result


def _union(one: Fields, other: Fields) -> Fields:
    if one is other:
        return one
    if not one:
        return other if is_member(other) else {SELF: LEAF, **other}
    if not other:
        return one if SELF in one else {SELF: LEAF, **one}
    return _merged(one, other)


def difference(one: Fields, other: Fields) -> Fields:
    """Return what is in the first set alone; what lies below something that is in both stays."""
    if not one or not other:
        return one
    result = {}
    for step, node in one.items():
        taken = other.get(step)
        left = node if taken is None else _difference(node, taken)
        if left is not None:
            result[step] = left
    return result


def _difference(one: Fields, other: Fields) -> Fields | None:
    member = is_member(one) and not is_member(other)
    below = {}
    for step, node in one.items():
        if step != SELF:
            taken = other.get(step)
            left = node if taken is None else _difference(node, taken)
            if left is not None:
                below[step] = left
    return made(member=member, below=below)


def without_trees(one: Fields, other: Fields) -> Fields:
    """Return the first set without the members of the other and without everything below them."""
    if not one or not other:
        return one
    result = {}
    for step, node in one.items():
        taken = other.get(step)
        if taken is None:
            result[step] = node
        elif not is_member(taken):
            below = {name: each for name, each in node.items() if name != SELF}
            left = made(member=is_member(node), below=dict(without_trees(below, taken)))
            if left is not None:
                result[step] = left
    return result


def intersection(one: Fields, other: Fields) -> Fields:
    """Return what is in both sets."""
    return {
        step: left
        for step, node in one.items()
        if step in other and (left := _intersection(node, other[step])) is not None
    }


def _intersection(one: Fields, other: Fields) -> Fields | None:
    below = {
        step: left
        for step, node in one.items()
        if step != SELF and step in other and (left := _intersection(node, other[step])) is not None
    }
    return made(member=is_member(one) and is_member(other), below=below)


def paths(fields: Fields, at: Path = ()) -> Iterator[Path]:
    """Yield the members in upstream's order: of each node first those that are members, then what lies below."""
    steps = sorted((step for step in fields if step != SELF), key=_rank)
    for step in steps:
        if is_member(fields[step]):
            yield (*at, step)
    for step in steps:
        yield from paths(fields[step], (*at, step))


def ordered(fields: Fields) -> Fields:
    """Return the set with its steps in the order in which upstream writes them."""
    return {step: ordered(fields[step]) for step in sorted(fields, key=_rank)}


def _rank(step: str) -> tuple[str, Any]:
    kind = step[:2]
    if kind in ("k:", "v:"):
        value = msgspec.json.decode(step[2:])
        parts = [part for pair in value.items() for part in pair] if isinstance(value, dict) else [value]
        return kind, [
            (isinstance(part, str), part if isinstance(part, str | int | float) else str(part)) for part in parts
        ]
    return kind, step


def text_of(path: Path) -> str:
    """Return a path as people read it: `.spec.template.spec.containers[name="c"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step != SELF:
            key = msgspec.json.decode(step[2:])
            inner = ",".join(f"{name}={_json(value)}" for name, value in key.items()) if isinstance(key, dict) else ""
            text += f"[{inner or '=' + step[2:]}]"
    return text


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
