"""Cron schedules as CronJobs write them: five fields, `@hourly` and similar, `@every 1h30m`. Pure.

The fields are minute, hour, day of month, month and day of week. A field is `*` or `?` for any value, a list, a
range, a step, or the name of a month or day. When both day fields are restricted, a match of either is enough.
A time that a clock change skips does not occur; a time that it repeats occurs twice. Format and errors are
those of robfig/cron v3, the library of upstream's controller.
Source: upstream `pkg/controller/cronjob/utils.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from services.api.times import Day, Duration, Zone, day_at, day_of, moments, zone_of

YEARS_MAX = 5
"""Years that the search for a next time covers; a schedule without a time in them never runs."""
DAY_S = 86400
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_NO_NAMES: dict[str, int] = {}
_FIELDS = ((0, 59, _NO_NAMES), (0, 23, _NO_NAMES), (1, 31, _NO_NAMES), (1, 12, _MONTHS), (0, 6, _DAYS))
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True)
class Schedule:
    """Times of a cron schedule, in one time zone. `every_s`: interval in seconds, used instead of the fields."""

    zone: Zone
    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    is_any_day: bool = False
    """Whether day of month or day of week is `*`. If so, both fields must match; otherwise one match is enough."""
    every_s: float = 0.0

    def next_after(self, wall_s: float) -> float | None:
        """Return the first scheduled time after `wall_s`, in epoch seconds; None if there is none within five years."""
        if self.every_s:
            return int(wall_s) + self.every_s
        earliest_s = int(wall_s) + 1
        day = day_at(earliest_s, self.zone)
        year_max = day.year + YEARS_MAX
        while day.year <= year_max:
            if self._is_on(day):
                times = (at_s for at_s in self._on(day) if at_s >= earliest_s)
                if (at_s := next(times, None)) is not None:
                    return at_s
            day = day_of(day.number + 1)
        return None

    def _on(self, day: Day) -> Iterable[float]:
        """Return the times of a day in order."""
        start, end = (moments(number, 0, 0, self.zone) for number in (day.number, day.number + 1))
        if len(start) == len(end) == 1 and end[0] - start[0] == DAY_S:
            return (start[0] + 3600 * hour + 60 * minute for hour in self.hours for minute in self.minutes)
        # The clocks are changed: some times do not come, some come twice.
        shown = ((hour, minute) for hour in self.hours for minute in self.minutes)
        return sorted(at_s for time in shown for at_s in moments(day.number, *time, self.zone))

    def _is_on(self, day: Day) -> bool:
        is_day, is_weekday = day.day in self.days, day.weekday in self.weekdays
        return day.month in self.months and (is_day and is_weekday if self.is_any_day else is_day or is_weekday)


@lru_cache(maxsize=1024)
def parse(text: str, zone_name: str = "") -> Schedule:
    """Parse the schedule. `zone_name`: an IANA time zone, unless the text begins with `TZ=` or `CRON_TZ=`.

    Raises: ValueError saying what is wrong.
    """
    if not text:
        raise ValueError("empty spec string")
    zone = zone_of(zone_name)
    if text.startswith(("TZ=", "CRON_TZ=")):
        name, _, rest = text.partition("=")[2].partition(" ")
        try:
            zone = zone_of(name)
        except ValueError as error:
            raise ValueError(f"provided bad location {name}: {error}") from None
        text = rest.strip()
    if text.startswith("@every "):
        return Schedule(zone, every_s=_every(text.removeprefix("@every ")))
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ValueError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    parsed = [_field(field, *bounds) for field, bounds in zip(fields, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = (values for values, _ in parsed)
    is_any_day = parsed[2][1] or parsed[4][1]
    return Schedule(zone, tuple(sorted(minutes)), tuple(sorted(hours)), days, months, weekdays, is_any_day)


def _every(text: str) -> float:
    try:
        return max(1.0, float(int(Duration.parse(text))))
    except ValueError:
        raise ValueError(f'failed to parse duration @every {text}: time: invalid duration "{text}"') from None


def _field(text: str, low: int, high: int, names: dict[str, int]) -> tuple[frozenset[int], bool]:
    """Return the values of a field, and whether it says `*`."""
    numbers, is_any = set[int](), False
    for part in filter(None, text.split(",")):
        values, is_star = _range(part, low, high, names)
        numbers.update(values)
        is_any = is_any or is_star
    return frozenset(numbers), is_any


def _range(text: str, low: int, high: int, names: dict[str, int]) -> tuple[range, bool]:
    spanned, *steps = text.split("/")
    first, *last = spanned.split("-")
    is_any = first in ("*", "?")
    if is_any:
        start, end = low, high
    else:
        if len(last) > 1:
            raise ValueError(f"too many hyphens: {text}")
        start = _value(first, names)
        end = _value(last[0], names) if last else start
    step = 1
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {text}")
    if steps:
        step = _value(steps[0], _NO_NAMES)
        end = end if last else high
        is_any = is_any and step <= 1
    if start < low:
        raise ValueError(f"beginning of range ({start}) below minimum ({low}): {text}")
    if end > high:
        raise ValueError(f"end of range ({end}) above maximum ({high}): {text}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {text}")
    return range(start, end + 1, step), is_any


def _value(text: str, names: dict[str, int]) -> int:
    if (named := names.get(text.lower())) is not None:
        return named
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if (number := int(text)) < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number
