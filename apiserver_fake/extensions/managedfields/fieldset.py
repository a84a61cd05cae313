"""Sets of fields in the form of `managedFields` (`FieldsV1`), and their algebra.

A set is a tree of steps: `f:NAME` is a member of an object, `k:{JSON}` an item of a keyed list, `v:JSON` an
item of a set. A node that is empty, or that has `.`, is in the set itself. Trees are never changed, so they can
share subtrees. The root stands for the whole object, which is in no set, so that an empty root is the empty
set. The steps of a node are in the order in which upstream writes them; code that makes a node must keep that
order (`in_order`). Source: KEP-555; `kubernetes-sigs/structured-merge-diff`, `fieldpath`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
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


def node_of(*, member: bool, below: dict[str, Any]) -> Fields | None:
    """Return a node from its parts; None if it would be empty."""
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
    """Return the fields in either set."""
    if not one or one is other:
        return other
    return _merge_nodes(one, other) if other else one


def _merge_nodes(one: Fields, other: Fields) -> Fields:
    if len(one) < len(other):
        one, other = other, one
    result = dict(one)
    has_new = False
    for step, node in other.items():
        known = result.get(step)
        if known is None:
            result[step], has_new = node, True
        elif known is not node:
            result[step] = _union(known, node)
    return in_order(result) if has_new else result


def _union(one: Fields, other: Fields) -> Fields:
    if one is other:
        return one
    if not one:
        return other if is_member(other) else {SELF: LEAF, **other}
    if not other:
        return one if SELF in one else {SELF: LEAF, **one}
    return _merge_nodes(one, other)


def difference(one: Fields, other: Fields) -> Fields:
    """Return the fields that are only in the first set; fields below a field of both sets stay."""
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
    return node_of(member=member, below=below)


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
            left = node_of(member=is_member(node), below=dict(without_trees(below, taken)))
            if left is not None:
                result[step] = left
    return result


def intersection(one: Fields, other: Fields) -> Fields:
    """Return the fields in both sets."""
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
    return node_of(member=is_member(one) and is_member(other), below=below)


def overlap(one: Fields, other: Fields) -> bool:
    """Whether any field is in both sets."""
    for step in one if len(one) < len(other) else other:
        if step in one and step in other and step != SELF:
            mine, theirs = one[step], other[step]
            if (is_member(mine) and is_member(theirs)) or overlap(mine, theirs):
                return True
    return False


def covers(one: Fields, other: Fields) -> bool:
    """Whether the first set contains the second."""
    for step, node in other.items():
        mine = one.get(step)
        if mine is None:
            if step != SELF or one:
                return False
        elif node is not mine and ((is_member(node) and not is_member(mine)) or not covers(mine, node)):
            return False
    return True


def paths(fields: Fields, at: Path = ()) -> Iterator[Path]:
    """Yield the members in upstream's order: for each node its direct members first, then the paths below them."""
    steps = sorted((step for step in fields if step != SELF), key=_rank)
    for step in steps:
        if is_member(fields[step]):
            yield (*at, step)
    for step in steps:
        yield from paths(fields[step], (*at, step))


def in_order(node: Fields) -> Fields:
    """Return a node with its steps in order; the nodes below are in order already."""
    if len(node) < 2:
        return node
    # As text, members of objects come in order, and before keys and values, which are compared as what they are.
    steps = sorted(node)
    if steps[-1][0] in "kv":
        steps.sort(key=_rank)
    return node if steps == [*node] else {step: node[step] for step in steps}


def sort_fields(fields: Fields) -> Fields:
    """Return the set with the steps of all its nodes in order."""
    return in_order({step: sort_fields(node) if node else LEAF for step, node in fields.items()})


@lru_cache(maxsize=4096)
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
    """Return a path in readable form: `.spec.template.spec.containers[name="c"].image`."""
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
