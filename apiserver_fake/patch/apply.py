"""Server-side apply: merge what a manager wants into an object, and remember which fields are its.

Ownership is kept in `metadata.managedFields` in upstream's `FieldsV1` form, for managers that apply. Lists merge as
their schema says (`x-kubernetes-list-type`, `-list-map-keys`); a kind without schema merges objects member by member
and takes lists whole. `perform` reads the object, plans, and writes it back on the version that was read.

Deviates: writes that are not applies do not become owners, so only appliers conflict with one another. Source: KEP-555.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from apiserver_fake.catalogue import Catalogue
from apiserver_fake.decode import json_object
from apiserver_fake.schema.schemas import ANYTHING, Shape
from services.api.errors import BadRequest, Conflict
from services.api.meta import Document, Resource
from services.api.times import format_time
from services.api.wire import Api, Request, Response

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
_MISSING = object()


def _item_step(shape: Shape, item: Any) -> str:
    """Return the path step of a list item, or "" when the list is taken whole."""
    match shape.list_type:
        case "map" if isinstance(item, dict):
            key = {name: item[name] for name in sorted(shape.map_keys) if name in item}
            return f"k:{_text(key)}" if key else ""
        case "set" if not isinstance(item, dict | list):
            return f"v:{_text(item)}"
        case _:
            return ""


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _steps(shape: Shape, value: Any) -> list[tuple[str, Any, Shape]] | None:
    """Return `(step, child, child's shape)` of a value that merges piece by piece; None when it is taken whole."""
    if isinstance(value, dict):
        if not value or shape.is_atomic:
            return None
        return [(f"f:{name}", child, shape.member(name)) for name, child in value.items()]
    if isinstance(value, list) and value:
        items = shape.items or ANYTHING
        steps = [_item_step(shape, item) for item in value]
        if all(steps):
            return [(step, item, items) for step, item in zip(steps, value, strict=True)]
    return None


def owned_paths(config: Document, shape: Shape) -> dict[Path, Any]:
    """Return every leaf that a configuration names, with its value. Raises: BadRequest for a repeated list key."""
    found: dict[Path, Any] = {}

    def walk(path: Path, value: Any, of: Shape) -> None:
        if path in _UNOWNED:
            return
        steps = _steps(of, value)
        if steps is None:
            found[path] = value
            return
        seen: set[str] = set()
        for step, child, child_shape in steps:
            if step in seen:
                raise BadRequest(f".{'.'.join(path)}: two items have the key {step[2:]}")
            seen.add(step)
            if step.startswith("k:"):
                found[(*path, step, ".")] = child
            walk((*path, step), child, child_shape)

    for name, value in config.items():
        walk((f"f:{name}",), value, shape.member(name))
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


def _merged(live: Any, wanted: Any, shape: Shape) -> Any:
    """Return `live` with everything that `wanted` names."""
    steps = _steps(shape, wanted)
    if steps is None:
        return live if wanted == {} and isinstance(live, dict) else wanted
    if isinstance(wanted, dict):
        base = dict(live) if isinstance(live, dict) else {}
        for step, child, child_shape in steps:
            name = step[2:]
            base[name] = _merged(base.get(name, _MISSING), child, child_shape)
        return base
    items = list(live) if isinstance(live, list) else []
    places = {_item_step(shape, item): index for index, item in enumerate(items)}
    for step, child, child_shape in steps:
        if step in places:
            items[places[step]] = _merged(items[places[step]], child, child_shape)
        else:
            items.append(_merged(_MISSING, child, child_shape))
    return items


def _without(value: Any, path: Path, shape: Shape) -> Any:
    """Return the value without what stands at the path; containers that become empty go too."""
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and step.startswith("f:"):
        name = step[2:]
        if name not in value:
            return value
        left = _MISSING if not rest else _without(value[name], rest, shape.member(name))
        others = {key: child for key, child in value.items() if key != name}
        if left is _MISSING or (rest and left in ({}, [])):
            return others
        return {**others, name: left} if name not in others else others
    if isinstance(value, list):
        items = shape.items or ANYTHING
        kept: list[Any] = []
        for item in value:
            if _item_step(shape, item) != step:
                kept.append(item)
            elif rest and rest != (".",):
                kept.append(_without(item, rest, items))
        return kept
    return value


def _value_at(document: Any, path: Path, shape: Shape) -> Any:
    for step in path:
        if step == ".":
            return document
        if step.startswith("f:"):
            if not isinstance(document, dict) or step[2:] not in document:
                return _MISSING
            document, shape = document[step[2:]], shape.member(step[2:])
        else:
            if not isinstance(document, list):
                return _MISSING
            found = [item for item in document if _item_step(shape, item) == step]
            if not found:
                return _MISSING
            document, shape = found[0], shape.items or ANYTHING
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
    shape: Shape,
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
    api_version = str(config.get("apiVersion", ""))
    meta_in = config.get("metadata") or {}
    if not isinstance(meta_in, dict):
        raise BadRequest("metadata: want an object")
    if meta_in.get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    wanted = owned_paths(config, shape)
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
    mine = (manager, "Apply", subresource)
    for found in (live.get("metadata") or {}).get("managedFields") or ():
        if (found.get("manager"), found.get("operation"), found.get("subresource", "")) == mine:
            previous = found
        else:
            others.append(found)
    body = {name: value for name, value in config.items() if name not in ("apiVersion", "kind")}
    merged = _merged(live, body, shape)
    conflicts: list[tuple[str, Path]] = []
    kept: list[Document] = []
    for found in others:
        paths = paths_of(found.get("fieldsV1") or {})
        taken = [
            path
            for path in paths
            if path in wanted and path[-1] != "." and _value_at(live, path, shape) != _value_at(merged, path, shape)
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
            new = _without(new, path, shape)
    new = _merged(new, body, shape)
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


TRIES_MAX = 5
"""How often an apply starts over because another client wrote in between."""


def _named(config: Document, request: Request, resource: Resource) -> Document:
    """Return the configuration with kind, name and namespace checked against the path. Raises: BadRequest."""
    meta = config.get("metadata") or {}
    if not isinstance(meta, dict):
        raise BadRequest("metadata: want an object")
    wanted = {"apiVersion": resource.api_version, "kind": resource.kind}
    if not request.subresource:
        for field, value in wanted.items():
            if config.get(field) != value:
                text = f"an apply patch of {request.resource} needs {field} {value!r}, has {config.get(field)!r}"
                raise BadRequest(text)
    if meta.get("name", request.name) != request.name:
        raise BadRequest(f"the name in the patch ({meta['name']}) does not match the name in the URL ({request.name})")
    if meta.get("namespace", request.namespace) != request.namespace:
        raise BadRequest(
            f"the namespace in the patch ({meta['namespace']}) does not match the one in the URL ({request.namespace})"
        )
    placed = {"name": request.name, **({"namespace": request.namespace} if request.namespace else {})}
    return {**config, "metadata": {**meta, **placed}}


async def perform(api: Api, request: Request, catalogue: Catalogue, *, is_forced: bool, wall_s: float) -> Response:
    """Return the answer to an apply patch: 201 if it created, else 200, or a refusal. Raises: Conflict, BadRequest."""
    config = _named(
        json_object(request.body, "error decoding YAML", "an apply patch must be an object"),
        request,
        catalogue.find(request.resource),
    )
    shape = catalogue.shape_of(str(config.get("apiVersion", "")), str(config.get("kind", "")))
    wanted_version = str(config["metadata"].get("resourceVersion") or "")
    response = Response(code=409)
    for _ in range(TRIES_MAX):
        read = await api.call(
            Request(
                verb="get",
                resource=request.resource,
                namespace=request.namespace,
                name=request.name,
                subresource=request.subresource,
                traceparent=request.traceparent,
            )
        )
        live: Any = None
        if read.is_ok:
            live = msgspec.json.decode(read.body)
        elif read.code != 404 or request.subresource:
            return read
        planned = plan(
            live,
            config,
            shape,
            manager=request.field_manager,
            is_forced=is_forced,
            wall_s=wall_s,
            subresource=request.subresource,
        )
        if planned is None:
            return read
        if live is not None:
            version = wanted_version or live["metadata"]["resourceVersion"]
            planned["metadata"] = {**planned["metadata"], "resourceVersion": version}
        response = await api.call(
            msgspec.structs.replace(
                request,
                verb="update" if live is not None else "create",
                name=request.name if live is not None else "",
                patch_type="",
                body=msgspec.json.encode(planned),
            )
        )
        # Another client wrote in between, or created or deleted the object: plan again on what is there now.
        if response.is_ok or wanted_version or response.code not in (404, 409):
            return response
    return response
