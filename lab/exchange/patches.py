"""The strategic merge patch that turns one document into another, as kwokctl records changes. Pure.

Source: simulator 5.2; upstream `staging/src/k8s.io/apimachinery/pkg/util/strategicpatch`,
CreateTwoWayMergePatch.
"""

from typing import Any

from apiserver_fake.registry.patch.patch import strategic_merge_patch
from apiserver_fake.registry.schema.schemas import ANYTHING, Shape
from services.api.meta import Document

_ORDER = "$setElementOrder/"
_DELETE_VALUES = "$deleteFromPrimitiveList/"


def strategic_diff(before: Document, after: Document, shape: Shape) -> Document:
    """Return the patch that turns `before` into `after`; {} if they are equal.

    A null member counts as absent, as in Go: in a patch null deletes, and no patch can set it.
    """
    patch = _objects(before, after, shape)
    if _without_nulls(strategic_merge_patch(before, patch, shape)) == _without_nulls(after):
        return patch
    # Lists whose elements say their key twice, or not at all, cannot be merged: they are given whole.
    return _whole(before, after, shape)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _objects(before: Document, after: Document, shape: Shape) -> Document:
    patch: Document = {name: None for name in before if name not in after}
    for name, value in after.items():
        member = shape.member(name)
        old = before.get(name)
        if name in before and old == value:
            continue
        if isinstance(value, dict) and isinstance(old, dict):
            patch[name] = {**value, "$patch": "replace"} if member.is_replaced else _objects(old, value, member)
        elif isinstance(value, list) and isinstance(old, list) and member.is_merged:
            _lists(patch, name, old, value, member)
        else:
            patch[name] = value
    return patch


def _lists(patch: Document, name: str, before: list[Any], after: list[Any], shape: Shape) -> None:
    key = shape.merge_key
    if not key:
        added = [each for each in after if each not in before]
        gone = [each for each in before if each not in after]
        if added:
            patch[name] = added
        if gone:
            patch[_DELETE_VALUES + name] = gone
        patch[_ORDER + name] = after
        return
    old, new = (_by_key(elements, key) for elements in (before, after))
    if old is None or new is None:
        patch[name] = [*after, {"$patch": "replace"}]
        return
    item = shape.items or ANYTHING
    changed: list[Any] = []
    for at, element in new.items():
        was = old.get(at)
        if was is None:
            changed.append(element)
        elif was != element:
            changed.append({**_objects(was, element, item), key: at})
    changed += [{"$patch": "delete", key: at} for at in old if at not in new]
    if changed:
        patch[name] = changed
    patch[_ORDER + name] = [{key: at} for at in new]


def _by_key(elements: list[Any], key: str) -> dict[Any, Document] | None:
    elements_by_key: dict[Any, Document] = {}
    for element in elements:
        at = element.get(key) if isinstance(element, dict) else None
        if at is None or isinstance(at, dict | list) or at in elements_by_key:
            return None
        elements_by_key[at] = element
    return elements_by_key


def _whole(before: Document, after: Document, shape: Shape) -> Document:
    """Return a patch that gives each member of the object that differs as a whole."""
    patch: Document = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name in before and before[name] == value:
            continue
        member = shape.member(name)
        if isinstance(value, dict) and isinstance(before.get(name), dict):
            patch[name] = {**value, "$patch": "replace"}
        elif isinstance(value, list) and member.merge_key:
            patch[name] = [*value, {"$patch": "replace"}]
        else:
            patch[name] = value
    return patch


def without_key(patch: Any, shape: Shape, path: str = "") -> str:
    """Return the path of an element of a merged list that lacks its merge key; empty string if all have it."""
    if isinstance(patch, dict):
        for name, value in patch.items():
            if not name.startswith("$") and (missing_path := without_key(value, shape.member(name), _join(path, name))):
                return missing_path
        return ""
    if isinstance(patch, list) and shape.is_merged and shape.merge_key:
        for number, element in enumerate(patch):
            is_directive = isinstance(element, dict) and element.get("$patch") == "replace" and len(element) == 1
            if not is_directive and (not isinstance(element, dict) or shape.merge_key not in element):
                return f"{path}[{number}].{shape.merge_key}"
            if missing_path := without_key(element, shape.items or ANYTHING, f"{path}[{number}]"):
                return missing_path
    return ""


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
