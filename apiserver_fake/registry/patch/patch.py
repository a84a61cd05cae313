"""The three kinds of patch: JSON merge (RFC 7386), JSON patch (RFC 6902) and strategic merge.

None of them changes its input. Results share every part that the patch did not touch with the document they
came from, because copying whole trees was the costliest thing a write did. Which lists a strategic merge patch
merges, and by what member, is read from `schemas`; a kind without schema merges objects only.
"""

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import msgspec

from apiserver_fake.registry.errors import type_name, unprocessable
from apiserver_fake.registry.patch.json_patch import json_patch
from apiserver_fake.registry.schema.schemas import ANYTHING, Shape
from services.api.errors import BadRequest, Invalid, UnsupportedMediaType
from services.api.meta import Document

_ORDER = "$setElementOrder/"
_DELETE_VALUES = "$deleteFromPrimitiveList/"


Merge = Callable[[Any, Any, Shape], Any]
"""Function of `(value before, value of the patch, type)` that returns the merged value."""
_is_directive = methodcaller("startswith", "$")


def strategic_merge_patch(document: Any, patch: dict[str, Any], shape: Shape = ANYTHING) -> dict[str, Any]:
    """Return `document` with Kubernetes' strategic merge applied.

    Directives: `$patch` (delete, replace, merge), `$retainKeys`, `$setElementOrder/…`,
    `$deleteFromPrimitiveList/…`; null removes. Merged lists keep the patch's order for the elements it names and
    the document's for the others. A new element comes before document elements whose relative order is unknown, as
    upstream does. Raises: Invalid for invalid directives.
    """
    directive = patch.get("$patch")
    if directive is not None:
        if directive == "delete":
            return {}
        if directive == "replace":
            return _clean_object(patch, shape)
        if directive != "merge":
            raise unprocessable(f"Unknown patch type: {directive}")
    result = dict(document) if isinstance(document, dict) else {}
    fields = shape.fields or {}
    if not any(map(_is_directive, patch)):
        for name, value in patch.items():
            if value is None:
                result.pop(name, None)
            elif isinstance(value, dict | list):
                result[name] = _merge_value(result.get(name), value, fields.get(name, ANYTHING))
            else:
                result[name] = value
        return result
    if "$retainKeys" in patch:
        _retain(result, patch)
    for name, value in patch.items():
        if name in ("$patch", "$retainKeys"):
            continue
        if name.startswith(_ORDER):
            field = name[len(_ORDER) :]
            if field not in patch and isinstance(result.get(field), list):
                _reorder(result, field, value, fields.get(field, ANYTHING), result[field])
        elif name.startswith(_DELETE_VALUES):
            field = name[len(_DELETE_VALUES) :]
            if isinstance(result.get(field), list):
                doomed = {repr(each) for each in _list(value, name)}
                result[field] = [each for each in result[field] if repr(each) not in doomed]
        elif value is None:
            result.pop(name, None)
        else:
            member = fields.get(name, ANYTHING)
            before = result.get(name)
            result[name] = _merge_value(before, value, member)
            order = patch.get(_ORDER + name)
            if order is not None and isinstance(result[name], list):
                _reorder(result, name, order, member, before if isinstance(before, list) else [])
    return result


def _merge_value(before: Any, value: Any, shape: Shape) -> Any:
    if not before and isinstance(value, dict | list) and _is_content(value, shape):
        return value
    if isinstance(value, dict):
        if shape.is_replaced:
            return _clean(value, shape)
        return strategic_merge_patch(before, value, shape)
    if isinstance(value, list):
        if shape.is_merged:
            return _merge_list(before if isinstance(before, list) else [], value, shape)
        return _clean(value, shape)
    return value


def _merge_plain(before: Any, value: Any, shape: Shape) -> Any:
    """Return what `_merge_value` does with an object or list without directives: most parts stand for themselves."""
    if isinstance(value, list):
        if not shape.is_merged:
            return _clean(value, shape) if b"null" in msgspec.json.encode(value) else value
        if not before and _is_content(value, shape):
            return value
        return _merge_list(before if isinstance(before, list) else [], value, shape, _merge_plain)
    merges = shape.may_merge_lists
    if shape.is_replaced or not (before or (_may_merge_lists(shape) if merges is None else merges)):
        if b"null" not in msgspec.json.encode(value):
            return value
        if shape.is_replaced:
            return _clean(value, shape)
    result = dict(before) if isinstance(before, dict) else {}
    fields = shape.fields or {}
    for name, member in value.items():
        if isinstance(member, dict | list):
            result[name] = _merge_plain(result.get(name), member, fields.get(name, ANYTHING))
        elif member is None:
            result.pop(name, None)
        else:
            result[name] = member
    return result


