"""Structural schemas of OpenAPI as CEL types, and documents as CEL values. Pure.

    declared = declare(schema, is_root=True)
    environment = Environment({"self": declared.type}, objects=objects(declared), sizes=sizes(declared))
    environment.compile("self.spec.replicas <= 3").evaluate({"self": value(document, declared)})

A property is a field under its escaped name (`__dash__`, `__namespace__`); expressions cannot refer to parts
that the schema does not describe. Sizes are the largest that fit into a request of 3 MiB, unless the schema has
a limit.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/common/{schemas,values}.go, escaping.go,
limits.go.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from services.cel import times, types
from services.cel.checker import Fields
from services.cel.costs import Range, Sizes
from services.cel.syntax import RESERVED
from services.cel.types import Type, list_of, map_of, object_of
from services.cel.values import Duration, EvaluationError, Timestamp, equal, utf8, whole

Schema = Mapping[str, Any]
REQUEST_MAX: Final = 3 * 1024 * 1024
"""Size of the largest request in bytes; it bounds values that the schema does not bound."""
_KEYWORDS: Final = RESERVED | {"true", "false", "null", "in"}
_ESCAPED: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_PLAIN: Final = {each: text for text, each in _ESCAPED.items()}
_NAME: Final = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*")
_TEXT: Final = {"type": "string"}
_METADATA: Final = {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}}
_TIMES: Final = {
    "duration": (types.DURATION, 3, 32),
    "date": (types.TIMESTAMP, 12, 12),
    "date-time": (types.TIMESTAMP, 21, 32),
}
"""Formats of times: format → (type, least and most bytes in JSON)."""
_SCALARS: Final = {"boolean": (types.BOOL, 4), "number": (types.DOUBLE, 1), "integer": (types.INT, 1)}


@dataclass(frozen=True)
class Declared:
    """The CEL type of one place of a schema.

    `least_bytes`: its smallest size in JSON. `most`: its maximum number of characters, items or entries. `fields`:
    an object's fields, by escaped name; `items`: the elements of a list or map.
    """

    schema: Schema
    type: Type
    least_bytes: int
    most: int = 0
    fields: Mapping[str, Declared] = field(default_factory=dict)
    items: Declared | None = None

    @property
    def cardinality(self) -> int:
        """Maximum number of occurrences in one request, if no limit applies to the lists and maps around it."""
        return REQUEST_MAX // (self.least_bytes + 1)


_KEY: Final = Declared(_TEXT, types.STRING, 2)


def escape(name: str) -> str | None:
    """Return a property's name in expressions; None if no expression can name it."""
    if name in _KEYWORDS:
        return f"__{name}__"
    if not _NAME.fullmatch(name):
        return None
    return re.sub(r"__|[-./]", lambda match: _ESCAPED[match[0]], name)


def unescape(name: str) -> str | None:
    """Return the property for a name in an expression; None if the name is not a valid escaped name."""
    parts = re.split(r"(__[^_]+__)", name)
    for place in range(1, len(parts), 2):
        inside = parts[place][2:-2]
        if parts[place] in _PLAIN:
            parts[place] = _PLAIN[parts[place]]
        elif inside in _KEYWORDS and len(parts[place]) == len(name):
            parts[place] = inside
        else:
            return None
    return "".join(parts)


def declare(schema: Schema, *, is_root: bool = False, name: str = "self") -> Declared | None:
    """Return the type of a structural schema; None if expressions cannot refer to it.

    `is_root`: the schema is a resource's; it has apiVersion, kind, and its metadata's name, even if it does not
    list them.
    """
    if schema.get("x-kubernetes-int-or-string"):
        limit = schema.get("maxLength")
        return Declared(schema, types.DYN, 1, REQUEST_MAX - 2 if limit is None else 4 * max(limit, 0))
    if is_root:
        schema = with_metadata(schema)
    kind = schema.get("type")
    if kind == "array":
        return _declared_list(schema, name)
    if kind == "object":
        if isinstance(schema.get("additionalProperties"), Mapping):
            return _declared_map(schema, name)
        if schema.get("additionalProperties"):
            return None
        return _declared_object(schema, name)
    if kind == "string":
        return _declared_text(schema)
    if kind in _SCALARS:
        what, least = _SCALARS[kind]
        return Declared(schema, what, least)
    return None


