"""Go's error texts for a document that does not fit its type: those of the JSON decoder, and those of the
converter.

A body, and the result of a JSON or merge patch, is decoded. The result of a strategic merge patch or an apply
is converted member by member, which truncates integers to their width instead of refusing them. The decoder
keeps the first value of a wrong type and reads on, so that an unreadable time or quantity further down is named
instead. The converter stops at the first error, in the order of the type's members. Source: upstream
`staging/src/k8s.io/apimachinery/pkg/runtime/converter.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

BAD_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
BAD_SUFFIX = "unable to parse quantity's suffix"
SECONDS, MICROSECONDS = "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.000000Z07:00"
BITS = {"int32": 32, "int64": 64}
_QUANTITY = re.compile(r"[+-]?[0-9]*(?:\.[0-9]*)?([eEinumkKMGTP]*[-+]?[0-9]*)")
_SUFFIX = re.compile(r"|[numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,18}")
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@cache
def go_types() -> dict[str, dict[str, dict[str, str]]]:
    """Return the Go names of types that a schema does not name: `{component: {"types": …, "within": …}}`."""
    text = files("apiserver_fake.registry.schema").joinpath("go_types.json").read_bytes()
    table: dict[str, dict[str, dict[str, str]]] = msgspec.json.decode(text)
    return table


def fits(value: int, form: str) -> bool:
    """Whether an integer fits into the number of bits of its type."""
    limit = 1 << (BITS.get(form, 64) - 1)
    return -limit <= value < limit


def cut(value: float, form: str) -> int:
    """Return a number truncated to the integer type `form`, as a Go conversion does."""
    bits = BITS.get(form, 64)
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if value >> (bits - 1) else value


def wrong_quantity(text: str) -> str:
    """Return why a text is no quantity; "" if it is one."""
    match = _QUANTITY.fullmatch(text) if text else None
    if match is None:
        return BAD_QUANTITY
    return "" if _SUFFIX.fullmatch(match[1]) else BAD_SUFFIX


def wrong_base64(text: str) -> str:
    """Return why a text is not base64; "" if it is."""
    at = _illegal(text.encode())
    return "" if at is None else f"illegal base64 data at input byte {at}"


def _illegal(data: bytes) -> int | None:
    place, end = 0, len(data)

    def skip(place: int) -> int:
        while place < end and data[place] in b"\r\n":
            place += 1
        return place

    while True:
        for filled in range(4):
            place = skip(place)
            if place == end:
                return place - filled if filled else None
            char = data[place]
            place += 1
            if char in _BASE64:
                continue
            if char != ord("=") or filled < 2:
                return place - 1
            if filled == 2:
                place = skip(place)
                if place == end:
                    return end
                if data[place] != ord("="):
                    return place
                place += 1
            place = skip(place)
            return place if place < end else None


_TIME_PARTS = ((r"\d{4}", "2006"), ("-", "-"), (r"\d\d", "01"), ("-", "-"), (r"\d\d", "02"), ("T", "T"),
               (r"\d\d?", "15"), (":", ":"), (r"\d\d", "04"), (":", ":"), (r"\d\d", "05"))  # fmt: skip
_LARGEST = {"01": ("month", 1, 12), "15": ("hour", 0, 23), "04": ("minute", 0, 59), "05": ("second", 0, 59)}
_ZONE = re.compile(r"Z|[+-](\d\d):(\d\d)")


_USUAL_TIME = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{6})?Z", re.ASCII
)
"""A time that clients of Kubernetes write, on a day that every month has."""


def wrong_time(text: str, *, is_micro: bool = False) -> str:
    """Return why a text is no RFC 3339 time; "" if it is one. `is_micro`: with microseconds."""
    usual = _USUAL_TIME.fullmatch(text)
    if usual is not None and (usual[1] or not is_micro):
        return ""
    return _time_mistake(text, is_micro=is_micro)


def _time_mistake(text: str, *, is_micro: bool) -> str:
    """Return what `wrong_time` does, part by part as Go reads a time."""
    layout, rest = MICROSECONDS if is_micro else SECONDS, text
    numbers: dict[str, int] = {}

    def cannot(part: str) -> str:
        return (
            f"parsing time {_quoted_text(text)} as {_quoted_text(layout)}: cannot parse {_quoted_text(rest)} as "
            f"{_quoted_text(part)}"
        )

    for pattern, part in _TIME_PARTS:
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            return cannot(part)
        rest = rest[match.end() :]
        if match[0].isdigit():
            numbers[part] = int(match[0])
        if part in _LARGEST:
            name, low, high = _LARGEST[part]
            if not low <= numbers[part] <= high:
                return f"parsing time {_quoted_text(text)}: {name} out of range"
    if is_micro:
        if not re.match(r"\.\d{6}", rest, re.ASCII):
            return cannot(".000000")
        rest = rest[7:]
    elif fraction := re.match(r"[.,]\d+", rest, re.ASCII):
        rest = rest[fraction.end() :]
    zone = _ZONE.match(rest)
    if zone is None:
        return cannot("Z07:00")
    rest = rest[zone.end() :]
    if zone[1] and int(zone[1]) > 24:
        return f"parsing time {_quoted_text(text)}: time zone offset hour out of range"
    if zone[1] and int(zone[2]) > 60:
        return f"parsing time {_quoted_text(text)}: time zone offset minute out of range"
    if rest:
        return f"parsing time {_quoted_text(text)}: extra text: {_quoted_text(rest)}"
    year, month = numbers["2006"], numbers["01"]
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= numbers["02"] <= _MONTHS[month - 1] + (month == 2 and is_leap):
        return f"parsing time {_quoted_text(text)}: day out of range"
    return ""


def _quoted_text(text: str) -> str:
    return msgspec.json.encode(text).decode()


class _Unreadable(Exception):
    """A value that its type's own parser cannot read; the message is Go's."""


def decoding_mistake(shape: Any, document: Any) -> str:
    """Return the JSON decoder's error for the document; "" if there is none. `shape`: a `Shape`."""
    try:
        return next(_Decoding().walk(shape, document, _name_of(shape), "", ""), "")
    except _Unreadable as found:
        return str(found)


