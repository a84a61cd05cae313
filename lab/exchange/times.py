"""Times written relative to the beginning of a recording: `$(time-offset-nanosecond N)`. Pure.

Source: simulator 5.2; kubernetes-sigs/kwok, `pkg/kwokctl/recording/time.go`.
"""

import re

from services.api.times import format_time, parse_time

_MOMENT = re.compile(rb"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})")
_OFFSET = re.compile(rb"\$\(time-offset-nanosecond (-?\d{1,19})\)")
_FRACTION = re.compile(r"\.(\d+)")
NANOSECOND = 1_000_000_000


def nanoseconds_of(text: str) -> int:
    """Return an RFC 3339 time in nanoseconds since the epoch, with all nine digits. Raises: ValueError."""
    fraction = _FRACTION.search(text)
    digits = fraction[1] if fraction else ""
    whole = round(parse_time(_FRACTION.sub("", text, count=1)))
    return whole * NANOSECOND + int(digits[:9].ljust(9, "0") or 0)


def to_offsets(text: bytes, began_ns: int) -> bytes:
    """Return the text with every time relative to the beginning, `began_ns` nanoseconds since the epoch."""

    def offset(found: re.Match[bytes]) -> bytes:
        try:
            moment = nanoseconds_of(found[0].decode())
        except ValueError:
            return found[0]  # 2026-13-45T00:00:00Z looks like one, and is none
        return b"$(time-offset-nanosecond %d)" % (moment - began_ns)

    return _MOMENT.sub(offset, text)


def to_moments(text: bytes, began_ns: int) -> bytes:
    """Return the text with every offset as a time in UTC with microseconds, counted from this beginning."""

    def moment(found: re.Match[bytes]) -> bytes:
        second, us = divmod((began_ns + int(found[1])) // 1000, 1_000_000)
        try:
            return f"{format_time(second)[:-1]}.{us:06d}Z".encode()
        except (OverflowError, ValueError, OSError):
            return found[0]  # no calendar has such a year

    return _OFFSET.sub(moment, text)


def has_offsets(text: bytes) -> bool:
    """Return whether the text has a time that is relative to a beginning."""
    return _OFFSET.search(text) is not None