def _child(schema: Schema, name: str) -> Declared | None:
    return declare(schema, is_root=bool(schema.get("x-kubernetes-embedded-resource")), name=name)


def with_metadata(schema: Schema) -> Schema:
    """Return a resource's schema with the fields that every resource has."""
    properties = {**(schema.get("properties") or {}), "kind": _TEXT, "apiVersion": _TEXT, "metadata": _METADATA}
    return {**schema, "properties": properties}


def _declared_list(schema: Schema, name: str) -> Declared | None:
    items = _child(schema["items"], f"{name}.@idx") if isinstance(schema.get("items"), Mapping) else None
    if items is None:
        return None
    limit = schema.get("maxItems")
    most = (REQUEST_MAX - 2) // (items.least_bytes + 1) if limit is None else max(limit, 0)
    return Declared(schema, list_of(items.type), 2, most, items=items)


def _declared_map(schema: Schema, name: str) -> Declared | None:
    items = _child(schema["additionalProperties"], f"{name}.@elem")
    if items is None:
        return None
    limit = schema.get("maxProperties")
    most = (REQUEST_MAX - 2) // (items.least_bytes + 6) if limit is None else max(limit, 0)
    return Declared(schema, map_of(types.STRING, items.type), 2, most, items=items)


def _declared_object(schema: Schema, name: str) -> Declared:
    fields: dict[str, Declared] = {}
    least = 2
    required = schema.get("required") or ()
    for property_name, inner in (schema.get("properties") or {}).items():
        field_name = escape(property_name)
        property_type = _child(inner, f"{name}.{field_name or property_name}")
        if property_type is None:
            continue
        if field_name is not None:
            fields[field_name] = property_type
        if property_name in required and inner.get("default") is None:
            least += len(utf8(property_name)) + property_type.least_bytes + 4
    return Declared(schema, object_of(name), least, fields=fields)


def _declared_text(schema: Schema) -> Declared:
    what, limit = schema.get("format"), schema.get("maxLength")
    if what in _TIMES:
        kind, least, most = _TIMES[what]
        return Declared(schema, kind, least, most)
    if what == "byte":
        return Declared(schema, types.BYTES, 2, REQUEST_MAX - 2 if limit is None else max(limit, 0))
    if limit is not None:
        most = 4 * max(limit, 0)  # a limit is of characters, and costs are of bytes
    elif enum := schema.get("enum"):
        most = max((len(utf8(each)) for each in enum if isinstance(each, str)), default=0)
    else:
        most = REQUEST_MAX - 2
    return Declared(schema, types.STRING, 2, most)


def objects(*declared: Declared) -> dict[str, Fields]:
    """Return the fields of all objects inside the declared types, by the name of the object's type."""
    found: dict[str, Fields] = {}
    for each in declared:
        _collect(each, found)
    return found


def _collect(declared: Declared, fields_by_type: dict[str, Fields]) -> None:
    if declared.type.kind == "object":
        fields = {name: each.type for name, each in declared.fields.items()}
        # A keyword is a field's name as it stands, too.
        fields_by_type[declared.type.name] = fields | {
            word: fields[field_name] for word in _KEYWORDS if (field_name := f"__{word}__") in fields
        }
    for child in (*declared.fields.values(), *([] if declared.items is None else [declared.items])):
        _collect(child, fields_by_type)


def sizes(root: Declared) -> Sizes:
    """Return the sizes of values inside a variable of that type, by path, for cost estimates.

    The first name of a path is ignored: every path is looked up in `root`, as the API server does, because
    `oldSelf` has the type of `self`.
    """

    def size(path: tuple[str, ...]) -> Range | None:
        at: Declared | None = root
        for name in path[1:]:
            if at is None:
                return None
            if name in ("@items", "@values"):
                at = at.items
            elif name == "@keys":
                at = _KEY if at.type.kind == "map" else None
            else:
                at = at.fields.get(name)
        return None if at is None else Range(0, at.most)

    return size


