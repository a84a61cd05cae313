"""Documents by their types: their fields, and how two of them are compared, merged, and stripped of fields.

Objects merge member by member and lists by their items' keys, except where the type is atomic. A list of
unknown type is atomic. A missing key of an item counts as its default (`protocol: TCP`). Source: KEP-555;
`kubernetes-sigs/structured-merge-diff`, `typed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from operator import is_
from typing import Any, NamedTuple

from msgspec.json import encode

from apiserver_fake.extensions.managedfields.fieldset import (
    LEAF,
    NOTHING,
    SELF,
    Fields,
    Path,
    difference,
    in_order,
    intersection,
    is_member,
    text_of,
    union,
    without_trees,
)
from apiserver_fake.registry.schema.mistakes import go_text
from apiserver_fake.registry.schema.schemas import ANYTHING, Shape
from services.api.meta import Document

MISSING: Any = object()


class Comparison(NamedTuple):
    """The differences between a document and the one before it: fields that were added, modified, and removed."""

    added: Fields = NOTHING
    modified: Fields = NOTHING
    removed: Fields = NOTHING

    @property
    def is_same(self) -> bool:
        """Whether there are no differences."""
        return not (self.added or self.modified or self.removed)

    def without(self, ignored: Fields) -> Comparison:
        """Return the differences outside the ignored fields."""
        if not ignored:
            return self
        return Comparison(*(without_trees(each, ignored) for each in self))


_KEYS = ("",)
"""Key of the list item keys among a type's plans; it is no member's name."""


def step_of(shape: Shape, item: Any) -> str:
    """Return the step to an item of a list of that shape; "" if the item has no key."""
    if shape.list_type == "set":
        return f"v:{_text(item)}"
    if not isinstance(item, dict):
        return ""
    keys = shape.plans.get(_KEYS)
    if keys is None:
        items = shape.items
        keys = shape.plans[_KEYS] = [
            (name, None if items is None else items.member(name).default, f"{_text(name)}:")
            for name in sorted(shape.map_keys)
        ]
    if len(keys) == 1 and type(value := item.get(keys[0][0])) is str:
        return _keyed_by(keys[0][2], value)
    parts = []
    for name, default, head in keys:
        value = item.get(name)
        if value is None:
            value = default
        if value is not None:
            parts.append(head + _text(value))
    return f"k:{{{','.join(parts)}}}" if parts else ""


def _text(value: Any) -> str:
    return _quoted_text(value) if type(value) is str else encode(value).decode()


@lru_cache(maxsize=4096)
def _quoted_text(text: str) -> str:
    return encode(text).decode()


@lru_cache(maxsize=4096)
def _keyed_by(head: str, text: str) -> str:
    return f"k:{{{head}{_quoted_text(text)}}}"


def _is_keyed(shape: Shape) -> bool:
    return shape.list_type in ("map", "set")


# -- fields of a document


class _Plan(NamedTuple):
    """Data about an object of one type that depends on its member names alone.

    `members`: `(step, name, type, whether the field stands for itself as well)` in the order of steps.
    `is_declared`: the type has all of them. `below`, `whole`: the node of an object without object or list members,
    without itself and with itself. `kinds`: Python types of the members' values, and whether the type allows them,
    as found so far.
    """

    members: tuple[tuple[str, str, Shape, bool], ...]
    is_declared: bool
    below: Fields
    whole: Fields
    kinds: dict[tuple[type, ...], bool]


_CONTAINERS = frozenset((dict, list))
_PLANS_MAX, _MEMBERS_MAX = 256, 64


def _plan(shape: Shape, names: tuple[str, ...]) -> _Plan:
    plan = shape.plans.get(names)
    if plan is None:
        known = shape.fields
        members = tuple(
            (f"f:{name}", name, shape.member(name), known is None or name not in known) for name in sorted(names)
        )
        below = {step: LEAF for step, *_ in members}
        is_declared = known is None or shape.values is not None or shape.keeps_unknown or known.keys() >= set(names)
        plan = _Plan(members, is_declared, below, {SELF: LEAF, **below}, {})
        if known is not None and len(names) <= _MEMBERS_MAX:
            if len(shape.plans) >= _PLANS_MAX:
                shape.plans.clear()
            shape.plans[names] = plan
    assert isinstance(plan, _Plan)
    return plan


def fields_of(document: Document, shape: Shape) -> Fields:
    """Return the fields that a configuration sets."""
    below = _below(document, shape)
    return NOTHING if below is None else below


def _below(value: Any, shape: Shape) -> Fields | None:
    """Return the node of a value, without the value itself where it is an object; None where nothing is named."""
    if isinstance(value, dict):
        if shape.is_atomic:
            return LEAF
        if not value:
            return None
        plan = _plan(shape, tuple(value))
        if _CONTAINERS.isdisjoint(map(type, value.values())):
            return plan.below
        fields = {}
        for step, name, member, is_itself in plan.members:
            child = value[name]
            if type(child) not in _CONTAINERS:
                fields[step] = LEAF
                continue
            node = _below(child, member)
            if is_itself or child == {}:
                node = _with_self(node)
            if node is not None:
                fields[step] = node
        return fields or None
    if isinstance(value, list) and _is_keyed(shape):
        items = shape.items or ANYTHING
        return in_order({step_of(shape, item): _with_self(_below(item, items)) for item in value}) or None
    return LEAF


def _with_self(node: Fields | None) -> Fields:
    return node if node and SELF in node else {SELF: LEAF, **node} if node else LEAF


_NULL: type = type(None)
_SCALARS: frozenset[type] = frozenset((str, int, float, bool, _NULL))
_NUMBERS: frozenset[type] = frozenset((int, float, _NULL))
_KINDS: dict[str, frozenset[type]] = {
    "object": frozenset((dict, _NULL)),
    "array": frozenset((list, _NULL)),
    "integer": _NUMBERS,
    "number": _NUMBERS,
    "string": frozenset((str, _NULL)),
    "boolean": frozenset((bool, _NULL)),
    "quantity": _SCALARS,
    "int-or-string": _SCALARS,
    "time": _SCALARS,
}
_ANY = _SCALARS | _CONTAINERS


def is_declared(value: Any, shape: Shape) -> bool:
    """Whether a configuration fits its type. False may be wrong; `type_errors` is exact."""
    return type(value) in _KINDS.get(shape.type, _ANY) and _is_declared_below(value, shape)


def _is_declared_below(value: Any, shape: Shape) -> bool:
    if isinstance(value, dict):
        if shape.fields is None and shape.values is None:
            return True
        plan = _plan(shape, tuple(value))
        if not plan.is_declared:
            return False
        kinds = tuple(map(type, value.values()))
        is_known = plan.kinds.get(kinds)
        if is_known is None:
            typed_members = zip(value, kinds, strict=True)
            is_known = all(kind in _KINDS.get(shape.member(name).type, _ANY) for name, kind in typed_members)
            if len(plan.kinds) >= _PLANS_MAX:
                plan.kinds.clear()
            plan.kinds[kinds] = is_known
        if not is_known or _CONTAINERS.isdisjoint(kinds):
            return is_known
        return all(
            _is_declared_below(value[name], member)
            for _, name, member, _ in plan.members
            if type(value[name]) in _CONTAINERS
        )
    if isinstance(value, list):
        items = shape.items or ANYTHING
        if _is_keyed(shape):
            steps = {step_of(shape, item) for item in value}
            if len(steps) < len(value) or "" in steps:
                return False
        elif shape.items is None:
            return True
        kinds_of_items = set(map(type, value))
        if not kinds_of_items <= _KINDS.get(items.type, _ANY):
            return False
        return _CONTAINERS.isdisjoint(kinds_of_items) or all(_is_declared_below(item, items) for item in value)
    return True


def type_errors(document: Any, shape: Shape, at: Path = ()) -> Iterator[str]:
    """Yield why a configuration does not fit its type: unknown fields, values of other types, duplicate list keys."""
    if document is None:
        return
    if wrong := _type_error(document, shape):
        yield f"{text_of(at)}: {wrong}"
    elif isinstance(document, dict) and shape.fields is not None:
        for name, child in document.items():
            here = (*at, f"f:{name}")
            if name in shape.fields or shape.values is not None:
                yield from type_errors(child, shape.member(name), here)
            elif not shape.keeps_unknown:
                yield f"{text_of(here)}: field not declared in schema"
    elif isinstance(document, dict) and shape.values is not None:
        for name, child in document.items():
            yield from type_errors(child, shape.values, (*at, f"f:{name}"))
    elif isinstance(document, list) and _is_keyed(shape):
        seen: set[str] = set()
        for index, item in enumerate(document):
            step = step_of(shape, item)
            if not step:
                keys = " ".join(f'"{key}"' for key in shape.map_keys)
                yield (
                    f"{text_of(at)}: element {index}: associative list with keys has an element that omits key field "
                    f"{keys} (and doesn't have default value)"
                )
                continue
            if step in seen:
                yield f"{text_of(at)}: duplicate entries for key {text_of((step,))}"
            seen.add(step)
            yield from type_errors(item, shape.items or ANYTHING, (*at, step))
    elif isinstance(document, list) and shape.items is not None:
        for index, item in enumerate(document):
            yield from type_errors(item, shape.items, (*at, f"i:{index}"))


def _type_error(value: Any, shape: Shape) -> str:
    """Return why a value cannot be of that type; "" where it can. Times and amounts are read later."""
    match shape.type:
        case "object" if not isinstance(value, dict):
            return f"expected map, got &{{{go_text(value)}}}"
        case "array" if not isinstance(value, list):
            return f"expected list, got &{{{go_text(value)}}}"
        case "integer" | "number" if isinstance(value, bool) or not isinstance(value, int | float):
            shown = {bool: "bool", str: "string", list: "[]interface {}", dict: "map[string]interface {}"}
            return f"expected numeric (int or float), got {shown[type(value)]}"
        case "string" if not isinstance(value, str):
            return f"expected string, got &value.valueUnstructured{{Value:{go_text(value)}}}"
        case "boolean" if not isinstance(value, bool):
            return f"expected boolean, got &{{{go_text(value)}}}"
        case "quantity" | "int-or-string" | "time" if isinstance(value, dict | list):
            return f"expected any scalar, got &{{{go_text(value)}}}"
    return ""


# -- two documents


def compare(old: Document, new: Document, shape: Shape) -> Comparison:
    """Return how `new` differs from `old`. Parts that both share are skipped."""
    added, modified, removed = _compare(old, new, shape)
    return Comparison(added or NOTHING, modified or NOTHING, removed or NOTHING)


Three = tuple[Fields | None, Fields | None, Fields | None]
_SAME: Three = (None, None, None)


def _compare(old: Any, new: Any, shape: Shape) -> Three:
    if old is new:
        return _SAME
    if old is MISSING:
        return _whole(new, shape), None, None
    if new is MISSING:
        return None, None, _whole(old, shape)
    if old == new:
        return _SAME
    is_object = isinstance(old, dict | None) and isinstance(new, dict | None) and not (old is None and new is None)
    if is_object and not shape.is_atomic and (old or new):
        return _compare_objects(old or {}, new or {}, shape)
    is_list = isinstance(old, list | None) and isinstance(new, list | None)
    if is_list and _is_keyed(shape) and (old or new):
        return _compare_lists(old or [], new or [], shape)
    return None, LEAF, None


def _whole(value: Any, shape: Shape) -> Fields:
    """Return the node of a value that is there on one side only: everything of it, and itself."""
    if isinstance(value, dict):
        if not value or shape.is_atomic:
            return LEAF
        plan = _plan(shape, tuple(value))
        if _CONTAINERS.isdisjoint(map(type, value.values())):
            return plan.whole
        fields = {SELF: LEAF}
        for step, name, member, _ in plan.members:
            child = value[name]
            fields[step] = _whole(child, member) if type(child) in _CONTAINERS else LEAF
        return fields
    if isinstance(value, list) and value and _is_keyed(shape):
        items = shape.items or ANYTHING
        return in_order({SELF: LEAF, **{step_of(shape, item): _whole(item, items) for item in value}})
    return LEAF


def _compare_objects(old: dict[str, Any], new: dict[str, Any], shape: Shape) -> Three:
    added: dict[str, Any] = {}
    modified: dict[str, Any] = {}
    removed: dict[str, Any] = {}
    present = shape.present
    for name in new if new.keys() >= old.keys() else (*new, *(name for name in old if name not in new)):
        before, after = old.get(name, MISSING), new.get(name, MISSING)
        if before is after:
            continue
        if name in present:
            empty: Any = {} if shape.member(name).type == "object" else None
            before = empty if before is MISSING else before
            after = empty if after is MISSING else after
        elif before is MISSING:
            added[f"f:{name}"] = _whole(after, shape.member(name)) if type(after) in _CONTAINERS else LEAF
            continue
        if before == after:
            continue
        one, two, three = _compare(before, after, shape.member(name))
        step = f"f:{name}"
        if one is not None:
            added[step] = one
        if two is not None:
            modified[step] = two
        if three is not None:
            removed[step] = three
    return _node(added), _node(modified), _node(removed)


def _node(found: dict[str, Any]) -> Fields | None:
    return in_order(found) if found else None


def _compare_lists(old: list[Any], new: list[Any], shape: Shape) -> Three:
    items = shape.items or ANYTHING
    before, after = _items_by_step(old, shape), _items_by_step(new, shape)
    added: dict[str, Any] = {}
    modified: dict[str, Any] = {}
    removed: dict[str, Any] = {}
    for step in (*after, *(step for step in before if step not in after)):
        ours, theirs = before.get(step, ()), after.get(step, ())
        one, two, three = _SAME
        if len(ours) <= 1 and len(theirs) <= 1:
            one, two, three = _compare(ours[0] if ours else MISSING, theirs[0] if theirs else MISSING, items)
        elif len(ours) >= 2 and len(theirs) >= 2:
            two = None if ours == theirs else LEAF
        elif len(ours) >= 2:
            one, three = _whole(theirs[0], items) if theirs else None, LEAF
        else:
            one, three = LEAF, _whole(ours[0], items) if ours else None
        if one is not None:
            added[step] = one
        if two is not None:
            modified[step] = two
        if three is not None:
            removed[step] = three
    return _node(added), _node(modified), _node(removed)


def _items_by_step(items: list[Any], shape: Shape) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(step_of(shape, item), []).append(item)
    return found


# -- merging


def merge_by_schema(live: Any, wanted: Any, shape: Shape) -> Any:
    """Return `live` merged with every field that the configuration `wanted` sets; unchanged parts are shared."""
    if live is MISSING or live is None:
        return wanted
    if wanted is MISSING:
        return live
    if isinstance(live, dict) and isinstance(wanted, dict) and not shape.is_atomic:
        changed = {}
        for name, value in wanted.items():
            before = live.get(name, MISSING)
            if type(value) in _CONTAINERS or value is None:
                value = merge_by_schema(before, value, shape.member(name))
            elif type(value) is type(before) and value == before and type(value) is not float:
                continue
            if value is not before:
                changed[name] = value
        return {**live, **changed} if changed else live
    if isinstance(live, list) and isinstance(wanted, list) and _is_keyed(shape):
        return _merged_lists(live, wanted, shape)
    is_granular = _is_keyed(shape) if isinstance(live, list) else isinstance(live, dict) and not shape.is_atomic
    if wanted is None and is_granular:
        return live
    return live if type(live) is type(wanted) and live == wanted and encode(live) == encode(wanted) else wanted


def _merged_lists(live: list[Any], wanted: list[Any], shape: Shape) -> list[Any]:
    """Return both lists' items: the configuration's in its order, each of the others before what it stood before."""
    items = shape.items or ANYTHING
    left, right = [step_of(shape, item) for item in live], [step_of(shape, item) for item in wanted]
    if left == right and len(set(left)) == len(left):
        merged_items = [merge_by_schema(before, item, items) for before, item in zip(live, wanted, strict=True)]
        return live if all(map(is_, merged_items, live)) else merged_items
    have: dict[str, Any] = {}
    for step, item in zip(left, live, strict=True):
        # What stands there twice has no item of its own to be merged with.
        have[step] = MISSING if step in have else item
    want = dict(zip(right, wanted, strict=True))
    shared = [step for step in right if step in have]
    result: list[Any] = []
    done: set[str] = set()
    at, to = 0, 0
    while at < len(left) or to < len(right):
        if at < len(left) and to < len(right):
            step = left[at]
            if step == right[to]:
                done.add(step)
                result.append(merge_by_schema(have[step], want[step], items))
                at, to, shared = at + 1, to + 1, shared[1:]
                continue
            if step in want and shared and shared[0] != step:
                at += 1
                continue
        if at < len(left):
            step = left[at]
            if step not in want:
                result.append(live[at])
                at += 1
                continue
            if step in done:
                at += 1
                continue
        if to < len(right):
            step = right[to]
            done.add(step)
            result.append(merge_by_schema(have.get(step, MISSING), want[step], items))
            to += 1
            if shared and shared[0] == step:
                shared = shared[1:]
    return result


# -- removing


def without_fields(document: Any, fields: Fields, shape: Shape) -> Any:
    """Return the document without the set's members and everything below them; objects and lists that become
    empty go, too.
    """
    if not fields:
        return document
    if isinstance(document, dict) and not shape.is_atomic:
        result = {}
        for name, child in document.items():
            node = fields.get(f"f:{name}")
            if node is None:
                result[name] = child
            elif not is_member(node) and (left := without_fields(child, node, shape.member(name))) is not None:
                result[name] = left
        return result or None
    if isinstance(document, list) and _is_keyed(shape):
        items = shape.items or ANYTHING
        kept = []
        for item in document:
            node = fields.get(step_of(shape, item))
            if node is None:
                kept.append(item)
            elif not is_member(node) and (left := without_fields(item, node, items)) is not None:
                kept.append(left)
        return kept or None
    return None if shape.is_atomic else document


def with_named(fields: Fields, shape: Shape) -> Fields:
    """Return the set, extended by those parents of its fields that the type declares by name (`.spec`)."""
    result: dict[str, Any] = {}
    for step, node in fields.items():
        if step == SELF or not node:
            result[step] = node
            continue
        is_field = step.startswith("f:")
        inner = shape.member(step[2:]) if is_field else (shape.items or ANYTHING)
        below = with_named(node, inner)
        is_named = is_field and shape.fields is not None and step[2:] in shape.fields
        result[step] = {SELF: LEAF, **below} if is_named and SELF not in below else below
    return result


def prune_unowned(merged_now: Document, last: Fields, managed: Fields, shape: Shape) -> Document:
    """Return the merged object without the fields that the manager applied before and that no manager has any
    more.

    `last`: the fields it applied before; `managed`: the fields of all managers now, its new configuration included.
    Source: `kubernetes-sigs/structured-merge-diff`, `merge/update.go`.
    """
    if not last:
        return merged_now
    named = with_named(last, shape)
    less = without_fields(merged_now, named, shape) or {}
    everything = with_named(fields_of(merged_now, shape), shape)
    kept = union(with_named(fields_of(less, shape), shape), with_named(managed, shape))
    less = without_fields(merged_now, difference(everything, kept), shape) or {}
    gone = difference(everything, with_named(fields_of(less, shape), shape))
    result: Document = without_fields(merged_now, intersection(gone, named), shape) or {}
    return result