def _merge_bare(before: Any, value: dict[str, Any], shape: Shape) -> Any:
    """Return what `_merge_plain` does with an object that has no nulls either, which most status patches are."""
    merges = shape.may_merge_lists
    if shape.is_replaced or not (before or (_may_merge_lists(shape) if merges is None else merges)):
        return value
    result = dict(before) if isinstance(before, dict) else {}
    fields = shape.fields or {}
    for name, member in value.items():
        if isinstance(member, dict):
            result[name] = _merge_bare(result.get(name), member, fields.get(name, ANYTHING))
        elif isinstance(member, list) and (of := fields.get(name, ANYTHING)).is_merged:
            there = result.get(name)
            if there or not _is_content(member, of):
                member = _merge_list(there if isinstance(there, list) else [], member, of, _merge_bare)
            result[name] = member
        else:
            result[name] = member
    return result


def _may_merge_lists(shape: Shape) -> bool:
    if shape.may_merge_lists is None:
        shape.may_merge_lists = True  # what a type that contains itself answers meanwhile
        members = [*(shape.fields or {}).values(), *([shape.items] if shape.items is not None else [])]
        shape.may_merge_lists = shape.is_merged or any(map(_may_merge_lists, members))
    return shape.may_merge_lists


def _is_content(value: Any, shape: Shape) -> bool:
    """Whether a patch's value stands for itself where nothing was: no directives, no nulls, no key twice."""
    if isinstance(value, dict):
        fields = shape.fields or {}
        for name, member in value.items():
            if member is None or name.startswith("$"):
                return False
            if isinstance(member, dict | list) and not _is_content(member, fields.get(name, ANYTHING)):
                return False
        return True
    if shape.is_merged:
        key, names = shape.merge_key, set[str]()
        for element in value:
            name = element.get(key) if key and isinstance(element, dict) else None
            if not isinstance(name, str) or name in names:
                return False
            names.add(name)
    item = shape.items or ANYTHING
    for element in value:
        if not isinstance(element, dict | list):
            continue
        if not _is_content(element, item):
            return False
    return True


def _merge_list(before: list[Any], patch: list[Any], shape: Shape, merge: Merge = _merge_value) -> list[Any]:
    if not shape.merge_key:
        merged = list(before)
        known = {repr(each) for each in before}
        for value in patch:
            if isinstance(value, dict | list):
                raise unprocessable("a list of plain values was patched with objects")
            if repr(value) not in known:
                known.add(repr(value))
                merged.append(value)
        return _in_order(merged, patch, before, "")
    key, item = shape.merge_key, shape.items or ANYTHING
    merged_plainly = _merge_keyed(before, patch, key, item, merge)
    if merged_plainly is not None:
        return merged_plainly
    if any(isinstance(each, dict) and each.get("$patch") == "replace" for each in patch):
        # `{"$patch": "replace"}` among the elements: the others are the new list.
        return [_clean(each, item) for each in patch if not (isinstance(each, dict) and each.get("$patch"))]
    kept: dict[str, Any] = {}
    for position, element in enumerate(before):
        has_key = isinstance(element, dict) and key in element
        kept[repr(element[key]) if has_key else f"#{position}"] = element
    named: list[Any] = []
    for element in patch:
        if not isinstance(element, dict) or key not in element:
            raise unprocessable(f"map: {type_name(element)} does not contain declared merge key: {key}")
        value = repr(element[key])
        if element.get("$patch") == "delete":
            kept.pop(value, None)
            continue
        kept[value] = _merge_value(kept.get(value), element, item)
        named.append(element)
    return _in_order(list(kept.values()), named, before, key)


def _merge_keyed(
    before: list[Any], patch: list[Any], key: str, item: Shape, merge: Merge = _merge_value
) -> list[Any] | None:
    """Return the merged list where every element has a text of its own as key and no directive; else None."""
    place: dict[str, int] = {}
    for position, element in enumerate(before):
        name = element.get(key) if isinstance(element, dict) else None
        if not isinstance(name, str) or name in place:
            return None
        place[name] = position
    changed = set[str]()
    ours: list[tuple[int, Any]] = []
    for element in patch:
        name = element.get(key) if isinstance(element, dict) and "$patch" not in element else None
        if not isinstance(name, str) or name in changed:
            return None
        at = place.get(name, -1)
        changed.add(name)
        ours.append((at, merge(before[at] if at >= 0 else None, element, item)))
    merged: list[Any] = []
    position = 0
    for at, other in enumerate(before):
        if other[key] in changed:
            continue
        while position < len(ours) and at >= ours[position][0]:
            merged.append(ours[position][1])
            position += 1
        merged.append(other)
    for _, element in ours[position:]:
        merged.append(element)
    return merged


