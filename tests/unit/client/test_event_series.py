"""Events that differ in their text alone are one series (KEP-383; client-go tools/events)."""

import msgspec
import pytest

from services.api.kinds.event import RESOURCE
from services.api.meta import Key
from services.api.printing import cells
from services.client.event_series import FINISH_S, SeriesCorrelator
from services.reconcile.actions import RecordEvent, Related

REFUSED = RecordEvent("Pod", "v1", Key("ns", "p"), "u", "FailedScheduling", "0/1 nodes", "Warning", "Scheduling",
                      reporter="default-scheduler", resource_version="5")  # fmt: skip


def with_text(message: str, **other: object) -> RecordEvent:
    return msgspec.structs.replace(REFUSED, message=message, **other)


def test_the_second_makes_the_first_a_series_of_two_and_its_own_text_is_lost():
    correlator = SeriesCorrelator(0.0)

    _, first = correlator.observe(with_text("a"), "p.1", 0.0, 100.0)
    assert "series" not in first.fields("default-scheduler", "h")
    _, again = correlator.observe(with_text("b"), "p.2", 5.0, 105.0)

    assert (again is first, again.name, again.action.message) == (True, "p.1", "a")
    assert again.patch() == {"series": {"count": 2, "lastObservedTime": "1970-01-01T00:01:45.000000Z"}}


def test_an_event_says_who_by_controller_and_instance_and_has_neither_counts_nor_a_source():
    _, first = SeriesCorrelator(0.0).observe(REFUSED, "p.1", 0.0, 100.5)

    assert first.fields("default-scheduler", "h") == {
        "message": "0/1 nodes", "eventTime": "1970-01-01T00:01:40.500000Z", "source": {},
        "reportingComponent": "default-scheduler", "reportingInstance": "default-scheduler-h",
    }  # fmt: skip


@pytest.mark.parametrize("other", [
    {"resource_version": "6"}, {"type": "Normal"}, {"reason": "Preempted"}, {"action": "Preempting"},
    {"reporter": "second"}, {"uid": "v"}, {"related": Related("Pod", "v1", Key("ns", "q"), "w")},
], ids=lambda other: next(iter(other)))  # fmt: skip
def test_what_differs_in_more_than_its_text_is_another_object(other):
    correlator = SeriesCorrelator(0.0)
    correlator.observe(REFUSED, "p.1", 0.0, 0.0)

    _, second = correlator.observe(with_text("0/1 nodes", **other), "p.2", 1.0, 1.0)

    assert (second.name, second.count) == ("p.2", 1)


def test_from_the_third_on_they_are_counted_and_the_count_is_written_when_the_series_is_over():
    correlator = SeriesCorrelator(0.0)
    for at_s in (0.0, 10.0):
        assert correlator.observe(REFUSED, "p", at_s, at_s) is not None
    assert correlator.next_due_s is None
    assert [correlator.observe(REFUSED, "p", at_s, at_s) for at_s in (20.0, 30.0)] == [None, None]

    assert correlator.next_due_s == FINISH_S
    assert list(correlator.tick(FINISH_S)) == []  # the last came less than six minutes ago
    ((_, series),) = correlator.tick(2 * FINISH_S)

    assert series.patch()["series"] == {"count": 4, "lastObservedTime": "1970-01-01T00:00:30.000000Z"}
    assert correlator.next_due_s is None
    assert not correlator.knows(REFUSED)


def test_a_series_that_goes_on_is_written_every_thirty_minutes():
    correlator, written = SeriesCorrelator(0.0), []
    for minute in range(95):
        written += [(minute, series.count) for _, series in correlator.tick(minute * 60.0)]
        correlator.observe(REFUSED, "p", minute * 60.0, minute * 60.0)

    assert written == [(30, 30), (60, 60), (90, 90)]


def test_one_that_stays_alone_is_forgotten_after_six_minutes():
    correlator = SeriesCorrelator(0.0)
    correlator.observe(REFUSED, "p.1", 10.0, 10.0)

    assert list(correlator.tick(FINISH_S)) == []
    assert correlator.knows(REFUSED)
    assert list(correlator.tick(2 * FINISH_S)) == []
    _, later = correlator.observe(REFUSED, "p.2", 2 * FINISH_S, 0.0)

    assert (later.name, later.count) == ("p.2", 1)


@pytest.mark.parametrize(("found", "count"), [({}, 1), ({"count": 3}, 3), ({"count": 0, "series": {"count": 7}}, 7)])
def test_kubectl_shows_the_count_of_a_series(found, count):
    (column,) = (each for each in RESOURCE.columns if each.name == "Count")

    assert cells((column,), found, 0.0) == [count]
