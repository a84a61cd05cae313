"""Server-side apply: merge what a manager wants into an object, and remember which fields are its.

Ownership is kept in `metadata.managedFields` in upstream's `FieldsV1` form, for managers that apply. Lists
merge as their schema says (`x-kubernetes-list-type`, `-list-map-keys`); a kind without schema merges objects
member by member and takes lists whole.

Deviates: writes that are not applies do not become owners, so only appliers conflict with one another.
Source: KEP-555.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from apiserver_fake.schema import schemas
from services.api.errors import BadRequest, Conflict
from services.api.meta import Document
from services.api.times import format_time

Path = tuple[str, ...]
"""`f:NAME` for a member, `k:{JSON}` for a keyed list item, `v:JSON` for an item of a set; `.` marks an item itself."""

_UNOWNED = frozenset(
    (
        ("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace"),
        ("f:metadata", "f:uid"),
        ("f:metadata", "f:resourceVersion"), ("f:metadata", "f:creationTimestamp"), ("f:metadata", "f:generation"),
        ("f:metadata", "f:managedFields"), ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:selfLink"),
        ("f:metadata", "f:generateName"),
    )
)  # fmt: skip
_PREFIX = "#/components/schemas/"
_MISSING = object()


def _resolved(schema: Document) -> Document:
    """Return the schema with its reference followed; what stands beside the reference wins."""
    for _ in range(8):
        target = schema.get("$ref") or next((s["$ref"] for s in schema.get("allOf", ()) if "$ref" in s), None)
        if target is None:
            return schema
        beside = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
        schema = {**schemas.schemas().get(str(target).removeprefix(_PREFIX), {}), **beside}
    return schema


def root_schema(api_version: str, kind: str) -> Document:
    """Return the schema of a kind; {} when there is none."""
    component = schemas.component_of(api_version, kind)
    return _resolved(schemas.schemas().get(component, {})) if component else {}


def _member_schema(schema: Document, name: str) -> Document:
    found = schema.get("properties", {}).get(name)
    if found is None:
        extra = schema.get("additionalProperties")
        found = extra if isinstance(extra, dict) else {}
    return _resolved(found)


def _item_step(schema: Document, item: Any) -> str:
    """Return the path step of a list item, or "" when the list is taken whole."""
    match schema.get("x-kubernetes-list-type"):
        case "map" if isinstance(item, dict):
            defaults = _resolved(schema.get("items", {})).get("properties", {})
            key: Document = {}
            for name in schema.get("x-kubernetes-list-map-keys", ()):
                value = item.get(name, defaults.get(name, {}).get("default", _MISSING))
                if value is not _MISSING:
                    key[name] = value
            return f"k:{_text(dict(sorted(key.items())))}" if key else ""
        case "set" if not isinstance(item, dict | list):
            return f"v:{_text(item)}"
        case _:
            return ""


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _steps(schema: Document, value: Any) -> list[tuple[str, Any, Document]] | None:
    """Return `(step, child, child's schema)` of a value that merges piece by piece; None when it is taken whole."""
    if isinstance(value, dict):
        if not value or schema.get("x-kubernetes-map-type") == "atomic":
            return None
        return [(f"f:{name}", child, _member_schema(schema, name)) for name, child in value.items()]
    if isinstance(value, list) and value:
        items = _resolved(schema.get("items", {}))
        steps = [_item_step(schema, item) for item in value]
        if all(steps):
            return [(step, item, items) for step, item in zip(steps, value, strict=True)]
    return None


def owned_paths(config: Document, schema: Document) -> dict[Path, Any]:
    """Return every leaf that a configuration names, with its value. Raises: BadRequest for a repeated list key."""
    found: dict[Path, Any] = {}

    def walk(path: Path, value: Any, of: Document) -> None:
        if path in _UNOWNED:
            return
        steps = _steps(of, value)
        if steps is None:
            found[path] = value
            return
        seen: set[str] = set()
        for step, child, child_schema in steps:
            if step in seen:
                raise BadRequest(f".{'.'.join(path)}: two items have the key {step[2:]}")
            seen.add(step)
            if step.startswith("k:"):
                found[(*path, step, ".")] = child
            walk((*path, step), child, child_schema)

    for name, value in config.items():
        walk((f"f:{name}",), value, _member_schema(schema, name))
    return found


def fields_v1(paths: list[Path]) -> Document:
    """Return paths in the nested `FieldsV1` form."""
    root: Document = {}
    for path in paths:
        node = root
        for step in path:
            node = node.setdefault(step, {})
    return root


def paths_of(fields: Document) -> list[Path]:
    """Return the leaves of a `FieldsV1` tree; the inverse of `fields_v1`."""

    def walk(path: Path, node: Any) -> Iterator[Path]:
        if not isinstance(node, dict) or not node:
            yield path
            return
        for step, child in node.items():
            yield from walk((*path, str(step)), child)

    return [path for path in walk((), fields) if path]


def _merged(live: Any, wanted: Any, schema: Document) -> Any:
    """Return `live` with everything that `wanted` names."""
    steps = _steps(schema, wanted)
    if steps is None:
        return live if wanted == {} and isinstance(live, dict) else wanted
    if isinstance(wanted, dict):
        base = dict(live) if isinstance(live, dict) else {}
        for step, child, child_schema in steps:
            name = step[2:]
            base[name] = _merged(base.get(name, _MISSING), child, child_schema)
        return base
    items = list(live) if isinstance(live, list) else []
    places = {_item_step(schema, item): index for index, item in enumerate(items)}
    for step, child, child_schema in steps:
        if step in places:
            items[places[step]] = _merged(items[places[step]], child, child_schema)
        else:
            items.append(_merged(_MISSING, child, child_schema))
    return items


def _without(value: Any, path: Path, schema: Document) -> Any:
    """Return the value without what stands at the path; containers that become empty go too."""
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and step.startswith("f:"):
        name = step[2:]
        if name not in value:
            return value
        left = _MISSING if not rest else _without(value[name], rest, _member_schema(schema, name))
        others = {key: child for key, child in value.items() if key != name}
        if left is _MISSING or (rest and left in ({}, [])):
            return others
        return {**others, name: left} if name not in others else others
    if isinstance(value, list):
        items = _resolved(schema.get("items", {}))
        kept: list[Any] = []
        for item in value:
            if _item_step(schema, item) != step:
                kept.append(item)
            elif rest and rest != (".",):
                kept.append(_without(item, rest, items))
        return kept
    return value


def _value_at(document: Any, path: Path, schema: Document) -> Any:
    for step in path:
        if step == ".":
            return document
        if step.startswith("f:"):
            if not isinstance(document, dict) or step[2:] not in document:
                return _MISSING
            document, schema = document[step[2:]], _member_schema(schema, step[2:])
        else:
            if not isinstance(document, list):
                return _MISSING
            found = [item for item in document if _item_step(schema, item) == step]
            if not found:
                return _MISSING
            document, schema = found[0], _resolved(schema.get("items", {}))
    return document


def _dotted(path: Path) -> str:
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step != ".":
            key = msgspec.json.decode(step[2:])
            inner = ",".join(f"{n}={_text(v)}" for n, v in key.items()) if isinstance(key, dict) else f"={step[2:]}"
            text += f"[{inner}]"
    return text


def plan(
    live: Document | None,
    config: Document,
    *,
    manager: str,
    is_forced: bool,
    wall_s: float,
    subresource: str = "",
) -> Document | None:
    """Return the object to write, or None when applying changes nothing.

    Without a live object that is the configuration itself, owned. Fields the manager applied before and no
    longer names are removed, unless another manager applied them too.

    Raises: Conflict naming every field that another manager applied with another value, unless forced.
    """
    api_version, kind = str(config.get("apiVersion", "")), str(config.get("kind", ""))
    schema = root_schema(api_version, kind)
    meta_in = config.get("metadata") or {}
    if not isinstance(meta_in, dict):
        raise BadRequest("metadata: want an object")
    if meta_in.get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    wanted = owned_paths(config, schema)
    entry: Document = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": api_version,
        "time": format_time(wall_s),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields_v1(list(wanted)),
    }
    if subresource:
        entry["subresource"] = subresource
    if live is None:
        return {**config, "metadata": {**meta_in, "managedFields": [entry]}}

    others: list[Document] = []
    previous: Document = {}
    for found in (live.get("metadata") or {}).get("managedFields") or ():
        is_mine = (found.get("manager"), found.get("operation"), found.get("subresource", "")) == (
            manager,
            "Apply",
            subresource,
        )
        if is_mine:
            previous = found
        else:
            others.append(found)
    body = {name: value for name, value in config.items() if name not in ("apiVersion", "kind")}
    merged = _merged(live, body, schema)
    conflicts: list[tuple[str, Path]] = []
    kept: list[Document] = []
    for found in others:
        paths = paths_of(found.get("fieldsV1") or {})
        taken = [
            path
            for path in paths
            if path in wanted and path[-1] != "." and _value_at(live, path, schema) != _value_at(merged, path, schema)
        ]
        conflicts += [(f'"{found.get("manager")}" using {found.get("apiVersion")}', path) for path in taken]
        left = [path for path in paths if path not in taken]
        kept.append({**found, "fieldsV1": fields_v1(left)} if taken else found)
    if conflicts and not is_forced:
        raise _conflict(conflicts)

    still_owned = {path for found in kept for path in paths_of(found.get("fieldsV1") or {})}
    new = live
    # Deepest first, so that an item's members go before the item.
    for path in sorted(paths_of(previous.get("fieldsV1") or {}), key=lambda p: (-len(p), p)):
        if path not in wanted and path not in still_owned:
            new = _without(new, path, schema)
    new = _merged(new, body, schema)
    if previous and previous.get("fieldsV1") == entry["fieldsV1"] and new == live and not conflicts:
        return None
    new["metadata"] = {**new["metadata"], "managedFields": [*(k for k in kept if k.get("fieldsV1")), entry]}
    return dict(new)


def _conflict(conflicts: list[tuple[str, Path]]) -> Conflict:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": _dotted(path)}
        for who, path in conflicts
    ]
    if len(conflicts) == 1:
        text = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines: dict[str, list[str]] = {}
        for who, path in conflicts:
            lines.setdefault(who, []).append(f"- {_dotted(path)}")
        text = f"{len(conflicts)} conflicts: " + "\n".join(
            f"conflicts with {who}:\n" + "\n".join(fields) for who, fields in lines.items()
        )
    return Conflict(f"Apply failed with {text}", details={"causes": causes})
