"""What upstream's types say about the fields of our kinds: their names, and how lists of them merge.

One data file, `schemas.json`, holds OpenAPI v3 schemas. Keys with slashes are kinds (`<group>/<version>/<Kind>`, the
core group being empty) and point to a component; the other keys are components as `/openapi/v3` serves them. Strict
field validation, strategic merge patches and `kubectl explain` all read this one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import msgspec

from services.api.errors import BadRequest
from services.api.meta import Document
from services.api.times import parse_time

_PREFIX = "#/components/schemas/"


@dataclass
class Shape:
    """One field's type as merging and validation need it.

    `type`: object, array, string, integer, number, boolean, quantity, int-or-string, time, or "" for any.
    `fields`: the known members of an object, None where any name is legal; `values`: what those hold.
    `items`: what a list holds. `merge_key`: lists of objects merge by this member. `is_merged`: the list
    merges at all. `is_replaced`: the object is taken whole. For server-side apply: `list_type` is map or set where a
    list merges, `map_keys` tell the items of a map apart, and what `is_atomic` is taken whole. `default`: what a member
    that is missing counts as, None where nothing. `present`: members that upstream's types hold by value, so that they
    are there, empty, where their object is. `keeps_unknown`: members that `fields` does not have are legal
    (`x-kubernetes-preserve-unknown-fields`).
    """

    type: str = ""
    fields: dict[str, Shape] | None = None
    values: Shape | None = None
    items: Shape | None = None
    merge_key: str = ""
    is_merged: bool = False
    is_replaced: bool = False
    list_type: str = ""
    map_keys: tuple[str, ...] = ()
    is_atomic: bool = False
    default: Any = None
    present: frozenset[str] = frozenset()
    keeps_unknown: bool = False

    def member(self, name: str) -> Shape:
        """Return the shape of an object's member; anything where nothing is known of it."""
        return (self.fields or {}).get(name) or self.values or ANYTHING


ANYTHING = Shape()
"""The shape of what we know nothing about: objects merge member by member, lists are replaced."""


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Return the whole table; shared, not to be changed."""
    text = files("apiserver_fake.schema").joinpath("schemas.json").read_bytes()
    table: dict[str, dict[str, Any]] = msgspec.json.decode(text)
    return table


def component_of(api_version: str, kind: str) -> str:
    """Return the component's name of a kind (`io.k8s.api.core.v1.Pod`); "" when the kind has no schema."""
    group, _, version = api_version.rpartition("/")
    pointer = schemas().get(f"{group}/{version}/{kind}")
    return str(pointer["$ref"])[len(_PREFIX) :] if pointer else ""


def components() -> dict[str, dict[str, Any]]:
    """Return the components by name, as an OpenAPI v3 document lists them."""
    return {name: schema for name, schema in schemas().items() if "/" not in name}


def shape_of(api_version: str, kind: str) -> Shape:
    """Return the shape of a kind, `ANYTHING` for one without schema."""
    name = component_of(api_version, kind)
    return _component(name) if name else ANYTHING


def component_shape(name: str) -> Shape:
    """Return the shape of a component, such as `io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`."""
    return _component(name)


_COMPONENTS: dict[str, Shape] = {}


def _component(name: str) -> Shape:
    shape = _COMPONENTS.get(name)
    if shape is None:
        # Entered before it is filled: types may contain themselves.
        shape = _COMPONENTS[name] = Shape()
        schema = schemas().get(name, {})
        _fill(shape, schema)
        shape.present = _present(name.rpartition(".")[2], schema)
    return shape


_BY_VALUE = frozenset(("metadata", "spec", "status", "template", "strategy", "updateStrategy", "jobTemplate", "source"))
"""Members that are structs, not pointers, in nearly every type of upstream that has them."""
_BY_VALUE_IN = {
    "AllocationResult": ("devices",), "Container": ("resources",), "ContainerStatus": ("state", "lastState"),
    "DeviceTaintRuleSpec": ("taint",), "Endpoint": ("conditions",), "EphemeralContainer": ("resources",),
    "Event": ("involvedObject",), "HorizontalPodAutoscalerSpec": ("scaleTargetRef",),
    "IngressStatus": ("loadBalancer",),
    "NodeDaemonEndpoints": ("kubeletEndpoint",), "NodeStatus": ("daemonEndpoints", "nodeInfo"),
    "PersistentVolumeClaimSpec": ("resources",), "ResourceClaimSpec": ("devices",),
    "ResourceSliceSpec": ("pool",), "ServiceStatus": ("loadBalancer",),
    "PreferredSchedulingTerm": ("preference",), "WeightedPodAffinityTerm": ("podAffinityTerm",),
}  # fmt: skip


def _present(kind: str, schema: dict[str, Any]) -> frozenset[str]:
    """Return the members of a type that are there in an empty object of it: structs, and lists that are required.

    Source: upstream `staging/src/k8s.io/api`.
    """
    required, found = schema.get("required", ()), []
    for name, member in schema.get("properties", {}).items():
        is_struct = "$ref" in member and (name in _BY_VALUE or name in _BY_VALUE_IN.get(kind, ()))
        if is_struct or (name in required and member.get("type") == "array"):
            found.append(name)
    return frozenset(found)


