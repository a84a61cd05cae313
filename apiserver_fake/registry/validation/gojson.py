"""The error texts of Go's `encoding/json` for a text that is no JSON object."""

import re

import msgspec

from services.api.errors import UNREADABLE

_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
_BLANK = b" \t\r\n"
_END = "unexpected end of JSON input"


class _Syntax(Exception):
    """A text is not JSON; the message is Go's."""


class _Scanner:
    """Scans one value, to find the position at which a text stops being JSON."""

    def __init__(self, text: bytes) -> None:
        self._text, self._at = text, 0

    def document(self) -> None:
        """Read the whole text."""
        self._value()
        self._blank()
        if self._at < len(self._text):
            raise self._wrong("after top-level value")

    def _wrong(self, where: str) -> _Syntax:
        if self._at >= len(self._text):
            return _Syntax(_END)
        char = chr(self._text[self._at])
        shown = {"'": "'\\''", '"': "'\"'", "\n": "'\\n'", "\t": "'\\t'"}.get(char, f"'{char}'")
        return _Syntax(f"invalid character {shown} {where}")

    def _blank(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in _BLANK:
            self._at += 1

    def _next(self) -> bytes:
        self._blank()
        return self._text[self._at : self._at + 1]

    def _value(self) -> None:
        char = self._next()
        if char == b"{":
            self._members(b"}", "after object key:value pair", is_object=True)
        elif char == b"[":
            self._members(b"]", "after array element", is_object=False)
        elif char == b'"':
            self._string()
        elif char in (b"t", b"f", b"n") and char:
            self._literal({b"t": b"true", b"f": b"false", b"n": b"null"}[char])
        elif match := _NUMBER.match(self._text, self._at):
            self._at = match.end()
        else:
            raise self._wrong("in numeric literal" if char == b"-" else "looking for beginning of value")

    def _literal(self, word: bytes) -> None:
        for index, each in enumerate(word):
            if self._text[self._at : self._at + 1] != bytes((each,)):
                text = word.decode()
                raise self._wrong(f"in literal {text} (expecting '{text[index]}')")
            self._at += 1

    def _string(self) -> None:
        match = _STRING.match(self._text, self._at)
        if match is None:
            end = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*').match(self._text, self._at)
            self._at = end.end() if end else self._at
            raise self._wrong("in string literal")
        self._at = match.end()

    def _members(self, end: bytes, after: str, *, is_object: bool) -> None:
        self._at += 1
        if self._next() == end:
            self._at += 1
            return
        while True:
            if is_object:
                if self._next() != b'"':
                    raise self._wrong("looking for beginning of object key string")
                self._string()
                if self._next() != b":":
                    raise self._wrong("after object key")
                self._at += 1
            self._value()
            char = self._next()
            if char not in (b",", end) or not char:
                raise self._wrong(after)
            self._at += 1
            if char == end:
                return


def object_mistake(text: bytes) -> str:
    """Return why a text cannot be decoded into a map; "" if it can."""
    try:
        document = msgspec.json.decode(text)
    except UNREADABLE:
        try:
            _Scanner(text).document()
        except _Syntax as mistake:
            return str(mistake)
        return ""
    kinds = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}
    if document is None or isinstance(document, dict):
        return ""
    return f"json: cannot unmarshal {kinds[type(document)]} into Go value of type map[string]interface {{}}"