def _name_of(shape: Any) -> str:
    return str(shape.component).rpartition(".")[2]


def _go_type(shape: Any) -> str:
    """Return the Go type of a value of that shape, as far as the shape says."""
    if shape.component:
        return ".".join(shape.component.split(".")[-2:])
    match shape.type:
        case "array":
            return f"[]{_go_type(shape.items)}" if shape.items is not None else "[]interface {}"
        case "object":
            return f"map[string]{_go_type(shape.values)}" if shape.values is not None else "map[string]interface {}"
        case "integer":
            return shape.form or "int64"
        case "string":
            return "[]uint8" if shape.form == "bytes" else "string"
        case other:
            return {"boolean": "bool", "number": "float64", "quantity": "resource.Quantity"}.get(other, "interface {}")


def member_type(parent: Any, name: str) -> str:
    """Return the Go type of an object's member."""
    said = go_types().get(parent.component, {}).get("types", {}).get(name)
    return said or _go_type(parent.member(name))


def item_type(go_type: str) -> str:
    """Return the Go type of a list's items or a map's values."""
    return go_type[2:] if go_type.startswith("[]") else go_type.partition("]")[2] or "string"


def json_kind(value: Any) -> str:
    """Return the decoder's name for the type of a value."""
    kinds: dict[type, str] = {str: "string", bool: "bool", dict: "object", list: "array"}
    return kinds.get(type(value), "number")


class _Decoding:
    """One walk over a decoded document. It yields the first value of a wrong type; an unreadable value takes
    precedence.
    """

    def walk(self, shape: Any, value: Any, struct: str, path: str, go_type: str) -> Iterator[str]:
        found = [*self._mistakes(shape, value, struct, path, go_type)]
        yield from found[:1]

    def _mistakes(self, shape: Any, value: Any, struct: str, path: str, go_type: str) -> Iterator[str]:
        if value is None:
            return

        def wrong(wanted: str, *, is_number_shown: bool = False) -> str:
            shown = f"number {value!r}" if is_number_shown and json_kind(value) == "number" else json_kind(value)
            where = f"Go struct field {struct}.{path}" if path else "Go value"
            return f"json: cannot unmarshal {shown} into {where} of type {wanted}"

        match shape.type:
            case "object":
                if not isinstance(value, dict):
                    yield wrong(go_type or _go_type(shape))
                else:
                    yield from self._members(shape, value, struct, path, go_type)
            case "array":
                if not isinstance(value, list):
                    yield wrong(go_type or _go_type(shape))
                    return
                for item in value:
                    yield from self._mistakes(shape.items, item, struct, path, item_type(go_type))
            case "integer":
                if type(value) is not int or not fits(value, shape.form):
                    yield wrong(go_type, is_number_shown=True)
            case "int-or-string":
                if not isinstance(value, str) and (type(value) is not int or not fits(value, "int32")):
                    yield wrong("int32", is_number_shown=True)
            case "time":
                if not isinstance(value, str):
                    yield wrong("string")
                elif mistake := wrong_time(value, is_micro=shape.form == "micro"):
                    raise _Unreadable(mistake)
            case "quantity":
                raise_if(quantity_mistake(value))
            case "string" if shape.form == "bytes" and isinstance(value, str):
                raise_if(wrong_base64(value))
            case "string" | "boolean" | "number":
                if not is_of(value, shape.type):
                    yield wrong(go_type)

    def _members(self, shape: Any, value: Mapping[str, Any], struct: str, path: str, go_type: str) -> Iterator[str]:
        within = go_types().get(shape.component, {}).get("within", {})
        for name, member in value.items():
            known = (shape.fields or {}).get(name)
            if known is None and shape.values is None:
                continue
            if known is None:
                yield from self._mistakes(shape.values, member, struct, path, item_type(go_type))
                continue
            steps = [each for each in (path, within.get(name), name) if each]
            own = _name_of(shape) or struct
            yield from self._mistakes(known, member, own, ".".join(steps), member_type(shape, name))


