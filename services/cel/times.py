"""Timestamps and durations of CEL: parsing, formatting, and parts, to the nanosecond. Reads no clock.

Source: google/cel-spec doc/langdef.md, "Abstract Types". Text is read as by Go's time.ParseDuration, and by RFC
3339.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from services.api.times import utc_offset
from services.cel.values import DIGITS_MAX, INT_MAX, NANOS, Duration, EvaluationError, Timestamp, whole

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": NANOS,
    "m": 60 * NANOS,
    "h": 3600 * NANOS,
}
_PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)")
_MOMENT: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:([Zz])|([+-])(\d{2}):(\d{2}))"
)
_OFFSET: Final = re.compile(r"([+-]?)(\d{2}):(\d{2})")
_DAYS: Final = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


def duration(text: str) -> Duration:
    """Parse the duration, such as `1h30m` or `-1.5s`. Raises: EvaluationError."""
    rest = text.lstrip("+-") if text[:1] in "+-" else text
    if len(text) - len(rest) > 1:
        raise _no_duration()
    if rest == "0":
        return Duration(0)
    nanos, at = 0, 0
    while at < len(rest):
        match = _PART.match(rest, at)
        if match is None or not (match[1] or match[2]):
            raise _no_duration()
        unit = _UNITS[match[3]]
        nanos += whole(match[1] or "0") * unit
        fraction = (match[2] or "")[:DIGITS_MAX]
        nanos += int(fraction or 0) * unit // 10 ** len(fraction)
        at = match.end()
    if at == 0 or nanos > INT_MAX:
        raise _no_duration()
    return Duration(-nanos if text.startswith("-") else nanos)


def _no_duration() -> EvaluationError:
    return EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")


def duration_text(value: Duration) -> str:
    """Return the duration in seconds, as `string()` writes it: `5400s`, `0.5s`."""
    whole, part = divmod(abs(value.nanos), NANOS)
    fraction = f".{part:09d}".rstrip("0") if part else ""
    return f"{'-' if value.nanos < 0 else ''}{whole}{fraction}s"


@dataclass(frozen=True, slots=True)
class Moment:
    """A timestamp by parts. Months, days and days of the year begin at 1; Sunday is 0."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    nanos: int
    day_of_year: int
    day_of_week: int


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970."""
    before = year - 1
    leaps = before // 4 - before // 100 + before // 400
    return before * 365 + leaps + _DAYS[month - 1] + (month > 2 and _leap(year)) + day - 1 - 719162


def timestamp(text: str) -> Timestamp:
    """Parse the timestamp by RFC 3339. Raises: EvaluationError."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise EvaluationError(f'invalid RFC 3339 timestamp "{text}"')
    year, month, day, hour, minute, second = (int(match[place]) for place in range(1, 7))
    last = 0
    if 1 <= month <= 12:
        last = (_DAYS[month] if month < 12 else 365) - _DAYS[month - 1] + (month == 2 and _leap(year))
    if not (1 <= day <= last and hour < 24 and minute < 60 and second < 60 and year >= 1):
        raise EvaluationError(f'invalid RFC 3339 timestamp "{text}"')
    offset = 0
    if match[9]:
        if int(match[10]) > 24 or int(match[11]) > 59:
            raise EvaluationError(f'invalid RFC 3339 timestamp "{text}"')
        offset = (int(match[10]) * 3600 + int(match[11]) * 60) * (-1 if match[9] == "-" else 1)
    seconds = _days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset
    return Timestamp(seconds * NANOS + int((match[7] or "").ljust(9, "0")[:9] or 0), offset)


def moment(value: Timestamp, zone: str) -> Moment:
    """Return the parts of a timestamp in a zone: the zone's name, or `+HH:MM`. Raises: EvaluationError."""
    seconds, nanos = divmod(value.nanos, NANOS)
    seconds += _offset(zone, seconds)
    days, rest = divmod(seconds, 86400)
    year, month, day = _date(days)
    return Moment(
        year,
        month,
        day,
        rest // 3600,
        rest % 3600 // 60,
        rest % 60,
        nanos,
        days - _days(year, 1, 1) + 1,
        (days + 4) % 7,
    )


def _date(days: int) -> tuple[int, int, int]:
    year = 1970 + days * 400 // 146097
    while _days(year, 1, 1) > days:
        year -= 1
    while _days(year + 1, 1, 1) <= days:
        year += 1
    month = next(month for month in range(12, 0, -1) if _days(year, month, 1) <= days)
    return year, month, days - _days(year, month, 1) + 1


def _offset(zone: str, seconds: int) -> int:
    if zone in ("", "UTC"):
        return 0
    if match := _OFFSET.fullmatch(zone):
        return (int(match[2]) * 3600 + int(match[3]) * 60) * (-1 if match[1] == "-" else 1)
    try:
        return utc_offset(zone, seconds)
    except ValueError:
        raise EvaluationError(f"unknown time zone {zone}") from None


def timestamp_text(value: Timestamp) -> str:
    """Return the timestamp by RFC 3339, with the offset it was read with."""
    sign, minutes = ("-" if value.offset < 0 else "+"), abs(value.offset) // 60
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if value.offset else "Z"
    at = moment(value, zone if value.offset else "UTC")
    fraction = f".{at.nanos:09d}".rstrip("0") if at.nanos else ""
    return f"{at.year:04d}-{at.month:02d}-{at.day:02d}T{at.hour:02d}:{at.minute:02d}:{at.second:02d}{fraction}{zone}"
