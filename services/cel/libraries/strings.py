"""Functions of text.

Source: google/cel-go ext/strings.go, ext/formatting.go. Kubernetes has version 2 of them: no `reverse`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from services.cel import times
from services.cel.declarations import Library, of, on
from services.cel.libraries.standard import double_text
from services.cel.types import DYN, INT, STRING, Type, list_of
from services.cel.values import INT_MAX, Duration, EvaluationError, Timestamp, Uint, type_name, utf8, value_of, whole

_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_QUOTED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_RAISED: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _char_at(text: str, place: int) -> str:
    if not 0 <= place <= len(text):
        raise EvaluationError(f"index out of range: {place}")
    return text[place : place + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return min(start, len(text)) if not part else text.find(part, start)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_before(text: str, part: str, end: int) -> int:
    if end < 0:
        raise EvaluationError(f"index out of range: {end}")
    if not part:
        return min(end, len(text))
    return -1 if end >= len(text) else text.rfind(part, 0, end + len(part))


def _join(items: Any, separator: str = "") -> str:
    if not all(type(each) is str for each in items):
        raise EvaluationError("no such overload: join")
    return separator.join(items)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    if 0 < count < len(text):
        return [*text[: count - 1], text[count - 1 :]]
    return list(text)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for place in (start, end):
        if place is not None and not 0 <= place <= len(text):
            raise EvaluationError(f"index out of range: {place}")
    return text[start:end]


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(each, each) for each in text) + '"'


_CLAUSE: Final = re.compile(r"%(?:(%)|(?:\.([0-9]*))?(.)?)", re.DOTALL)
PRECISION_MAX: Final = 1074
"""Maximum number of a double's decimal places; further places would only be zeros."""


class FormatError(EvaluationError):
    """Error: the type of an argument does not fit its clause."""

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place


def format_text(pattern: str, args: Any, *, constant: Callable[[int], bool] = lambda _: True) -> str:
    """Return the pattern with its clauses replaced. Raises: EvaluationError.

    `constant`: whether an argument is known; unknown ones are left out, for a check at compile time.
    """
    pieces: list[str] = []
    at = used = 0
    for match in _CLAUSE.finditer(pattern):
        pieces.append(pattern[at : match.start()])
        at = match.end()
        if match[1]:
            pieces.append("%")
            continue
        if used >= len(args):
            raise EvaluationError(f"index {used} out of range")
        if match[0] == "%":
            raise EvaluationError("unexpected end of string")
        precision = _precision(match)
        if match[3] not in _CLAUSES:
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{match[3]}"')
        if constant(used):
            try:
                pieces.append(_CLAUSES[match[3]](args[used], precision))
            except EvaluationError as error:
                raise FormatError(str(error), used) from None
        used += 1
    if used < len(args):
        raise EvaluationError(f"too many arguments supplied to string.format (expected {used}, got {len(args)})")
    return "".join((*pieces, pattern[at:]))


def _precision(clause: re.Match[str]) -> int:
    """Return the digits that a clause asks for behind the point. Raises: EvaluationError."""
    digits = clause[2]
    if digits is None:
        return 6
    reason = ""
    if clause[3] is None:
        reason = "could not find end of precision specifier"
    elif not digits:
        reason = 'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
    elif (asked := whole(digits)) > INT_MAX:
        reason = f'error while converting precision to integer: strconv.Atoi: parsing "{digits}": value out of range'
    elif asked > PRECISION_MAX:
        reason = f"precision {asked} exceeds maximum allowed precision {PRECISION_MAX}"
    else:
        return asked
    raise EvaluationError(f"could not parse formatting clause: error while parsing precision: {reason}")


def _clause_error(clause: str, kinds: str, value: Any) -> EvaluationError:
    return EvaluationError(
        f"error during formatting: {clause} clause can only be used on {kinds}, was given {type_name(value)}"
    )


def _refused_as(form: str, kinds: str, value: Any) -> EvaluationError:
    return EvaluationError(
        f"error during formatting: only {kinds} can be formatted as {form}, was given {type_name(value)}"
    )


def _text(value: Any, _: int) -> str:
    return _value_text(value, inside=False)