def raise_if(mistake: str) -> None:
    """Raise an error with this text for an unreadable value, unless the text is empty."""
    if mistake:
        raise _Unreadable(mistake)


def quantity_mistake(value: Any) -> str:
    """Return the error text for a value that should be a quantity; "" if it is one."""
    if isinstance(value, str):
        return wrong_quantity(value.strip())
    return "" if isinstance(value, int | float) and not isinstance(value, bool) else BAD_QUANTITY


def is_of(value: Any, kind: str) -> bool:
    """Whether a value is a string, a boolean or a number, as `kind` says."""
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str if kind == "string" else bool)


def conversion_mistake(shape: Any, document: Any) -> str:
    """Return the converter's error for the document; "" if there is none. `shape`: a `Shape`."""
    return next(_conversion_mistakes(shape, document, ""), "")


_GO_KINDS: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "float64", dict: "map", list: "slice"}


def _conversion_mistakes(shape: Any, value: Any, go_type: str) -> Iterator[str]:
    if value is None:
        return
    kind = _GO_KINDS[type(value)]
    match shape.type:
        case "object":
            if not isinstance(value, dict):
                is_map = shape.fields is None
                yield f"cannot restore map from {kind}" if is_map else f"cannot restore struct from: {kind}"
                return
            for name, known in (shape.fields or {}).items():
                yield from _conversion_mistakes(known, value.get(name), member_type(shape, name))
            if shape.values is not None:
                for member in value.values():
                    yield from _conversion_mistakes(shape.values, member, item_type(go_type))
        case "array":
            if not isinstance(value, list):
                yield f"cannot restore slice from {kind}"
                return
            for item in value:
                yield from _conversion_mistakes(shape.items, item, item_type(go_type))
        case "integer":
            if kind == "float64" and value != int(value):
                yield f"cannot convert float64 to {go_type}"
            elif kind not in ("int64", "float64"):
                yield f"unrecognized type: {shape.form or 'int64'}"
        case "int-or-string":
            if not isinstance(value, str) and (type(value) is not int or not fits(value, "int32")):
                shown = f"number {value!r}" if json_kind(value) == "number" else json_kind(value)
                yield f"json: cannot unmarshal {shown} into Go value of type int32"
        case "time":
            if not isinstance(value, str):
                yield f"json: cannot unmarshal {json_kind(value)} into Go value of type string"
            elif mistake := wrong_time(value, is_micro=shape.form == "micro"):
                yield mistake
        case "quantity":
            if mistake := quantity_mistake(value):
                yield mistake
        case "string" if shape.form == "bytes":
            if not isinstance(value, str):
                yield f"cannot restore slice from {kind}"
            elif mistake := wrong_base64(value):
                yield f"error decoding from json: {mistake}"
        case "string":
            if kind == "int64":
                yield f"cannot convert int64 to {go_type}"
            elif kind != "string":
                yield "unrecognized type: string"
        case "boolean":
            if kind != "bool":
                yield "unrecognized type: bool"
        case "number":
            if kind not in ("int64", "float64"):
                yield "unrecognized type: float64"


def go_text(value: Any) -> str:
    """Return a JSON value as Go prints it with `%+v`: `map[spec:map[replicas:abc]]`."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return f"map[{' '.join(f'{name}:{go_text(value[name])}' for name in sorted(value))}]"
        case list():
            return f"[{' '.join(go_text(each) for each in value)}]"
        case _:
            return str(value)
