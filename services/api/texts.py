"""Conversion of clients' texts and values into a form that can be written to a log line, an event or a Status.

UTF-8 cannot encode a lone surrogate, which JSON's escapes and the bytes of a broken header may bring into a
text. Code that reports a mistake must not fail on the mistake.
"""

from typing import Any, Final

import msgspec

DEPTH_MAX: Final = 32
"""Maximum depth of a written value; deeper parts are written as their text."""
_INT_MIN, _INT_END = -(1 << 63), 1 << 64


def encodable(text: str) -> str:
    """Return the text with lone surrogates as backslash escapes; the same text if it has none."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def json_of(value: Any) -> bytes:
    """Return a value as JSON; parts that JSON cannot represent become their text."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except Exception:
        return msgspec.json.encode(writable(value))


def writable(value: Any, depth: int = 0) -> Any:
    """Return a JSON-encodable form of a value: texts are encodable, unknown objects become their text."""
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
