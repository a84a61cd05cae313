"""Documents as their types have them: which fields they have, how two of them differ, merge, and lose fields.

Objects merge member by member and lists by their items' keys, except what the type has as atomic; a list of which
nothing is known is atomic. A missing key of an item counts as its default (`protocol: TCP`).
Source: KEP-555; `kubernetes-sigs/structured-merge-diff`, `typed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from apiserver_fake.managedfields.fieldset import (
    LEAF,
    NOTHING,
    SELF,
    Fields,
    Path,
    difference,
    intersection,
    is_member,
    text_of,
    union,
    without_trees,
)
from apiserver_fake.schema.mistakes import go_text
from apiserver_fake.schema.schemas import ANYTHING, Shape
from services.api.meta import Document

MISSING: Any = object()


class Comparison(NamedTuple):
    """How a document differs from the one before it: fields that are new, other, and gone."""

    added: Fields = NOTHING
    modified: Fields = NOTHING
    removed: Fields = NOTHING

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.modified or self.removed)

    def without(self, ignored: Fields) -> Comparison:
        """Return the differences outside what is ignored."""
        if not ignored:
            return self
        return Comparison(*(without_trees(each, ignored) for each in self))


def step_of(shape: Shape, item: Any) -> str:
    """Return the step to an item of a list of that shape; "" for one that has no key."""
    if shape.list_type == "set":
        return f"v:{_text(item)}"
    if not isinstance(item, dict):
        return ""
    key = {}
    for name in sorted(shape.map_keys):
        value = item.get(name)
        if value is None:
            value = shape.items.member(name).default if shape.items is not None else None
        if value is not None:
            key[name] = value
    return f"k:{_text(key)}" if key else ""


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _is_keyed(shape: Shape) -> bool:
    return shape.list_type in ("map", "set")


# -- fields of a document


def fields_of(document: Document, shape: Shape) -> Fields:
    """Return the fields that a configuration names."""
    below = _below(document, shape)
    return NOTHING if below is None else below


def _below(value: Any, shape: Shape) -> Fields | None:
    """Return the node of a value, without the value itself where it is an object; None where nothing is named."""
    if isinstance(value, dict) and not shape.is_atomic:
        found = {}
        known = shape.fields
        for name, child in value.items():
            node = _below(child, shape.member(name))
            if child is None or child == {} or known is None or name not in known:
                node = _with_self(node)
            if node is not None:
                found[f"f:{name}"] = node
        return found or None
    if isinstance(value, list) and _is_keyed(shape):
        items = shape.items or ANYTHING
        return {step_of(shape, item): _with_self(_below(item, items)) for item in value} or None
    return LEAF


def _with_self(node: Fields | None) -> Fields:
    return node if node and SELF in node else {SELF: LEAF, **node} if node else LEAF


def undeclared(document: Any, shape: Shape, at: Path = ()) -> Iterator[str]:
    """Yield why a configuration is not of its type: fields that it does not have, values of other types, list keys
    that occur twice.
    """
    if document is None:
        return
    if wrong := _unexpected(document, shape):
        yield f"{text_of(at)}: {wrong}"
    elif isinstance(document, dict) and shape.fields is not None:
        for name, child in document.items():
            here = (*at, f"f:{name}")
            if name in shape.fields or shape.values is not None:
                yield from undeclared(child, shape.member(name), here)
            elif not shape.keeps_unknown:
                yield f"{text_of(here)}: field not declared in schema"
    elif isinstance(document, dict) and shape.values is not None:
        for name, child in document.items():
            yield from undeclared(child, shape.values, (*at, f"f:{name}"))
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
            yield from undeclared(item, shape.items or ANYTHING, (*at, step))
    elif isinstance(document, list) and shape.items is not None:
        for index, item in enumerate(document):
            yield from undeclared(item, shape.items, (*at, f"i:{index}"))


def _unexpected(value: Any, shape: Shape) -> str:
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
    """Return how `new` differs from `old`. Parts that both share are not looked at."""
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
    if isinstance(value, dict) and value and not shape.is_atomic:
        return {SELF: LEAF, **{f"f:{name}": _whole(child, shape.member(name)) for name, child in value.items()}}
    if isinstance(value, list) and value and _is_keyed(shape):
        items = shape.items or ANYTHING
        return {SELF: LEAF, **{step_of(shape, item): _whole(item, items) for item in value}}
    return LEAF


def _compare_objects(old: dict[str, Any], new: dict[str, Any], shape: Shape) -> Three:
    added: dict[str, Any] = {}
    modified: dict[str, Any] = {}
    removed: dict[str, Any] = {}
    for name in (*new, *(name for name in old if name not in new)):
        before, after = old.get(name, MISSING), new.get(name, MISSING)
        if before is after:
            continue
        member = shape.member(name)
        if name in shape.present:
            empty: Any = {} if member.type == "object" else None
            before = empty if before is MISSING else before
            after = empty if after is MISSING else after
        one, two, three = _compare(before, after, member)
        step = f"f:{name}"
        if one is not None:
            added[step] = one
        if two is not None:
            modified[step] = two
        if three is not None:
            removed[step] = three
    return added or None, modified or None, removed or None


def _compare_lists(old: list[Any], new: list[Any], shape: Shape) -> Three:
    items = shape.items or ANYTHING
    before, after = _grouped(old, shape), _grouped(new, shape)
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
    return added or None, modified or None, removed or None


def _grouped(items: list[Any], shape: Shape) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(step_of(shape, item), []).append(item)
    return found


# -- merging


def merged(live: Any, wanted: Any, shape: Shape) -> Any:
    """Return `live` with everything that the configuration `wanted` names."""
    if live is MISSING or live is None:
        return wanted
    if wanted is MISSING:
        return live
    if isinstance(live, dict) and isinstance(wanted, dict) and not shape.is_atomic:
        result = dict(live)
        for name, value in wanted.items():
            result[name] = merged(live.get(name, MISSING), value, shape.member(name))
        return result
    if isinstance(live, list) and isinstance(wanted, list) and _is_keyed(shape):
        return _merged_lists(live, wanted, shape)
    is_granular = _is_keyed(shape) if isinstance(live, list) else isinstance(live, dict) and not shape.is_atomic
    return live if wanted is None and is_granular else wanted


def _merged_lists(live: list[Any], wanted: list[Any], shape: Shape) -> list[Any]:
    """Return both lists' items: the configuration's in its order, each of the others before what it stood before."""
    items = shape.items or ANYTHING
    left, right = [step_of(shape, item) for item in live], [step_of(shape, item) for item in wanted]
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
                result.append(merged(have[step], want[step], items))
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
            result.append(merged(have.get(step, MISSING), want[step], items))
            to += 1
            if shared and shared[0] == step:
                shared = shared[1:]
    return result


# -- removing


def without_fields(document: Any, fields: Fields, shape: Shape) -> Any:
    """Return the document without the set's members and everything below them; what becomes empty goes, too."""
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
    """Return the set with those members of types above its fields that are named by their type (`.spec`)."""
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


def pruned(merged_now: Document, last: Fields, managed: Fields, shape: Shape) -> Document:
    """Return the merged object without what the manager applied before and no manager has any more.

    `last`: what it applied before; `managed`: what all managers have now, this one's new configuration included.
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
