"""RFC 3339 timestamps, Go's durations, days in a time zone: the only module that formats wall-clock time (and
may import `datetime`).
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_UNITS_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|µs|μs|ns)")


def format_time(wall_s: float) -> str:
    """Return whole seconds as Kubernetes' `Time` does: `2026-01-02T03:04:05Z`."""
    return _spelt(int(wall_s))


@lru_cache(maxsize=64)
def _spelt(second: int) -> str:
    # Thousands of writes happen in one second, and each spells it several times.
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(wall_s: float) -> str:
    """Return microseconds as Kubernetes' `MicroTime` does: `2026-01-02T03:04:05.000006Z`."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def format_as(wall_s: float, form: str) -> str:
    """Return a time in UTC as `strftime` writes it."""
    return datetime.fromtimestamp(wall_s, UTC).strftime(form)


def parse_time(text: str) -> float:
    """Return seconds since the epoch.

    Raises: ValueError when the text is not RFC 3339 or the year is outside 1970 to 2200 (V13).
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    if not 1970 <= moment.year <= 2200:
        raise ValueError(f"{text!r} is outside the years 1970 to 2200")
    return moment.timestamp()


Zone = tzinfo
"""A time zone: it maps a moment to the local time there."""


_ZONE_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")
"""Syntax of zone names. The library takes other names for paths of files and packages, at any depth."""


@lru_cache(maxsize=256)
def _named_zone(name: str) -> ZoneInfo | None:
    if _ZONE_NAME.fullmatch(name) is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def zone_of(name: str) -> Zone:
    """Return the IANA time zone of that name; "" is UTC. Raises: ValueError, in Go's words, for an unknown name."""
    zone = _named_zone(name) if name else UTC
    if zone is None:
        raise ValueError(f"unknown time zone {name}")
    return zone


def format_time_in(wall_s: float, zone: Zone) -> str:
    """Return whole seconds in that zone as Go's RFC 3339 does: `2026-01-02T04:04:05+01:00`."""
    return datetime.fromtimestamp(int(wall_s), zone).isoformat().replace("+00:00", "Z")


def format_mail_time(wall_s: float) -> str:
    """Return whole seconds in UTC as RFC 1123 does with a numeric zone: `Fri, 02 Jan 2026 03:04:05 +0000`."""
    return datetime.fromtimestamp(int(wall_s), UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")


class Day(NamedTuple):
    """A calendar day. `number`: days since the year 1; `weekday`: 0 is Sunday."""

    number: int
    year: int
    month: int
    day: int
    weekday: int


def day_at(wall_s: float, zone: Zone) -> Day:
    """Return the calendar day in that zone at that time."""
    return day_of(datetime.fromtimestamp(wall_s, zone).toordinal())


def day_of(number: int) -> Day:
    """Return the day of that number."""
    found = date.fromordinal(number)
    return Day(number, found.year, found.month, found.day, found.isoweekday() % 7)


def moments(day: int, hour: int, minute: int, zone: Zone) -> list[float]:
    """Return the times, in epoch seconds, when clocks in that zone show `hour`:`minute` on that day.

    There is one as a rule, and none or two where the clocks are changed.
    """
    shown = datetime.combine(date.fromordinal(day), time(hour, minute), zone)
    instants = {shown.replace(fold=fold).timestamp() for fold in (0, 1)}
    return sorted(at for at in instants if datetime.fromtimestamp(at, zone).replace(fold=0) == shown)


_PLAIN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h)?")


def seconds_in(text: str) -> float:
    """Return the seconds of `5s`, `200ms`, `2m`, `1h` or a bare number, as annotations write them. Raises:
    ValueError.
    """
    match = _PLAIN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration; want for example 200ms, 5s or 2m")
    return float(match[1]) * _UNITS_S[match[2] or "s"]


class Duration(float):
    """Seconds in Go's time.Duration format, `1m30s`: the form of durations in configuration files."""

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Return `1m30s` as 90. Raises: ValueError."""
        sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
        if rest == "0":
            return cls(0.0)
        total, position = 0.0, 0
        for part in _PART.finditer(rest):
            if part.start() != position:
                break
            total += float(part[1]) * _UNITS_S[part[2]]
            position = part.end()
        if not rest or position != len(rest):
            raise ValueError(f"{text!r} is not a duration such as 15s or 1m30s")
        return cls(sign * total)

    @property
    def text(self) -> str:
        """The duration as Go prints it: `1m30s`, `250ms`, `0s`."""
        nanoseconds = round(abs(self) * 1e9)
        sign = "-" if self < 0 else ""
        if 0 < nanoseconds < 1_000_000_000:
            for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
                if nanoseconds >= size:
                    return f"{sign}{nanoseconds / size:g}{unit}"
        hours, rest = divmod(nanoseconds, 3_600_000_000_000)
        minutes, rest = divmod(rest, 60_000_000_000)
        text = f"{hours}h" if hours else ""
        text += f"{minutes}m" if hours or minutes else ""
        return f"{sign}{text}{rest / 1e9:.9f}".rstrip("0").rstrip(".") + "s"


def utc_offset(zone: str, second: int) -> int:
    """Return a zone's offset from UTC in seconds, at `second` since 1970. Raises: ValueError.

    Years outside the range of dates get the offset of the nearest year inside it.
    """
    if (named := _named_zone(zone)) is None:
        raise ValueError(f"time zone {zone!r}: unknown")
    at = datetime.fromtimestamp(min(max(second, -62135510400), 253402214400), UTC).astimezone(named)
    offset = at.utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def seconds_of(stamp: str | None) -> float:
    """Return epoch seconds of a timestamp; 0 when it is missing or unreadable."""
    if not stamp:
        return 0.0
    try:
        return parse_time(stamp)
    except ValueError:
        return 0.0


_AGE_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
_AGE_PRECISIONS = (
    (120, "s", ""), (600, "m", "s"), (3 * 3600, "m", ""), (8 * 3600, "h", "m"), (48 * 3600, "h", ""),
    (8 * 86400, "d", "h"), (730 * 86400, "d", ""), (8 * 365 * 86400, "y", "d"),
)  # fmt: skip
"""Format of ages: (limit in seconds, unit, additional smaller unit or empty)."""


def duration(seconds: float) -> str:
    """Return a human duration as apimachinery's `HumanDuration` does: `45s`, `5m3s`, `3h12m`, `5d`."""
    if seconds <= -1:
        return "<invalid>" if seconds <= -2 else "0s"
    s = int(seconds)
    unit, smaller = next((units for limit, *units in _AGE_PRECISIONS if s < limit), ("y", ""))
    whole, rest = divmod(s, _AGE_UNITS_S[unit])
    rest = rest // _AGE_UNITS_S[smaller] if smaller else 0
    return f"{whole}{unit}{rest}{smaller}" if rest else f"{whole}{unit}"
