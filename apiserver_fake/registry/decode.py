"""Strict decoding of request bodies: errors that the fast decoder accepts are detected here (V1, V2)."""

import json
import re
from typing import Any

import msgspec

from services.api.errors import BadRequest, RequestEntityTooLarge

BODY_BYTES_MAX = 3 << 20
DEPTH_MAX = 64
NUMBER_LENGTH_MAX = 64
SMALL_BYTES = 1 << 10

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_MANY_DIGITS = re.compile(rb"[0-9]{19}")
_LONG_NUMBER = re.compile(rb"[-+.0-9eE]{%d}" % (NUMBER_LENGTH_MAX + 1))
_AS_BRACES = bytes.maketrans(b"[]", b"{}")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"{}[]")


class NotJson(BadRequest):
    """400: a body with a JSON syntax error."""


def decode(body: bytes, repeated: list[str] | None = None) -> Any:
    """Return the JSON value.

    `repeated`: list that receives the paths of duplicate keys; with it, the last value of a key counts.

    Raises: RequestEntityTooLarge above 3 MiB; BadRequest for anything that is not strict JSON: wrong UTF-8, lone
    surrogates, NaN, duplicate keys, depth above 64 or numbers longer than 64 characters. Integers beyond 64 bits
    are read as floats, as Go does.
    """
    if len(body) > BODY_BYTES_MAX:
        raise RequestEntityTooLarge(f"the body has {len(body)} bytes, at most {BODY_BYTES_MAX} are accepted")
    try:
        value = msgspec.json.decode(body)
        # Most of what the mesh's own components send is small and comes out again as it went in.
        if (
            len(body) <= SMALL_BYTES
            and body.count(b"{") + body.count(b"[") <= DEPTH_MAX
            and not _MANY_DIGITS.search(body)
            and msgspec.json.encode(value) == body
        ):
            return value
        bare = _without_strings(body)
        if not _MANY_DIGITS.search(bare) and _is_shallow(bare):
            again = msgspec.json.encode(value)
            # What comes out again as it went in, or with as many keys, has no key twice.
            if again == body or bare.count(b":") == _without_strings(again).count(b":"):
                return value
    except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise NotJson(syntax_error(body) or f"the body is not strict JSON: {error}") from None
    _examine(value, bare, body, repeated)
    return _as_go_reads(value)


def _as_go_reads(value: Any) -> Any:
    """Return the value with integers beyond 64 bits as the fractions that Go's decoder makes of them."""
    if isinstance(value, dict):
        return {name: _as_go_reads(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_go_reads(each) for each in value]
    return float(value) if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX else value


def _without_strings(body: bytes) -> bytes:
    """Return valid JSON without its strings, quotes included."""
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return b"".join(body.split(b'"')[::2])


def _is_shallow(bare: bytes) -> bool:
    """Whether JSON without strings is nested at most as deep as bodies may be."""
    left = bare.translate(_AS_BRACES, _NO_BRACKETS)
    for _ in range(DEPTH_MAX):
        if not left:
            return True
        left = left.replace(b"{}", b"")  # the innermost of all objects and lists
    return not left


def decode_object(body: bytes, what: str, repeated: list[str] | None = None) -> dict[str, Any]:
    """Return the JSON object. Raises: as `decode`, and BadRequest when it is not an object."""
    kind = what.removeprefix("a ").removeprefix("an ")
    try:
        value = decode(body, repeated)
    except NotJson as error:
        raise BadRequest(_unrecognized_text(kind, error.message, body)) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        go_type = _GO_TYPES.get(type(value), "number")
        raise BadRequest(
            _unrecognized_text(kind, f"json: cannot unmarshal {go_type} into Go value of type {_HEAD}", body)
        )
    return value


_GO_TYPES = {list: "array", str: "string", bool: "bool"}
_HEAD = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


def _unrecognized_text(kind: str, why: str, body: bytes) -> str:
    """Return upstream's words for a body that is no object at all.

    Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/rest.go`.
    """
    shown = body if body.startswith(b"{") else body.hex().encode()
    bytes_max = 30 if body.startswith(b"{") else 60
    summary = shown[:bytes_max].decode("utf-8", "replace") + (" ..." if len(shown) > bytes_max else "")
    why = f"couldn't get version/kind; json parse error: {why}"
    return f"the object provided is unrecognized (must be of type {kind}): {why} ({summary or '<empty>'})"


_AT = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Expecting ':' delimiter": "after object key",
    "Expecting ',' delimiter": "after object key:value pair",
    "Extra data": "after top-level value",
    "Invalid control character at": "in string literal",
    "Invalid \\escape": "in string escape code",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
}
_TRAILING_COMMA = "Illegal trailing comma"
"""Error message of Python 3.13 and later, whose position is the comma; earlier versions and Go report what
follows it.
"""