@cache
def zero(name: str) -> dict[str, Any]:
    """Return what an object of a component has of itself, as upstream's encoder writes it: numbers, switches and texts
    that are required, and the structs of `present`. Lists, which upstream writes as null, are left out.
    """
    schema, made = schemas().get(name, {}), {}
    kind = name.rpartition(".")[2]
    present, required = _present(kind, schema), (*schema.get("required", ()), *_ALWAYS.get(kind, ()))
    for member, each in schema.get("properties", {}).items():
        if member in present and "$ref" in each:
            made[member] = zero(each["$ref"][len(_PREFIX) :])
        elif member in required and each.get("type") in _ZEROES:
            made[member] = _ZEROES[each["type"]]
    return made


_ZEROES: dict[str, Any] = {"integer": 0, "boolean": False, "string": ""}
_ALWAYS = {
    "PodDisruptionBudgetStatus": ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
    "StatefulSetStatus": ("availableReplicas",),
}
"""Members that upstream's types write in any case though they are optional."""


def zero_status(api_version: str, kind: str) -> dict[str, Any] | None:
    """Return the status of a new object that nothing was said of; None for a kind without."""
    name = component_of(api_version, kind)
    member = schemas().get(name, {}).get("properties", {}).get("status") or {}
    return zero(member["$ref"][len(_PREFIX) :]) if "$ref" in member else None


def _fill(shape: Shape, schema: dict[str, Any]) -> None:
    form = str(schema.get("format", ""))
    shape.type = {"date-time": "time", "quantity": form, "int-or-string": form}.get(form, str(schema.get("type", "")))
    shape.is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
    shape.default = schema.get("default")
    if "properties" in schema:
        shape.fields = {name: _member(each) for name, each in schema["properties"].items()}
    elif isinstance(schema.get("additionalProperties"), dict):
        shape.values = _member(schema["additionalProperties"])


def _member(schema: dict[str, Any]) -> Shape:
    strategy = str(schema.get("x-kubernetes-patch-strategy", ""))
    if "$ref" in schema:
        target = _component(schema["$ref"][len(_PREFIX) :])
        if schema.get("x-kubernetes-map-type") == "granular":
            return replace(target, is_atomic=False)
        return Shape("object", target.fields, is_replaced=True) if strategy == "replace" else target
    if schema.get("type") == "array":
        return Shape(
            "array",
            items=_member(schema.get("items", {})),
            merge_key=str(schema.get("x-kubernetes-patch-merge-key", "")),
            is_merged="merge" in strategy.split(","),
            list_type=str(schema.get("x-kubernetes-list-type", "")),
            map_keys=tuple(schema.get("x-kubernetes-list-map-keys", ())),
        )
    shape = Shape()
    _fill(shape, schema)
    return shape


class _Mismatch(Exception):
    """A value of the wrong type; `(path, type wanted, value)`."""


def conform(
    shape: Shape,
    api_version: str,
    kind: str,
    document: Document,
    old: Document | None = None,
    unknown: list[str] | None = None,
) -> Document:
    """Return the document as its kind's type, `shape`, reads it: known fields have their types, nulls are gone.

    A null counts as absent, as in upstream's types, and numbers given for quantities become text; fields that the type
    does not have are left out, and their paths are added to `unknown` in document order (decision 0030). Parts that
    are shared with `old` (patches share what they do not touch) are not looked at again. After this, rules may rely on
    the types of known fields. Raises: BadRequest naming the field and both types.
    """
    wanted = _strict_type(shape)
    if wanted is not None:
        try:
            msgspec.convert(document, wanted)
            return document
        except msgspec.ValidationError:
            pass  # nulls, numbers for quantities, unknown fields, or a mistake: looked at one by one
    try:
        conformed = _conform(shape, document, old, "", [] if unknown is None else unknown)
    except _Mismatch as mismatch:
        path, wanted, value = mismatch.args
        version = api_version.rpartition("/")[2]
        raise BadRequest(
            f'{kind} in version "{version}" cannot be handled as a {kind}: '
            f"json: cannot unmarshal {_json_type(value)} into field {path} of type {wanted}"
        ) from None
    assert isinstance(conformed, dict)
    return conformed


_PLAIN_TYPES: dict[str, Any] = {
    "": Any,
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "int-or-string": int | str,
    "quantity": str,
    # A part of what `parse_time` accepts, the part that our own clients write.
    "time": Annotated[
        str,
        msgspec.Meta(
            pattern=r"^(19[7-9]\d|2[01]\d\d)-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"
            r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{6})?Z\Z"
        ),
    ],
}
_STRICT: dict[int, tuple[Shape, Any]] = {}


