"""Protobuf messages that CEL itself knows: wrappers, durations and timestamps by parts, and JSON values. Pure.

Source: google/cel-spec doc/langdef.md, "Protocol Buffer Data Conversion"; google/cel-go common/types/provider.go.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from services.cel import times
from services.cel.declarations import Library, Message
from services.cel.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    object_of,
    wrapper_of,
)
from services.cel.values import NANOS, Duration, EvaluationError, Timestamp, Uint, register, type_name, value_of

Fields = Mapping[str, Any]
_PACKAGE: Final = "google.protobuf."
_STRUCT, _LIST = map_of(STRING, DYN), list_of(DYN)
_EXACT: Final = 2**53 - 1
"""The largest integer that JSON keeps exactly; larger ones become text."""
_ZEROS: Final[Mapping[Type, Any]] = {BOOL: False, INT: 0, UINT: Uint(0), DOUBLE: 0.0, STRING: "", BYTES: b""}


def _field(message: str, name: str, what: Type, given: Fields, least: int = 0, most: int = 0) -> Any:
    """Return a field's value, or that type's zero. Raises: EvaluationError for another type, or too large a number."""
    value = given.get(name, _ZEROS[what])
    where = f"field type conversion error for {_PACKAGE}{message}.{name} value type"
    if type(value) is not type(_ZEROS[what]):
        raise EvaluationError(f"{where}: unsupported native conversion from {type_name(value)} to '{_go(what, most)}'")
    if most and not least <= value <= most:
        raise EvaluationError(f"{where}: {'unsigned ' if what == UINT else ''}integer overflow")
    return value


def _go(what: Type, most: int) -> str:
    bits = 32 if 0 < most < 2**32 else 64
    return {INT: f"int{bits}", UINT: f"uint{bits}", DOUBLE: "float64", BYTES: "[]uint8"}.get(what, what.name)


def _float(given: Fields) -> float:
    """Return a float of 32 bits as the double it is."""
    try:
        return float(struct.unpack("f", struct.pack("f", _field("FloatValue", "value", DOUBLE, given)))[0])
    except OverflowError:
        raise EvaluationError("field type conversion error: float overflow") from None


def _wrapper(name: str, what: Type, least: int = 0, most: int = 0) -> tuple[str, Message]:
    def make(given: Fields) -> Any:
        return _field(name, "value", what, given, least, most)

    return f"{_PACKAGE}{name}", Message(wrapper_of(what), {"value": what}, make)


def _nanos(name: str) -> Callable[[Fields], int]:
    def nanos(given: Fields) -> int:
        seconds = _field(name, "seconds", INT, given)
        return int(seconds) * NANOS + int(_field(name, "nanos", INT, given, -(2**31), 2**31 - 1))

    return nanos


def as_json(value: Any) -> Any:
    """Return a value as CEL's JSON: numbers are doubles; durations, times and bytes are text. Raises:
    EvaluationError.
    """
    match value:
        case bool() | str() | float() | None:
            return value
        case int():
            return float(value) if abs(value) <= _EXACT else str(int(value))
        case bytes():
            return base64.b64encode(value).decode()
        case Duration():
            return times.duration_text(value)
        case Timestamp():
            return times.timestamp_text(value)
        case list() | tuple():
            return [as_json(each) for each in value]
        case Mapping():
            return {str(value_of(key)): as_json(each) for key, each in value.items()}
    raise EvaluationError(f"unsupported type conversion from '{type_name(value)}' to google.protobuf.Value")


def _value(given: Fields) -> Any:
    """Return what a Value holds: of several fields the last, of none null."""
    if not given:
        return None
    name, value = list(given.items())[-1]
    return None if name == "null_value" else as_json(value)


@dataclass(frozen=True, slots=True)
class Empty:
    """A message without fields."""


EMPTY: Final = object_of(f"{_PACKAGE}Empty")
register(Empty, EMPTY)


def _any(_: Fields) -> Any:
    raise EvaluationError("unsupported conversion to ref.Val: (*dynamicpb.Message)")


MESSAGES: Final = Library(
    {},
    types={EMPTY.name: EMPTY},
    messages=dict(
        (
            _wrapper("BoolValue", BOOL),
            _wrapper("Int32Value", INT, -(2**31), 2**31 - 1),
            _wrapper("Int64Value", INT),
            _wrapper("UInt32Value", UINT, 0, 2**32 - 1),
            _wrapper("UInt64Value", UINT),
            (f"{_PACKAGE}FloatValue", Message(wrapper_of(DOUBLE), {"value": DOUBLE}, _float)),
            _wrapper("DoubleValue", DOUBLE),
            _wrapper("StringValue", STRING),
            _wrapper("BytesValue", BYTES),
            (
                f"{_PACKAGE}Duration",
                Message(DURATION, {"seconds": INT, "nanos": INT}, lambda given: Duration(_nanos("Duration")(given))),
            ),
            (
                f"{_PACKAGE}Timestamp",
                Message(TIMESTAMP, {"seconds": INT, "nanos": INT}, lambda given: Timestamp(_nanos("Timestamp")(given))),
            ),
            (
                f"{_PACKAGE}Struct",
                Message(_STRUCT, {"fields": _STRUCT}, lambda given: as_json(given.get("fields", {}))),
            ),
            (f"{_PACKAGE}ListValue", Message(_LIST, {"values": _LIST}, lambda given: as_json(given.get("values", [])))),
            (
                f"{_PACKAGE}Value",
                Message(
                    DYN,
                    {
                        "null_value": INT,
                        "number_value": DOUBLE,
                        "string_value": STRING,
                        "bool_value": BOOL,
                        "struct_value": _STRUCT,
                        "list_value": _LIST,
                    },
                    _value,
                ),
            ),
            (EMPTY.name, Message(EMPTY, {}, lambda given: Empty())),
            (f"{_PACKAGE}Any", Message(ANY, {"type_url": STRING, "value": BYTES}, _any)),
        )
    ),
)
