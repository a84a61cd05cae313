"""Values of CEL at run time, their comparison, and their type names. Pure.

bool, int, float (double), str, bytes, None, lists, tuples and mappings are Python's own types; this module
defines the others. Numbers of different types are equal when they are the same number; `true` is no number, so
keys of maps are stored through `key_of`.

Source: google/cel-spec doc/langdef.md, "Values", "Equality", "Ordering".
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from services.cel import types
from services.cel.types import Type

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
NANOS: Final = 10**9
TIMESTAMP_MIN, TIMESTAMP_MAX = -62135596800 * NANOS, 253402300800 * NANOS - 1


class EvaluationError(ValueError):
    """Error: the expression has no value for these variables; the text is cel-go's."""


class InternalError(EvaluationError):
    """Error: an exception outside the language ended the evaluation; cel-go reports its panics the same way."""


class NoSuchKey(EvaluationError):
    """Error: a map does not have the key, or an object does not have the field."""


DIGITS_MAX: Final = 400


def whole(digits: str) -> int:
    """Return the number of decimal digits; beyond 400 digits, which no type holds, the number of the first 400.

    Python refuses to convert thousands of digits; callers compare the result with a type's bounds.
    """
    return int(digits if len(digits) <= DIGITS_MAX else digits.lstrip("0")[:DIGITS_MAX] or "0")


def utf8(text: str) -> bytes:
    """Return the text as UTF-8; a lone surrogate, which UTF-8 cannot encode, becomes U+FFFD, as in Go."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return well_formed(text).encode()


def well_formed(text: str) -> str:
    """Return the text with U+FFFD in place of lone surrogates."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Uint(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A duration in nanoseconds, within 64 bits."""

    nanos: int

    def __post_init__(self) -> None:
        if not INT_MIN <= self.nanos <= INT_MAX:
            raise EvaluationError("integer overflow")


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A timestamp in nanoseconds since 1970, from year 1 to 9999; `offset`: its text's offset from UTC, in seconds."""

    nanos: int
    offset: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not TIMESTAMP_MIN <= self.nanos <= TIMESTAMP_MAX:
            raise EvaluationError("timestamp overflow")


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    value: Any = None
    present: bool = True


NONE: Final = Optional(None, False)


class BoolKey(enum.Enum):
    """`true` and `false` as keys of a map; Python would take plain booleans for 1 and 0."""

    FALSE = False
    TRUE = True


_BOOL_KEYS: Final = {False: BoolKey.FALSE, True: BoolKey.TRUE}
_NAMES: dict[type, Type] = {
    bool: types.BOOL,
    int: types.INT,
    Uint: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
    list: types.list_of(types.DYN),
    tuple: types.list_of(types.DYN),
    dict: types.map_of(types.DYN, types.DYN),
    Duration: types.DURATION,
    Timestamp: types.TIMESTAMP,
    Type: types.TYPE,
    Optional: types.optional_of(types.DYN),
}


_OWN: set[type] = set()


_UNCOMPARED: set[type] = set()


def register(kind: type, what: Type, *, is_compared: bool = True) -> None:
    """Register the CEL type of a Python class. `is_compared`: `==` supports it; for other classes `!=` is always
    true.
    """
    _NAMES[kind] = what
    _OWN.add(kind)
    if not is_compared:
        _UNCOMPARED.add(kind)


def type_of(value: Any) -> Type:
    """Return the value's type; lists and maps have elements of type `dyn`."""
    scalar_type = _NAMES.get(type(value))
    if scalar_type is not None:
        return scalar_type
    if isinstance(value, Mapping):
        return types.map_of(types.DYN, types.DYN)
    return types.list_of(types.DYN) if isinstance(value, list) else types.DYN


def type_name(value: Any) -> str:
    """Return the name of the value's type, as `type()` returns it."""
    return type_of(value).name


def key_of(value: Any) -> Any:
    """Return the map key for a value."""
    return _BOOL_KEYS[value] if type(value) is bool else value


def value_of(key: Any) -> Any:
    """Return the value of a map key."""
    return key.value if type(key) is BoolKey else key