# Documents as values.

_GO: Final = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}
_PERIOD: Final = re.compile(r"((\d+)\s*([A-Za-zµ]+))")
_PERIODS_NS: Final = {
    **dict.fromkeys(("ns", "nano"), 1),
    **dict.fromkeys(("us", "µs", "micro"), 10**3),
    **dict.fromkeys(("ms", "milli"), 10**6),
    **dict.fromkeys(("s", "sec"), 10**9),
    **dict.fromkeys(("m", "min"), 60 * 10**9),
    **dict.fromkeys(("h", "hr", "hour"), 3600 * 10**9),
    **dict.fromkeys(("d", "day"), 86400 * 10**9),
    **dict.fromkeys(("w", "wk", "week"), 7 * 86400 * 10**9),
}


def value(document: Any, declared: Declared) -> Any:
    """Return the CEL value of a document; nested values are converted when they are read.

    Raises: EvaluationError for a document that does not match the schema.
    """
    schema = declared.schema
    if document is None:
        if schema.get("nullable"):
            return None
        raise EvaluationError("invalid data, got null for schema with nullable=false")
    if schema.get("x-kubernetes-int-or-string"):
        if type(document) in (int, str):
            return document
        raise EvaluationError("invalid data, expected XIntOrString value to be either a string or integer")
    return _CONVERSIONS[schema["type"]](document, declared)


def _wrong(wanted: str, document: Any) -> EvaluationError:
    return EvaluationError(f"invalid data, expected {wanted}, got {_GO.get(type(document), type(document).__name__)}")


def _object_value(document: Any, declared: Declared) -> Any:
    if not isinstance(document, Mapping):
        raise EvaluationError("invalid data, expected a map for the provided schema with type=object")
    return MapValue(document, declared) if declared.type.kind == "map" else ObjectValue(document, declared)


def _list_value(document: Any, declared: Declared) -> Any:
    if not isinstance(document, list | tuple):
        raise EvaluationError("invalid data, expected an array for the provided schema with type=array")
    assert declared.items is not None
    items = declared.items
    items_value = [value(each, items) for each in document]
    match declared.schema.get("x-kubernetes-list-type"):
        case "map":
            return MapList(items_value, tuple(declared.schema.get("x-kubernetes-list-map-keys") or ()))
        case "set":
            return SetList(items_value)
    return items_value


def _text_value(document: Any, declared: Declared) -> Any:
    if not isinstance(document, str):
        raise _wrong("string", document)
    convert = _FORMATS.get(declared.schema.get("format", ""))
    return document if convert is None else convert(document)


def _number_value(document: Any, _: Declared) -> float:
    if type(document) in (int, float):
        return float(document)
    raise _wrong("float", document)


def _integer_value(document: Any, _: Declared) -> int:
    if type(document) is int:
        return document
    raise _wrong("int", document)


def _boolean_value(document: Any, _: Declared) -> bool:
    if type(document) is bool:
        return document
    raise EvaluationError(f"invalid data, expected bool, got {_GO.get(type(document), '')}")


_CONVERSIONS: Final[Mapping[str, Callable[[Any, Declared], Any]]] = {
    "object": _object_value,
    "array": _list_value,
    "string": _text_value,
    "number": _number_value,
    "integer": _integer_value,
    "boolean": _boolean_value,
}


def _duration(text: str) -> Duration:
    try:
        return times.duration(text)
    except EvaluationError:
        nanos = 0
        periods = _PERIOD.findall(text)
        for _, count, unit in periods:
            size = _PERIODS_NS.get(unit.lower(), _PERIODS_NS.get(unit.lower().removesuffix("s"), 0))
            nanos += whole(count) * size
            if not size:
                periods = []
                break
        if not periods:
            raise EvaluationError(f"Invalid duration {text}: unable to parse {text} as duration") from None
        return Duration(nanos)


