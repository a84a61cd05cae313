"""Texts and values of clients as they can be written: into a log line, an event, a Status.

UTF-8 has no form of a lone surrogate, which JSON's escapes and the bytes of a broken header may bring into a text. What
reports a mistake must not fail on the mistake.
"""

from typing import Any, Final

import msgspec

DEPTH_MAX: Final = 32
"""How deep a value is written; what lies deeper is written as its text."""
_INT_MIN, _INT_END = -(1 << 63), 1 << 64


def encodable(text: str) -> str:
    """Return the text with lone surrogates as backslash escapes; the same text where it has none."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def json_of(value: Any) -> bytes:
    """Return a value as JSON; what JSON cannot say stands there as its text."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except Exception:
        return msgspec.json.encode(writable(value))


def writable(value: Any, depth: int = 0) -> Any:
    """Return a value that is certain to have a form in JSON: texts are encodable, strange objects are their text."""
    match value:
        case None | bool() | float():
            return value
        case str():
            return encodable(value)
        case int() if _INT_MIN <= value < _INT_END:
            return int(value)
        case dict() if depth < DEPTH_MAX:
            return {_text_of(key): writable(member, depth + 1) for key, member in value.items()}
        case list() | tuple() | set() | frozenset() if depth < DEPTH_MAX:
            return [writable(member, depth + 1) for member in value]
        case msgspec.Struct() if depth < DEPTH_MAX:
            return writable(msgspec.structs.asdict(value), depth)
    return _text_of(value)


def _text_of(value: Any) -> str:
    try:
        return encodable(str(value))
    except Exception:
        return f"<{type(value).__name__}>"