def keys(holder: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield a map's keys as values."""
    return (value_of(key) for key in holder)


_PLAIN: Final = frozenset((int, str, float, Uint, bytes, Duration, Timestamp))
_NUMBERS: Final = frozenset((int, float, Uint))


def equal(one: Any, two: Any) -> bool:
    """Return whether two values are equal; those of different types are not, except numbers."""
    kind, other = type(one), type(two)
    if kind is other:
        if kind in _PLAIN:
            return bool(one == two)
    elif kind in _NUMBERS and other in _NUMBERS:
        return bool(one == two)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        if own := getattr(one, "cel_equal", None):
            return bool(own(two))
        return len(one) == len(two) and all(map(equal, one, two))
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        if own := getattr(one, "cel_equal", None):
            return bool(own(two))
        return len(one) == len(two) and all(key in two and equal(value, two[key]) for key, value in one.items())
    if kind is other is Optional:
        return one.present == two.present and (not one.present or equal(one.value, two.value))
    if kind is other is Type:
        return bool(one.name == two.name)
    return kind is other and kind not in _UNCOMPARED and bool(one == two)


def is_same(one: Any, two: Any) -> bool:
    """Return the result of `one == two`; Kubernetes' own types compare only with their own type. Raises:
    EvaluationError.
    """
    kind = type(one)
    if kind in _OWN and ((type(two) is not kind and two is not None) or kind in _UNCOMPARED):
        raise EvaluationError("no such overload")
    return equal(one, two)


def is_in(value: Any, holder: Any) -> bool:
    """Return whether a list has the value, or a map the key. Raises: EvaluationError."""
    if isinstance(holder, Mapping):
        if type(value) is str:
            return value in holder
        return key_of(value) in holder if _hashable(value) else False
    if isinstance(holder, list | tuple):
        return any(equal(value, each) for each in holder)
    raise EvaluationError("no such overload")


def _hashable(value: Any) -> bool:
    return type(value) in (bool, int, Uint, float, str)


def value_text(value: Any) -> str:
    """Return a value as text for error messages."""
    if type(value) is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if type(value) is float and not math.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    return str(value)


def member(holder: Any, name: str) -> Any:
    """Return `holder.name`. Raises: EvaluationError."""
    if isinstance(holder, Mapping):
        try:
            return holder[name]
        except KeyError:
            raise NoSuchKey(f"no such key: {name}") from None
    if type(holder) is Optional:
        return optional_member(holder, name)
    raise EvaluationError("no such overload")


def at_index(holder: Any, key: Any) -> Any:
    """Return `holder[key]`. Raises: EvaluationError."""
    if isinstance(holder, Mapping):
        try:
            return holder[key if type(key) is str else key_of(key)]
        except KeyError:
            raise NoSuchKey(f"no such key: {value_text(key)}") from None
        except TypeError:
            raise EvaluationError(f"unsupported key type: {type_name(key)}") from None
    if isinstance(holder, list | tuple):
        place = _place(key)
        if 0 <= place < len(holder):
            return holder[place]
        raise EvaluationError(f"index out of bounds: {value_text(key)}")
    if type(holder) is Optional:
        return optional_index(holder, key)
    raise EvaluationError("no such overload")


def _place(key: Any) -> int:
    if type(key) is int:
        return key
    if type(key) is Uint or type(key) is float:
        if INT_MIN <= key <= INT_MAX and key == math.floor(key):
            return int(key)
        raise EvaluationError(f"unsupported index value {value_text(key)} in list")
    raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")


def optional_member(holder: Any, name: str) -> Optional:
    """Return `holder.?name`: the field, if it is there. Raises: EvaluationError."""
    if type(holder) is Optional:
        return optional_member(holder.value, name) if holder.present else NONE
    if isinstance(holder, Mapping):
        try:
            return Optional(holder[name])
        except KeyError:
            return NONE
    if isinstance(holder, list | tuple):
        raise EvaluationError("unsupported index type 'string' in list")
    return NONE


def optional_index(holder: Any, key: Any) -> Optional:
    """Return `holder[?key]`. Raises: EvaluationError."""
    if type(holder) is Optional:
        return optional_index(holder.value, key) if holder.present else NONE
    if isinstance(holder, Mapping):
        try:
            return Optional(holder[key_of(key)])
        except (KeyError, TypeError):  # no map has a list or a map as its key
            return NONE
    if isinstance(holder, list | tuple):
        place = _place(key)
        return Optional(holder[place]) if 0 <= place < len(holder) else NONE
    raise EvaluationError("no such overload")


def has_member(holder: Any, name: str) -> bool:
    """Return the result of `has(holder.name)`. Raises: EvaluationError."""
    if isinstance(holder, Mapping):
        try:
            holder[name]
        except KeyError:
            return False
        return True
    if type(holder) is Optional:
        return holder.present and has_member(holder.value, name)
    if isinstance(holder, list | tuple):
        raise EvaluationError("unsupported index type 'string' in list")
    return False


def size(value: Any) -> int:
    """Return the size for cost accounting: characters, bytes, items; 1 for values without a size."""
    if isinstance(value, str | bytes | list | tuple | Mapping):
        return len(value)
    if type(value) is Optional and value.present:
        return size(value.value)
    sizes = getattr(value, "cel_size", None)
    return int(sizes()) if sizes is not None else 1


Impl = Callable[..., Any]
