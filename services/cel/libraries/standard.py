"""Operators, conversions, and functions that every CEL environment has.

Source: google/cel-spec doc/langdef.md, "List of Standard Definitions"; google/cel-go common/types (messages).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from services.cel import macros, regex, times, types
from services.cel.declarations import Library, Overload, of, on
from services.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    type_of,
)
from services.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Duration,
    EvaluationError,
    Timestamp,
    Uint,
    equal,
    is_in,
    is_same,
    utf8,
    whole,
)
from services.cel.values import type_of as type_of_value

_A: Final = types.parameter("A")
_B: Final = types.parameter("B")
_LIST_A, _MAP_AB = list_of(_A), map_of(_A, _B)


def _int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def _uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def _divide(one: int, two: int) -> int:
    if two == 0:
        raise EvaluationError("division by zero")
    quotient = abs(one) // abs(two)
    return quotient if (one < 0) == (two < 0) else -quotient


def _remainder(one: int, two: int) -> int:
    if two == 0:
        raise EvaluationError("modulus by zero")
    return int(math.copysign(1, one)) * (abs(one) % abs(two))


def _divided_double(one: float, two: float) -> float:
    if two == 0:
        if one == 0 or one != one:
            return math.nan
        return math.copysign(math.inf, one) * math.copysign(1, two)
    return one / two


def _double(function: Callable[[float, float], float]) -> Callable[[float, float], float]:
    def call(one: float, two: float) -> float:
        try:
            return function(one, two)
        except OverflowError:
            return math.inf

    return call


def _list_sum(one: Any, two: Any) -> list[Any]:
    """Return both lists' items; sets and lists with keys merge."""
    merge: Callable[[Any], list[Any]] | None = getattr(one, "cel_add", None)
    return [*one, *two] if merge is None else merge(two)


def _later(one: Timestamp, two: Duration) -> Timestamp:
    return Timestamp(one.nanos + two.nanos, one.offset)


def _earlier(one: Timestamp, two: Duration) -> Timestamp:
    return Timestamp(one.nanos - two.nanos, one.offset)


def _between(one: Timestamp, two: Timestamp) -> Duration:
    return Duration(one.nanos - two.nanos)


