"""Upstream's schemas of the served kinds: the names of their fields, and how their lists merge.

Two data files hold OpenAPI v3 schemas, one property per line: `schemas.json` upstream's, `additions.json` those
that proposals add here. Keys with slashes are kinds (`<group>/<version>/<Kind>`, the core group being empty)
and point to a component; the other keys are components as `/openapi/v3` serves them. Strict field validation,
strategic merge patches and `kubectl explain` all read this one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import msgspec

from apiserver_fake.registry.schema.mistakes import (
    BITS,
    conversion_mistake,
    cut,
    decoding_mistake,
    fits,
    go_types,
    quantity_mistake,
    wrong_base64,
    wrong_time,
)
from services.api.errors import BadRequest
from services.api.meta import Document
from services.api.quantity import canonical

_PREFIX = "#/components/schemas/"


@dataclass
class Shape:
    """The type of one field, for merging and validation.

    `type`: object, array, string, integer, number, boolean, quantity, int-or-string, time, or "" for any. `fields`:
    the known members of an object, None where any name is legal; `values`: the type of those members. `items`: the
    type of a list's items. `merge_key`: lists of objects merge by this member. `is_merged`: the list merges at all.
    `is_replaced`: the object is replaced as a whole. For server-side apply: `list_type` is map or set where a list
    merges, `map_keys` identify the items of a map, and an `is_atomic` value is replaced as a whole. `default`: the
    value that a missing member counts as, None for none. `present`: members that upstream's types hold by value, so
    that they exist, empty, wherever their object does. `keeps_unknown`: members that `fields` does not have are
    legal (`x-kubernetes-preserve-unknown-fields`). `component`: the name of the type, if it has one. `form`: int32
    or int64 of an integer, bytes of a text in base64, micro of a time with microseconds. `plans`: results that
    walks over documents have computed once for the type. `may_merge_lists`: whether a value may hold a list that
    merges; None before patches have asked.
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
    component: str = ""
    form: str = ""
    plans: dict[tuple[str, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    may_merge_lists: bool | None = field(default=None, init=False, repr=False, compare=False)

    def member(self, name: str) -> Shape:
        """Return the shape of an object's member; the any shape if the member is unknown."""
        return (self.fields or {}).get(name) or self.values or ANYTHING


ANYTHING = Shape()
"""The shape of a value of unknown type: objects merge member by member, lists are replaced."""


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Return the whole table; it is shared and must not be changed."""
    folder = files("apiserver_fake.registry.schema")
    table: dict[str, dict[str, Any]] = msgspec.json.decode(folder.joinpath("schemas.json").read_bytes())
    additions: dict[str, dict[str, Any]] = msgspec.json.decode(folder.joinpath("additions.json").read_bytes())
    for name, added in additions.items():
        known = table.get(name)
        if known is None:
            table[name] = added
        else:
            table[name] = {**known, "properties": dict(sorted((known["properties"] | added["properties"]).items()))}
    return table


def component_of(api_version: str, kind: str) -> str:
    """Return the component's name of a kind (`io.k8s.api.core.v1.Pod`); "" if the kind has no schema."""
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
        shape.component = name
        for member, go_type in go_types().get(name, {}).get("types", {}).items():
            if (form := _FORMS.get(go_type)) and shape.fields is not None:
                _set_form(shape.fields[member], form)
        shape.present = _present(name.rpartition(".")[2], schema)
    return shape


_FORMS = {"v1.MicroTime": "micro", "[]uint8": "bytes", "map[string][]uint8": "bytes"}


def _set_form(shape: Shape, form: str) -> None:
    (shape.values or shape).form = form


_BY_VALUE = frozenset(("metadata", "spec", "status", "template", "strategy", "updateStrategy", "jobTemplate", "source"))
"""Members that are structs, not pointers, in nearly every upstream type that has them."""
_BY_VALUE_IN = {
    "AllocationResult": ("devices",), "Container": ("resources",), "ContainerStatus": ("state", "lastState"),
    "DeviceTaintRuleSpec": ("taint",), "Endpoint": ("conditions",), "EphemeralContainer": ("resources",),
    "Event": ("involvedObject",), "HorizontalPodAutoscalerSpec": ("scaleTargetRef",),
    "NodeDaemonEndpoints": ("kubeletEndpoint",), "NodeStatus": ("daemonEndpoints", "nodeInfo"),
    "PersistentVolumeClaimSpec": ("resources",), "ResourceClaimSpec": ("devices",),
    "ResourceSliceSpec": ("pool",), "ServiceStatus": ("loadBalancer",),
    "PreferredSchedulingTerm": ("preference",), "WeightedPodAffinityTerm": ("podAffinityTerm",),
}  # fmt: skip


def _present(kind: str, schema: dict[str, Any]) -> frozenset[str]:
    """Return the members of a type that are there in an empty object of it: structs, and lists that are required.

    Source: upstream `staging/src/k8s.io/api`.
    """
    required, members = schema.get("required", ()), []
    for name, member in schema.get("properties", {}).items():
        is_struct = "$ref" in member and (name in _BY_VALUE or name in _BY_VALUE_IN.get(kind, ()))
        if is_struct or (name in required and member.get("type") == "array"):
            members.append(name)
    return frozenset(members)


def _fill(shape: Shape, schema: dict[str, Any]) -> None:
    form = str(schema.get("format", ""))
    shape.type = {"date-time": "time", "quantity": form, "int-or-string": form}.get(form, str(schema.get("type", "")))
    shape.form = form if form in BITS else ""
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
        return replace(target, is_replaced=True) if strategy == "replace" else target
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


class Mistyped(BadRequest):
    """The document does not fit its kind's type: Go's error text, and the first such field with its value."""

    mistake: str = ""
    path: str = ""
    value: Any = None


def conform(
    shape: Shape,
    api_version: str,
    kind: str,
    document: Document,
    old: Document | None = None,
    unknown: list[str] | None = None,
    *,
    is_converted: bool = False,
) -> Document:
    """Return the document converted to its kind's type, `shape`: known fields have their types, nulls are
    removed.

    A null counts as absent, as in upstream's types, and in a map of strings as the empty string. Numbers given for
    quantities become text. Fields that the type does not have are left out, and their paths are added to `unknown`
    in document order (decision 0030). Parts that are shared with `old` (patches share what they do not change) are
    not checked again. After this, rules may rely on the types of known fields. `is_converted`: convert as upstream
    does with the result of a strategic merge patch or an apply, where integers are truncated to their width.
    Raises: Mistyped, with the text of Go's decoder or converter.
    """
    known = _STRICT.get(id(shape))
    wanted = known[1] if known is not None else _strict_type(shape)
    if wanted is not None:
        try:
            msgspec.convert(document if old is None else _news(document, old), wanted)
            return document
        except msgspec.ValidationError:
            pass  # nulls, numbers for quantities, unknown fields, or a mistake: looked at one by one
    try:
        conformed = _conform(shape, document, old, "", [] if unknown is None else unknown, is_converted)
    except _Mismatch as mismatch:
        say = conversion_mistake if is_converted else decoding_mistake
        path, wanted, value = mismatch.args
        mistake = (
            say(shape, document) or f"json: cannot unmarshal {_json_type(value)} into field {path} of type {wanted}"
        )
        version = api_version.rpartition("/")[2]
        refusal = Mistyped(f'{kind} in version "{version}" cannot be handled as a {kind}: {mistake}')
        refusal.mistake, refusal.path, refusal.value = mistake, path, value
        raise refusal from None
    assert isinstance(conformed, dict)
    return conformed


def _news(document: Document, old: Document) -> Document:
    """Return what of a document is not shared with the old one, down to its members' members."""
    new_members: Document = {}
    for name, value in document.items():
        before = old.get(name)
        if value is before and value is not None:
            continue
        new_members[name] = value
        if isinstance(value, dict) and isinstance(before, dict):
            new_members[name] = news = Document()
            for key, member in value.items():
                if member is None or member is not before.get(key):
                    news[key] = member
    return new_members


# The part of what is accepted that nearly every client writes.
_LEAP_YEAR = r"(?:19(?:7[26]|8[048]|9[26])|20(?:[02468][048]|[13579][26])|21(?:0[48]|[2468][048]|[13579][26]))"
_DAY = (
    r"(?:(?:19[7-9]\d|2[01]\d\d)-"
    r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    rf"|{_LEAP_YEAR}-02-29)"
)
"""Every day of 1970 to 2199: a day that is left out would be one on which nearly every document is walked."""
_MOMENT = rf"^{_DAY}T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_INT32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_PLAIN_TYPES: dict[tuple[str, str], Any] = {
    ("", ""): Any,
    ("string", ""): str,
    ("string", "bytes"): Annotated[
        str, msgspec.Meta(pattern=r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\Z")
    ],
    ("integer", ""): int,
    ("integer", "int32"): _INT32,
    ("integer", "int64"): Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    ("number", ""): float,
    ("boolean", ""): bool,
    ("int-or-string", ""): _INT32 | str,
    ("quantity", ""): Annotated[
        str, msgspec.Meta(pattern=r"^(0|-?[1-9][0-9]*(?<!000)[numkMGTPE]?|[1-9][0-9]{0,2}[KMGTPE]i)\Z")
    ],
    ("time", ""): Annotated[str, msgspec.Meta(pattern=_MOMENT + r"(\.\d{6})?Z\Z")],
    ("time", "micro"): Annotated[str, msgspec.Meta(pattern=_MOMENT + r"\.\d{6}Z\Z")],
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
        return _PLAIN_TYPES[shape.type, shape.form]
    known = _STRICT.get(id(shape))
    if known is not None and known[1] is not None:
        return known[1]
    inside = (*above, id(shape))
    if shape.fields is None:
        value = _strict(shape.values or ANYTHING, inside)
        return dict[str, value]  # type: ignore[valid-type]
    fields = list(shape.fields.items())
    struct_type = msgspec.defstruct(
        "Strict",
        [(f"f{place}", _strict(member, inside), msgspec.UNSET) for place, (_, member) in enumerate(fields)],
        rename={f"f{place}": name for place, (name, _) in enumerate(fields)},
        forbid_unknown_fields=not shape.keeps_unknown,
    )
    _STRICT[id(shape)] = (shape, struct_type)
    return struct_type


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "int-or-string": (int, str),
}
_ZERO: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "quantity": "0", "int-or-string": 0}


def _conform(shape: Shape, value: Any, old: Any, path: str, unknown: list[str], is_converted: bool) -> Any:
    if value is old and old is not None:
        return value
    match shape.type:
        case "":
            return value
        case "object":
            if not isinstance(value, dict):
                raise _Mismatch(path or "the body", "object", value)
            return _conform_object(shape, value, old, path, unknown, is_converted)
        case "array":
            if not isinstance(value, list):
                raise _Mismatch(path, "array", value)
            before = old if isinstance(old, list) and len(old) == len(value) else [None] * len(value)
            item = shape.items or ANYTHING
            copy = value
            for index, (member, was) in enumerate(zip(value, before, strict=True)):
                if member is None and item.type:
                    # Go's zero value: an empty text or object.
                    same = _ZERO.get(item.type, [] if item.type == "array" else {})
                else:
                    same = _conform(item, member, was, f"{path}[{index}]", unknown, is_converted)
                if same is not member:
                    copy = list(value) if copy is value else copy
                    copy[index] = same
            return copy
        case "quantity":
            if quantity_mistake(value):
                raise _Mismatch(path, "quantity", value)
            return canonical(value.strip() if isinstance(value, str) else repr(value))
        case "time":
            if not isinstance(value, str) or wrong_time(value, is_micro=shape.form == "micro"):
                raise _Mismatch(path, "time", value)
            return value
        case "integer" if is_converted:
            if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
                raise _Mismatch(path, "integer", value)
            return value if type(value) is int and fits(value, shape.form) else cut(value, shape.form)
        case wanted:
            if not isinstance(value, _PYTHON_TYPES[wanted]) or (isinstance(value, bool) and wanted != "boolean"):
                raise _Mismatch(path, wanted, value)
            if isinstance(value, int) and not fits(value, shape.form or ("int32" if wanted == "int-or-string" else "")):
                raise _Mismatch(path, wanted, value)
            if shape.form == "bytes" and isinstance(value, str) and wrong_base64(value):
                raise _Mismatch(path, wanted, value)
            return value


def _conform_object(
    shape: Shape, value: dict[str, Any], old: Any, path: str, unknown: list[str], is_converted: bool
) -> dict[str, Any]:
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
        if member is None and name not in fields and known.type == "string" and known.form == "":
            changed[name] = ""  # Go's zero value of a map's member
            continue
        if member is None:
            changed[name] = None
            continue
        same = _conform(known, member, before.get(name), here, unknown, is_converted)
        if same is not member:
            changed[name] = same
    if not changed:
        return value
    return {n: changed.get(n, m) for n, m in value.items() if not (n in changed and changed[n] is None)}


def _json_type(value: Any) -> str:
    if isinstance(value, str):
        return f"string {value[:64]!r}"
    names = {dict: "object", list: "array", bool: "bool", type(None): "null"}
    return names.get(type(value), f"number {value!r}"[:40])


def strict_refusal(api_version: str, kind: str, faults: Sequence[str]) -> BadRequest:
    """Return the refusal of a document with unknown or duplicate fields (field validation Strict)."""
    version = api_version.rpartition("/")[2]
    return BadRequest(
        f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {", ".join(faults)}'
    )


def unknown_fields(paths: Sequence[str]) -> list[str]:
    """Return the error texts for fields that a kind does not have."""
    return [f'unknown field "{path}"' for path in paths]
