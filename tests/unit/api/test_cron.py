"""Cron schedules: when they come next, in which zone, and what is said of those that cannot be read."""

import re
from zoneinfo import available_timezones

import pytest

from services.api.cron import parse
from services.api.times import format_time_in, parse_time, utc_offset, zone_of


def times(text, since, zone="", number=3):
    schedule, at_s, found = parse(text, zone), parse_time(since), []
    for _ in range(number):
        at_s = schedule.next_after(at_s)
        found.append(format_time_in(at_s, zone_of(zone)).removesuffix(":00Z")[5:])
    return found


@pytest.mark.parametrize(
    ("text", "since", "found"),
    [
        ("* * * * *", "2026-01-01T00:00:30Z", ["01-01T00:01", "01-01T00:02", "01-01T00:03"]),
        ("*/20 * * * *", "2026-01-01T00:00:00Z", ["01-01T00:20", "01-01T00:40", "01-01T01:00"]),
        ("50/5 * * * *", "2026-01-01T00:00:00Z", ["01-01T00:50", "01-01T00:55", "01-01T01:50"]),
        ("30 6-16/4 * * 1-5", "2026-01-02T10:30:00Z", ["01-02T14:30", "01-05T06:30", "01-05T10:30"]),
        ("0 0 1,15 * fri", "2026-01-01T00:00:00Z", ["01-02T00:00", "01-09T00:00", "01-15T00:00"]),
        ("0 0 1 * ?", "2026-01-01T00:00:00Z", ["02-01T00:00", "03-01T00:00", "04-01T00:00"]),
        ("0 0 */2 * mon", "2026-01-01T00:00:00Z", ["01-03T00:00", "01-05T00:00", "01-07T00:00"]),
        ("0 12 29 FEB *", "2026-01-01T00:00:00Z", ["02-29T12:00", "02-29T12:00"]),
        ("@hourly", "2026-01-01T00:00:00Z", ["01-01T01:00", "01-01T02:00", "01-01T03:00"]),
        ("@weekly", "2026-01-01T00:00:00Z", ["01-04T00:00", "01-11T00:00", "01-18T00:00"]),
        ("@every 1h30m", "2026-01-01T00:10:00Z", ["01-01T01:40", "01-01T03:10", "01-01T04:40"]),
    ],
)
def test_a_schedule_comes_next_at(text, since, found):
    assert times(text, since, number=len(found)) == found


def test_a_day_that_does_not_exist_never_comes():
    assert parse("59 23 31 2 *").next_after(parse_time("2026-01-01T00:00:00Z")) is None


def test_a_schedule_follows_the_clocks_of_its_zone():
    assert times("0 9 * * *", "2026-03-28T00:00:00Z", "Europe/Berlin") == [
        "03-28T09:00:00+01:00", "03-29T09:00:00+02:00", "03-30T09:00:00+02:00"]  # fmt: skip
    assert times("TZ=America/New_York 0 9 * * *", "2026-01-01T00:00:00Z", number=1) == ["01-01T14:00"]


def test_a_time_that_the_clocks_skip_does_not_come_and_one_that_they_repeat_comes_twice():
    assert times("30 2 * * *", "2026-03-28T12:00:00Z", "Europe/Berlin", 1) == ["03-30T02:30:00+02:00"]
    assert times("30 2 * * *", "2026-10-24T12:00:00Z", "Europe/Berlin") == [
        "10-25T02:30:00+02:00", "10-25T02:30:00+01:00", "10-26T02:30:00+01:00"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty spec string"),
        ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
        ("@fortnightly", "unrecognized descriptor: @fortnightly"),
        ("@every soon", 'failed to parse duration @every soon: time: invalid duration "soon"'),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("9-5 * * * *", "beginning of range (9) beyond end of range (5): 9-5"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("CRON_TZ=Mars/Crater * * * * *", "provided bad location Mars/Crater: unknown time zone Mars/Crater"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_library(text, said):
    with pytest.raises(ValueError, match=re.escape(said) + "$"):
        parse(text)


def test_every_zone_that_there_is_is_found():
    assert len({zone_of(name).key for name in available_timezones()}) > 400


@pytest.mark.parametrize(
    "name", ["..", "/etc/passwd", "Europe//Berlin", "Europe/Berlin/", "America", "U/" * 9_000 + "TC", "\0"]
)
def test_a_name_that_no_zone_has_is_not_taken_for_a_place_of_files(name):
    with pytest.raises(ValueError, match="unknown time zone"):
        zone_of(name)
    with pytest.raises(ValueError, match="unknown"):
        utc_offset(name, 0)