def _date(text: str) -> Timestamp:
    try:
        return times.timestamp(f"{text}T00:00:00Z")
    except EvaluationError:
        raise EvaluationError(f"Invalid date formatted string {text}") from None


def _moment(text: str) -> Timestamp:
    try:
        return times.timestamp(text)
    except EvaluationError:
        raise EvaluationError(f"Invalid date-time formatted string {text}") from None


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise EvaluationError(f"Invalid byte formatted string {text}") from None


_FORMATS: Final[Mapping[str, Callable[[str], Any]]] = {
    "duration": _duration,
    "date": _date,
    "date-time": _moment,
    "byte": _bytes,
}


class MapValue(Mapping[str, Any]):
    """A document whose schema has `additionalProperties`."""

    __slots__ = ("_declared", "_document")

    def __init__(self, document: Mapping[str, Any], declared: Declared) -> None:
        self._document, self._declared = document, declared

    def __getitem__(self, key: str) -> Any:
        items = self._declared.items
        assert items is not None
        return value(self._document[key], items)

    def __contains__(self, key: object) -> bool:
        return key in self._document

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)


class ObjectValue(Mapping[str, Any]):
    """A document whose schema has `properties`. A null field is absent, but size counts it."""

    __slots__ = ("_declared", "_document")

    def __init__(self, document: Mapping[str, Any], declared: Declared) -> None:
        self._document, self._declared = document, declared

    def __getitem__(self, key: str) -> Any:
        name = unescape(key)
        field_value = None if name is None else self._document.get(name)
        declared = self._declared.fields.get(key)
        if declared is None:
            declared = self._declared.fields.get(f"__{key}__") if key in _KEYWORDS else None
        if field_value is None or declared is None:
            raise KeyError(key)
        return value(field_value, declared)

    def __iter__(self) -> Iterator[str]:
        fields = self._declared.fields
        return (said for name in self._document if (said := escape(name)) is not None and said in fields)

    def __len__(self) -> int:
        return len(self._document)

    def cel_equal(self, other: Any) -> bool:
        """Return whether all fields are equal; fields that the schema does not declare are compared as raw JSON
        values.
        """
        if not isinstance(other, ObjectValue):
            return isinstance(other, Mapping) and dict(self) == dict(other)
        if len(self) != len(other):
            return False
        for name, field_value in self._document.items():
            field_name = escape(name)
            declared = None if field_name is None else self._declared.fields.get(field_name)
            if declared is None:
                if name in other._document and field_value != other._document[name]:
                    return False
            elif other._document.get(name) is None or not equal(value(field_value, declared), other[field_name or ""]):
                return False
        return True


class SetList(list[Any]):
    """A list whose `x-kubernetes-list-type` is set: equal in any order; `+` appends only missing items."""

    def cel_equal(self, other: Any) -> bool:
        """Return whether both have the same items."""
        return len(self) == len(other) and all(any(equal(each, own) for own in self) for each in other)

    def cel_add(self, other: Any) -> SetList:
        """Return the union, own items first."""
        found = SetList(self)
        for each in other:
            if not any(equal(each, own) for own in found):
                found.append(each)
        return found


class MapList(list[Any]):
    """A list whose `x-kubernetes-list-type` is map: its keys identify an item, and order does not matter."""

    def __init__(self, items: Any, keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self._keys = tuple(escape(each) or each for each in keys)

    def _key(self, item: Any) -> tuple[Any, ...]:
        return tuple(item.get(each) for each in self._keys)

    def cel_equal(self, other: Any) -> bool:
        """Return whether both have equal items under the same keys."""
        own = {self._key(each): each for each in self}
        return len(self) == len(other) and all(
            (key := self._key(each)) in own and equal(own[key], each) for each in other
        )

    def cel_add(self, other: Any) -> MapList:
        """Return the list with items of the other list in place of those with the same keys; the rest is appended."""
        union = MapList(self, ())
        union._keys = self._keys
        places = {self._key(each): place for place, each in enumerate(union)}
        for addition in other:
            place = places.get(self._key(addition))
            if place is None:
                union.append(addition)
            else:
                union[place] = addition
        return union