def _reorder(result: dict[str, Any], name: str, order: Any, shape: Shape, before: list[Any]) -> None:
    wanted = _list(order, _ORDER + name)
    key = shape.merge_key
    if key and not all(isinstance(each, dict) and key in each for each in wanted):
        raise unprocessable(f"{_ORDER}{name}: every element needs {key}")
    result[name] = _in_order(result[name], wanted, before, key)


def _in_order(items: list[Any], wanted: list[Any], before: list[Any], key: str) -> list[Any]:
    """Return `items`, those named by `wanted` in its order, the others slipped in where they stood in `before`."""
    rank = {name: position for position, name in enumerate(_identities(wanted, key))}
    named = list(zip(_identities(items, key), items, strict=True))
    ours = sorted((each for each in named if each[0] in rank), key=lambda each: rank[each[0]])
    if len(ours) == len(named):
        return [each for _, each in ours]
    place = {name: position for position, name in enumerate(_identities(before, key))}
    merged: list[Any] = []
    position = 0
    for name, other in named:
        if name in rank:
            continue
        at = place.get(name, -1)
        while position < len(ours) and not 0 <= at < place.get(ours[position][0], -1):
            merged.append(ours[position][1])
            position += 1
        merged.append(other)
    return merged + [each for _, each in ours[position:]]


def _identities(items: list[Any], key: str) -> list[str]:
    return [repr(each.get(key)) if key and isinstance(each, dict) else repr(each) for each in items]


def _retain(result: dict[str, Any], patch: dict[str, Any]) -> None:
    retained = _list(patch["$retainKeys"], "$retainKeys")
    if missing := [n for n in patch if not n.startswith("$") and patch[n] is not None and n not in retained]:
        raise unprocessable(f"The retainKeys list must contain all fields present in the patch: {', '.join(missing)}")
    for name in [name for name in result if name not in retained]:
        del result[name]


def _clean(value: Any, shape: Shape) -> Any:
    """Return a patch's value as content: without directives and nulls."""
    if isinstance(value, dict):
        return _clean_object(value, shape)
    if isinstance(value, list):
        item = shape.items or ANYTHING
        return [_clean(each, item) for each in value if not (isinstance(each, dict) and each.get("$patch") == "delete")]
    return value


def _clean_object(value: dict[str, Any], shape: Shape) -> dict[str, Any]:
    fields = shape.fields or {}
    return {
        name: _clean(member, fields.get(name, ANYTHING))
        for name, member in value.items()
        if member is not None and not name.startswith(("$patch", "$retainKeys", _ORDER, _DELETE_VALUES))
    }


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise unprocessable(f"{name} must be a list, not {type_name(value)}")
    return value


def apply_patch(document: Document, patch: Any, patch_type: str, shape: Shape, kind: str) -> Document:
    """Return `document` with the patch applied.

    `patch_type`: merge, strategic or json; `shape`: the type of the document. Raises: BadRequest for a patch of the
    wrong form, Invalid (422) for one that cannot be applied, RequestEntityTooLarge, UnsupportedMediaType.
    """
    if patch_type == "json":
        try:
            result = json_patch(document, patch)
        except Invalid as error:
            # Which operation failed is not named: apiserver handlers/patch.go answers with the generic text alone.
            raise Invalid(error.message) from error
    elif patch_type in ("merge", "strategic"):
        if not isinstance(patch, dict):
            raise BadRequest(f"a {patch_type} patch must be a JSON object, not {type_name(patch)}")
        if patch_type == "merge":
            result = merge_patch(document, patch)
        elif document and b'"$' not in (text := msgspec.json.encode(patch)):  # no directive anywhere
            result = (_merge_plain if b"null" in text else _merge_bare)(document, patch, shape)
        else:
            result = strategic_merge_patch(document, patch, shape)
    else:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, "
            "application/apply-patch+yaml"
        )
    if not isinstance(result, dict):
        raise unprocessable(f"the patched {kind} is {type_name(result)}, not an object")
    return result


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` with RFC 7386's merge applied: null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merge_patch(result.get(name), value)
        else:
            result[name] = value
    return result