_ARITHMETIC: Final[Mapping[str, tuple[Overload, ...]]] = {
    "_+_": (
        of("add_bytes", (BYTES, BYTES), BYTES, operator.add),
        of("add_double", (DOUBLE, DOUBLE), DOUBLE, _double(operator.add)),
        of("add_duration_duration", (DURATION, DURATION), DURATION, lambda a, b: Duration(a.nanos + b.nanos)),
        of("add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP, lambda a, b: _later(b, a)),
        of("add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, _later),
        of("add_int64", (INT, INT), INT, lambda a, b: _int(a + b)),
        of("add_list", (_LIST_A, _LIST_A), _LIST_A, _list_sum),
        of("add_string", (STRING, STRING), STRING, operator.add),
        of("add_uint64", (UINT, UINT), UINT, lambda a, b: _uint(int(a) + int(b))),
    ),
    "_-_": (
        of("subtract_double", (DOUBLE, DOUBLE), DOUBLE, _double(operator.sub)),
        of("subtract_duration_duration", (DURATION, DURATION), DURATION, lambda a, b: Duration(a.nanos - b.nanos)),
        of("subtract_int64", (INT, INT), INT, lambda a, b: _int(a - b)),
        of("subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, _earlier),
        of("subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION, _between),
        of("subtract_uint64", (UINT, UINT), UINT, lambda a, b: _uint(int(a) - int(b))),
    ),
    "_*_": (
        of("multiply_double", (DOUBLE, DOUBLE), DOUBLE, _double(operator.mul)),
        of("multiply_int64", (INT, INT), INT, lambda a, b: _int(a * b)),
        of("multiply_uint64", (UINT, UINT), UINT, lambda a, b: _uint(int(a) * int(b))),
    ),
    "_/_": (
        of("divide_double", (DOUBLE, DOUBLE), DOUBLE, _divided_double),
        of("divide_int64", (INT, INT), INT, lambda a, b: _int(_divide(a, b))),
        of("divide_uint64", (UINT, UINT), UINT, lambda a, b: _uint(_divide(int(a), int(b)))),
    ),
    "_%_": (
        of("modulo_int64", (INT, INT), INT, _remainder),
        of("modulo_uint64", (UINT, UINT), UINT, lambda a, b: _uint(_remainder(int(a), int(b)))),
    ),
    "-_": (of("negate_double", (DOUBLE,), DOUBLE, operator.neg), of("negate_int64", (INT,), INT, lambda a: _int(-a))),
}
_ORDERED: Final = (
    ("bool", BOOL),
    ("int64", INT),
    ("uint64", UINT),
    ("double", DOUBLE),
    ("string", STRING),
    ("bytes", BYTES),
    ("timestamp", TIMESTAMP),
    ("duration", DURATION),
)
_NUMBERS: Final = ("int64", "uint64", "double")


def _as_doubles(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return the comparison of numbers one of which is a double: both as doubles, as cel-go has it."""

    def call(one: Any, two: Any) -> bool:
        if one != one or two != two:
            raise EvaluationError("NaN values cannot be ordered")
        return compare(float(one), float(two))

    return call


def _orders(name: str, compare: Callable[[Any, Any], bool]) -> tuple[Overload, ...]:
    kinds, as_doubles = dict(_ORDERED), _as_doubles(compare)
    same = [
        of(f"{name}_{kind}", (what, what), BOOL, as_doubles if what == DOUBLE else compare) for kind, what in _ORDERED
    ]
    mixed = [
        of(f"{name}_{one}_{two}", (kinds[one], kinds[two]), BOOL, as_doubles if "double" in (one, two) else compare)
        for one in _NUMBERS
        for two in _NUMBERS
        if one != two
    ]
    return (*same, *mixed)


def _to_int(value: float) -> int:
    if value != value or not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _to_uint(value: float) -> Uint:
    if value != value or not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return Uint(int(value))


def _wrong(what: Type) -> EvaluationError:
    return EvaluationError(f"type conversion error from 'string' to '{what}'")


def _whole(value: str) -> int:
    """Return the number of decimal digits behind a sign."""
    return -whole(value[1:]) if value.startswith("-") else whole(value.removeprefix("+"))


def _text_to_int(value: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", value) or not INT_MIN <= _whole(value) <= INT_MAX:
        raise _wrong(INT)
    return _whole(value)


def _text_to_uint(value: str) -> Uint:
    if not re.fullmatch(r"[0-9]+", value) or whole(value) > UINT_MAX:
        raise _wrong(UINT)
    return Uint(whole(value))


_DOUBLE_TEXT: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII
)


_HEX_TEXT: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")


def _text_to_double(value: str) -> float:
    if _HEX_TEXT.fullmatch(value):
        return float.fromhex(value)
    if not _DOUBLE_TEXT.fullmatch(value):
        raise _wrong(DOUBLE)
    number = float(value)
    if math.isinf(number) and "n" not in value.lower():
        raise _wrong(DOUBLE)
    return number


def _text_to_bool(value: str) -> bool:
    if value in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if value in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise _wrong(BOOL)


def _bytes_to_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def double_text(value: float) -> str:
    """Return a double as Go writes it: the shortest digits, an exponent below 1e-4 and from 1e6."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    exact = Decimal(repr(value))
    sign, digits, _ = exact.as_tuple()
    power = exact.adjusted()
    if value == 0:
        return "-0" if sign else "0"
    if -4 <= power < 6:
        text = format(exact, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    figures = "".join(map(str, digits)).rstrip("0")
    rest = f".{figures[1:]}" if len(figures) > 1 else ""
    return f"{'-' if sign else ''}{figures[0]}{rest}e{'-' if power < 0 else '+'}{abs(power):02d}"


def _size(value: Any) -> int:
    return len(value)


_CONVERSIONS: Final[Mapping[str, tuple[Overload, ...]]] = {
    "bool": (of("bool_to_bool", (BOOL,), BOOL, lambda v: v), of("string_to_bool", (STRING,), BOOL, _text_to_bool)),
    "bytes": (of("bytes_to_bytes", (BYTES,), BYTES, lambda v: v), of("string_to_bytes", (STRING,), BYTES, utf8)),
    "double": (
        of("double_to_double", (DOUBLE,), DOUBLE, lambda v: v),
        of("int64_to_double", (INT,), DOUBLE, float),
        of("string_to_double", (STRING,), DOUBLE, _text_to_double),
        of("uint64_to_double", (UINT,), DOUBLE, float),
    ),
    "duration": (
        of("duration_to_duration", (DURATION,), DURATION, lambda v: v),
        of("string_to_duration", (STRING,), DURATION, times.duration),
    ),
    "dyn": (of("to_dyn", (_A,), DYN, lambda v: v),),
    "int": (
        of("int64_to_int64", (INT,), INT, lambda v: v),
        of("double_to_int64", (DOUBLE,), INT, _to_int),
        of("duration_to_int64", (DURATION,), INT, lambda v: v.nanos),
        of("string_to_int64", (STRING,), INT, _text_to_int),
        of("timestamp_to_int64", (TIMESTAMP,), INT, lambda v: v.nanos // 10**9),
        of("uint64_to_int64", (UINT,), INT, lambda v: _int(int(v))),
    ),
    "string": (
        of("string_to_string", (STRING,), STRING, lambda v: v),
        of("bool_to_string", (BOOL,), STRING, lambda v: "true" if v else "false"),
        of("bytes_to_string", (BYTES,), STRING, _bytes_to_text),
        of("double_to_string", (DOUBLE,), STRING, double_text),
        of("duration_to_string", (DURATION,), STRING, times.duration_text),
        of("int64_to_string", (INT,), STRING, str),
        of("timestamp_to_string", (TIMESTAMP,), STRING, times.timestamp_text),
        of("uint64_to_string", (UINT,), STRING, str),
    ),
    "timestamp": (
        of("timestamp_to_timestamp", (TIMESTAMP,), TIMESTAMP, lambda v: v),
        of("int64_to_timestamp", (INT,), TIMESTAMP, lambda v: Timestamp(v * 10**9)),
        of("string_to_timestamp", (STRING,), TIMESTAMP, times.timestamp),
    ),
    "type": (of("type", (_A,), type_of(_A), type_of_value),),
    "uint": (
        of("uint64_to_uint64", (UINT,), UINT, lambda v: v),
        of("double_to_uint64", (DOUBLE,), UINT, _to_uint),
        of("int64_to_uint64", (INT,), UINT, _uint),
        of("string_to_uint64", (STRING,), UINT, _text_to_uint),
    ),
}


def _size_overloads(*kinds: tuple[str, Type]) -> tuple[Overload, ...]:
    return (
        *(of(f"size_{name}", (what,), INT, _size) for name, what in kinds),
        *(on(f"{name}_size", (what,), INT, _size) for name, what in kinds),
    )


def _part(name: str, get: Callable[[times.Moment], int]) -> tuple[Overload, Overload]:
    def plain(value: Timestamp) -> int:
        return get(times.moment(value, "UTC"))

    def get_in_zone(value: Timestamp, zone: str) -> int:
        return get(times.moment(value, zone))

    return (
        on(f"timestamp_to_{name}", (TIMESTAMP,), INT, plain),
        on(f"timestamp_to_{name}_with_tz", (TIMESTAMP, STRING), INT, get_in_zone),
    )


def _of_duration(name: str, nanos: int) -> Overload:
    return on(f"duration_to_{name}", (DURATION,), INT, lambda v: _divide(v.nanos, nanos))


_TIMES: Final[Mapping[str, tuple[Overload, ...]]] = {
    "getFullYear": _part("year", lambda t: t.year),
    "getMonth": _part("month", lambda t: t.month - 1),
    "getDayOfYear": _part("day_of_year", lambda t: t.day_of_year - 1),
    "getDayOfMonth": _part("day_of_month", lambda t: t.day - 1),
    "getDate": _part("day_of_month_1_based", lambda t: t.day),
    "getDayOfWeek": _part("day_of_week", lambda t: t.day_of_week),
    "getHours": (*_part("hours", lambda t: t.hour), _of_duration("hours", 3600 * 10**9)),
    "getMinutes": (*_part("minutes", lambda t: t.minute), _of_duration("minutes", 60 * 10**9)),
    "getSeconds": (*_part("seconds_tz", lambda t: t.second), _of_duration("seconds", 10**9)),
    "getMilliseconds": (*_part("milliseconds", lambda t: t.nanos // 10**6), _of_duration("milliseconds", 10**6)),
}


LIBRARY: Final = Library(
    functions={
        "_&&_": (of("logical_and", (BOOL, BOOL), BOOL, operator.and_),),
        "_||_": (of("logical_or", (BOOL, BOOL), BOOL, operator.or_),),
        "!_": (of("logical_not", (BOOL,), BOOL, operator.not_),),
        "_?_:_": (of("conditional", (BOOL, _A, _A), _A, lambda test, yes, no: yes if test else no),),
        "@not_strictly_false": (of("not_strictly_false", (BOOL,), BOOL, lambda v: v),),
        "_==_": (of("equals", (_A, _A), BOOL, is_same),),
        "_!=_": (of("not_equals", (_A, _A), BOOL, lambda a, b: not equal(a, b)),),
        "_<_": _orders("less", operator.lt),
        "_<=_": _orders("less_equals", operator.le),
        "_>_": _orders("greater", operator.gt),
        "_>=_": _orders("greater_equals", operator.ge),
        "@in": (of("in_list", (_A, _LIST_A), BOOL, is_in), of("in_map", (_A, _MAP_AB), BOOL, is_in)),
        "_[_]": (of("index_list", (_LIST_A, INT), _A, lambda: None), of("index_map", (_MAP_AB, _A), _B, lambda: None)),
        **_ARITHMETIC,
        **_CONVERSIONS,
        **_TIMES,
        "size": _size_overloads(("bytes", BYTES), ("list", _LIST_A), ("map", _MAP_AB), ("string", STRING)),
        "contains": (on("contains_string", (STRING, STRING), BOOL, operator.contains),),
        "startsWith": (on("starts_with_string", (STRING, STRING), BOOL, str.startswith),),
        "endsWith": (on("ends_with_string", (STRING, STRING), BOOL, str.endswith),),
        "matches": (
            of("matches", (STRING, STRING), BOOL, regex.matches),
            on("matches_string", (STRING, STRING), BOOL, regex.matches),
        ),
    },
    macros=macros.STANDARD,
    types={
        "bool": BOOL,
        "bytes": BYTES,
        "double": DOUBLE,
        "int": INT,
        "uint": UINT,
        "string": STRING,
        "null_type": NULL,
        "list": list_of(DYN),
        "map": map_of(DYN, DYN),
        "type": types.TYPE,
        "google.protobuf.Duration": DURATION,
        "google.protobuf.Timestamp": TIMESTAMP,
    },
)