def _strict_type(shape: Shape) -> Any:
    """Return a type that takes only documents on which `_conform` has nothing to do; None where there is none.

    It makes one pass in C of what is a walk in Python, and nearly every document passes.
    """
    known = _STRICT.get(id(shape))
    if known is None:
        try:
            known = (shape, _strict(shape, ()) if shape.fields else None)
        except RecursionError:  # a type that contains itself
            known = (shape, None)
        _STRICT[id(shape)] = known
    return known[1]


def _strict(shape: Shape, above: tuple[int, ...]) -> Any:
    if id(shape) in above:
        raise RecursionError(shape.type)
    if shape.type == "array":
        item = _strict(shape.items or ANYTHING, (*above, id(shape)))
        return list[item]  # type: ignore[valid-type]
    if shape.type != "object":
        return _PLAIN_TYPES[shape.type]
    known = _STRICT.get(id(shape))
    if known is not None and known[1] is not None:
        return known[1]
    inside = (*above, id(shape))
    if shape.fields is None:
        value = _strict(shape.values or ANYTHING, inside)
        return dict[str, value]  # type: ignore[valid-type]
    fields = list(shape.fields.items())
    found = msgspec.defstruct(
        "Strict",
        [(f"f{place}", _strict(member, inside), msgspec.UNSET) for place, (_, member) in enumerate(fields)],
        rename={f"f{place}": name for place, (name, _) in enumerate(fields)},
        forbid_unknown_fields=not shape.keeps_unknown,
    )
    _STRICT[id(shape)] = (shape, found)
    return found


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "int-or-string": (int, str),
}


def _conform(shape: Shape, value: Any, old: Any, path: str, unknown: list[str]) -> Any:
    if value is old and old is not None:
        return value
    match shape.type:
        case "":
            return value
        case "object":
            if not isinstance(value, dict):
                raise _Mismatch(path or "the body", "object", value)
            return _conform_object(shape, value, old, path, unknown)
        case "array":
            if not isinstance(value, list):
                raise _Mismatch(path, "array", value)
            before = old if isinstance(old, list) and len(old) == len(value) else [None] * len(value)
            item = shape.items or ANYTHING
            copy = value
            for index, (member, was) in enumerate(zip(value, before, strict=True)):
                if member is None and item.type:
                    raise _Mismatch(f"{path}[{index}]", item.type, None)
                same = _conform(item, member, was, f"{path}[{index}]", unknown)
                if same is not member:
                    copy = list(value) if copy is value else copy
                    copy[index] = same
            return copy
        case "quantity":
            if isinstance(value, str):
                return value
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _Mismatch(path, "quantity", value)
            return repr(value)
        case "time":
            return _conform_time(value, path)
        case wanted:
            if not isinstance(value, _PYTHON_TYPES[wanted]) or (isinstance(value, bool) and wanted != "boolean"):
                raise _Mismatch(path, wanted, value)
            return value


def _conform_object(shape: Shape, value: dict[str, Any], old: Any, path: str, unknown: list[str]) -> dict[str, Any]:
    fields, values = shape.fields or {}, shape.values
    keeps_unknown = shape.keeps_unknown or shape.fields is None
    before = old if isinstance(old, dict) else {}
    changed: dict[str, Any] = {}
    for name, member in value.items():
        known = fields.get(name, values)
        here = f"{path}.{name}" if path else name
        if known is None:
            if not keeps_unknown:
                unknown.append(here)
                changed[name] = None
            continue
        if member is None:
            changed[name] = None
            continue
        same = _conform(known, member, before.get(name), here, unknown)
        if same is not member:
            changed[name] = same
    if not changed:
        return value
    return {n: changed.get(n, m) for n, m in value.items() if not (n in changed and changed[n] is None)}


def _conform_time(value: Any, path: str) -> Any:
    if not isinstance(value, str):
        raise _Mismatch(path, "time", value)
    try:
        parse_time(value)
    except ValueError:
        raise _Mismatch(path, "time (RFC 3339)", value) from None
    return value


def _json_type(value: Any) -> str:
    if isinstance(value, str):
        return f"string {value[:64]!r}"
    names = {dict: "object", list: "array", bool: "bool", type(None): "null"}
    return names.get(type(value), f"number {value!r}"[:40])


def strict_refusal(api_version: str, kind: str, faults: Sequence[str]) -> BadRequest:
    """Return the refusal of a document with fields that its kind does not have or that it has twice (Strict)."""
    version = api_version.rpartition("/")[2]
    return BadRequest(
        f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {", ".join(faults)}'
    )


def unknown_fields(paths: Sequence[str]) -> list[str]:
    """Return what is said of fields that a kind does not have."""
    return [f'unknown field "{path}"' for path in paths]


def report_fields(paths: Sequence[str], api_version: str, kind: str, mode: str) -> list[str]:
    """Return the warnings about unknown fields as `fieldValidation` wants them. Raises: BadRequest for Strict."""
    found = unknown_fields(paths) if mode in ("Warn", "Strict") else []
    if found and mode == "Strict":
        raise strict_refusal(api_version, kind, found)
    return found