def syntax_error(body: bytes) -> str:
    """Return the error of Go's decoder for JSON text; "" if the syntax is valid."""
    try:
        # A character a byte, as Go's scanner reads it.
        json.loads(body.decode("latin-1"))
    except json.JSONDecodeError as error:
        at = error.pos
        at += error.msg.startswith(_TRAILING_COMMA)
        rest = error.doc[at:].lstrip(" \t\r\n")
        if not rest or error.msg.startswith("Unterminated string"):
            return "unexpected end of JSON input"
        where = _AT.get(error.msg, "looking for beginning of value")
        if error.msg == "Expecting ',' delimiter" and _is_in_list(error.doc[:at]):
            where = "after array element"
        if error.msg == "Invalid \\escape":
            rest = rest[1:] or " "
        return f"invalid character {_quoted_char(rest[0])} {where}"
    except (ValueError, RecursionError):
        return ""
    return ""


_ESCAPES = dict(zip("\a\b\f\n\r\t\v\\'", (f"\\{each}" for each in "abfnrtv\\'"), strict=True))


def _quoted_char(char: str) -> str:
    """Return one character of a byte's value as Go quotes it."""
    if char.isprintable() and char not in _ESCAPES:
        return f"'{char}'"
    code = f"\\x{ord(char):02x}" if char.isascii() else f"\\u{ord(char):04x}"
    return f"'{_ESCAPES.get(char, code)}'"


def _is_in_list(text: str) -> bool:
    """Whether JSON text ends within a list and not within an object."""
    open_ones: list[str] = []
    for char in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        if char in "[{":
            open_ones.append(char)
        elif char in "]}" and open_ones:
            open_ones.pop()
    return open_ones[-1:] == ["["]


def json_object(body: bytes, malformed: str, other: str) -> dict[str, Any]:
    """Return the JSON object; only the registry checks its content. Raises: BadRequest with these texts."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadRequest(f"{malformed}: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest(other)
    return value


class _Pairs(list[tuple[str, Any]]):
    """A decoded object as its pairs of key and value, duplicate keys included."""


def _repeated_keys(body: bytes) -> list[str]:
    """Return the paths of keys that an object has again, in the order in which they stand there."""
    paths: list[str] = []

    def look(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for name, member in value:
                here = f"{path}.{name}" if path else name
                if name in seen:
                    paths.append(here)
                seen.add(name)
                look(member, here)
        elif isinstance(value, list):
            for index, member in enumerate(value):
                look(member, f"{path}[{index}]")

    look(json.loads(body.decode(), object_pairs_hook=_Pairs), "")
    return list(dict.fromkeys(paths))


def _examine(value: Any, bare: bytes, body: bytes, repeated: list[str] | None) -> None:
    keys = 0
    level: list[Any] = [value]
    depth = 0
    # Level by level, so that depth needs no recursion.
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                keys += len(item)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if any(isinstance(item, dict | list) for item in level):
            depth += 1
            if depth > DEPTH_MAX:
                raise BadRequest(f"the body is not strict JSON: nested deeper than {DEPTH_MAX} levels")
        level = below
    if _LONG_NUMBER.search(bare):
        raise BadRequest(f"the body is not strict JSON: a number has more than {NUMBER_LENGTH_MAX} characters")
    if bare.count(b":") != keys:
        if repeated is None:
            raise BadRequest("the body is not strict JSON: an object has a duplicate key")
        repeated += _repeated_keys(body)