def _value_text(value: Any, *, inside: bool) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"' if inside else value
        case int():
            return str(int(value))
        case float():
            if inside and not math.isfinite(value):
                return f'"{double_text(value)}"'
            return f"{value:.6f}" if inside else double_text(value)
        case bytes():
            return f'b"{value.decode(errors="replace")}"' if inside else value.decode(errors="replace")
        case Duration():
            text = times.duration_text(value)
            return f'duration("{text}")' if inside else text
        case Timestamp():
            text = times.timestamp_text(value)
            return f'timestamp("{text}")' if inside else text
        case Type():
            return value.name
        case list() | tuple():
            return f"[{', '.join(_value_text(each, inside=True) for each in value)}]"
        case Mapping():
            names = {
                _value_text(value_of(key), inside=True): _value_text(held, inside=True) for key, held in value.items()
            }
            return f"{{{', '.join(f'{name}:{names[name]}' for name in sorted(names))}}}"
    raise _clause_error(
        "string", "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps", value
    )


def _whole(value: Any, _: int) -> str:
    if type(value) in (int, Uint):
        return str(int(value))
    raise _clause_error("decimal", "integers", value)


def _special(value: Any) -> str | None:
    """Return how a double that is no number is written; also its name as text."""
    if value in ("NaN", "Infinity", "-Infinity") and isinstance(value, str):
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "∞" if value > 0 else "-∞"
    return None


def _fixed_point(value: Any, precision: int) -> str:
    special = _special(value)
    if special is not None:
        return special
    if type(value) is not float:
        raise _clause_error("fixed-point", "doubles", value)
    return f"{value:,.{precision}f}"


def _scientific(value: Any, _: int) -> str:
    # Upstream writes six digits whatever precision is asked for.
    special = _special(value)
    if special is not None:
        return special.rjust(6)
    if type(value) is not float:
        raise _clause_error("scientific", "doubles", value)
    mantissa, exponent = f"{value:.6e}".split("e")
    sign = "-" if exponent.startswith("-") else ""
    power = f"{sign}{exponent[1:]}".translate(_RAISED)
    return f"{mantissa}×10{power}"


def _binary(value: Any, _: int) -> str:
    if isinstance(value, int):
        return format(int(value), "b")
    raise _refused_as("binary", "integers and bools", value)


def _octal(value: Any, _: int) -> str:
    if type(value) in (int, Uint):
        return format(int(value), "o")
    raise _clause_error("octal", "integers", value)


def _hex(value: Any, _: int) -> str:
    if type(value) in (int, Uint):
        return format(int(value), "x")
    if isinstance(value, str):
        return utf8(value).hex()
    if isinstance(value, bytes):
        return value.hex()
    raise _refused_as("hex", "integers, byte buffers, and strings", value)


_CLAUSES: Final[Mapping[str, Callable[[Any, int], str]]] = {
    "s": _text,
    "d": _whole,
    "f": _fixed_point,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hex,
    "X": lambda value, _: _hex(value, 0).upper(),
}
_LIST: Final = list_of(STRING)


@functools.cache
def strings(version: int) -> Library:
    """Return the functions of a version of the extension; `reverse` exists from version 3."""
    functions = {
        "charAt": (on("string_char_at_int", (STRING, INT), STRING, _char_at),),
        "indexOf": (
            on("string_index_of_string", (STRING, STRING), INT, _index_of),
            on("string_index_of_string_int", (STRING, STRING, INT), INT, _index_of),
        ),
        "lastIndexOf": (
            on("string_last_index_of_string", (STRING, STRING), INT, _last_index_of),
            on("string_last_index_of_string_int", (STRING, STRING, INT), INT, _last_index_before),
        ),
        "lowerAscii": (on("string_lower_ascii", (STRING,), STRING, lambda text: text.translate(_LOWER)),),
        "upperAscii": (on("string_upper_ascii", (STRING,), STRING, lambda text: text.translate(_UPPER)),),
        "replace": (
            on("string_replace_string_string", (STRING, STRING, STRING), STRING, _replace),
            on("string_replace_string_string_int", (STRING, STRING, STRING, INT), STRING, _replace),
        ),
        "split": (
            on("string_split_string", (STRING, STRING), _LIST, _split),
            on("string_split_string_int", (STRING, STRING, INT), _LIST, _split),
        ),
        "substring": (
            on("string_substring_int", (STRING, INT), STRING, _substring),
            on("string_substring_int_int", (STRING, INT, INT), STRING, _substring),
        ),
        "trim": (on("string_trim", (STRING,), STRING, lambda text: text.strip(_SPACE)),),
        "join": (on("list_join", (_LIST,), STRING, _join), on("list_join_string", (_LIST, STRING), STRING, _join)),
        "format": (on("string_format", (STRING, list_of(DYN)), STRING, format_text),),
        "strings.quote": (of("strings_quote", (STRING,), STRING, _quote),),
    }
    if version >= 3:
        functions["reverse"] = (on("string_reverse", (STRING,), STRING, lambda text: text[::-1]),)
    return Library(functions)
