import msgspec

from services.api.meta import Key
from services.client import recorder
from services.client.recorder import COMBINED, Correlator
from services.reconcile.actions import RecordEvent


def said(message: str, reason: str = "FailedCreate", pod: str = "web") -> RecordEvent:
    return RecordEvent("Pod", "v1", Key("default", pod), "u-" + pod, reason, message)


def test_the_same_event_again_raises_the_count_of_the_first():
    correlator = Correlator()

    _, first = correlator.observe(said("no"), "web.1", 0.0, 100.0)
    _, again = correlator.observe(said("no"), "web.2", 5.0, 105.0)

    assert again is first
    assert (again.count, again.name, again.first_s, again.last_s) == (2, "web.1", 100.0, 105.0)


def test_similar_messages_are_combined_into_one_event_from_the_tenth_on():
    correlator = Correlator()

    seen = [correlator.observe(said(f"no {i}"), f"web.{i}", float(i), 0.0) for i in range(13)]

    assert [r.message for _, r in seen[:9]] == [f"no {i}" for i in range(9)]
    combined = {r.name for _, r in seen[9:]}
    assert combined == {"web.9"}
    assert seen[12][1].message == COMBINED + "no 12"
    assert seen[12][1].count == 4


def test_similar_messages_are_combined_until_there_is_none_for_ten_minutes():
    correlator = Correlator()
    at_s = [float(i) for i in range(10)] + [500.0, 1000.0, 1601.0]

    seen = [correlator.observe(said(f"no {i}"), f"web.{i}", t, 0.0) for i, t in enumerate(at_s)]

    assert [r.message.startswith(COMBINED) for _, r in seen[9:12]] == [True] * 3
    assert seen[12][1].message == "no 12"


def test_similar_messages_of_different_objects_are_not_combined():
    correlator = Correlator()

    seen = [correlator.observe(said("no", pod=f"p{i}"), f"p{i}.x", 0.0, 0.0) for i in range(15)]

    assert {r.message for _, r in seen} == {"no"}
    assert len({r.name for _, r in seen}) == 15


def test_one_object_has_a_burst_of_25_then_one_event_in_five_minutes():
    correlator = Correlator()

    passed = [correlator.observe(said("no"), "n", 0.0, 0.0) is not None for _ in range(40)]
    assert passed == [True] * 25 + [False] * 15

    assert correlator.observe(said("no"), "n", 299.0, 0.0) is None
    _, later = correlator.observe(said("no"), "n", 301.0, 0.0)
    assert later.count == 42  # what was limited still counts


def test_events_of_two_containers_are_two_objects_though_their_texts_are_the_same():
    correlator = Correlator()
    started = RecordEvent(
        "Pod", "v1", Key("ns", "p"), "u", "Started", "Container started", field_path="spec.containers{a}"
    )
    other = msgspec.structs.replace(started, field_path="spec.containers{b}")

    first, second, again = (correlator.observe(each, "n", 0.0, 0.0) for each in (started, other, started))
    assert first[0] != second[0]
    assert (again[0], again[1].count) == (first[0], 2)


def test_what_was_not_used_for_longest_is_forgotten_first(monkeypatch):
    """An object of which something is recorded again stays, as in upstream's caches, whose reads count as uses."""
    monkeypatch.setattr(recorder, "MEMORY_MAX", 2)
    correlator = Correlator()
    for at_s, pod in enumerate(["a", "b", "a", "c"]):
        correlator.observe(said("no", pod=pod), f"{pod}.{at_s}", float(at_s), 0.0)

    _, again = correlator.observe(said("no", pod="a"), "a.9", 9.0, 0.0)
    _, anew = correlator.observe(said("no", pod="b"), "b.9", 9.0, 0.0)

    assert (3, 1) == (again.count, anew.count)


def test_groups_are_forgotten_when_nothing_came_to_them_for_ten_minutes():
    """Pods come and go on a node: what a group would combine is over, and the next of them begins one anew."""
    correlator = Correlator()
    for number in range(50):
        correlator.observe(said("no", pod=f"p{number}"), "n", 10.0 * number, 0.0)

    correlator.observe(said("no", pod="last"), "n", 801.0, 0.0)

    assert [correlator.knows(said("no", pod=f"p{number}")) for number in (20, 21, 49)] == [False, True, True]


def test_the_limit_of_an_object_is_forgotten_once_it_has_all_its_events_again_and_not_before():
    """A burst of 25 is there again after 25 times five minutes."""
    correlator = Correlator()
    for number in range(25):
        correlator.observe(said(f"no {number}"), "n", 0.0, 0.0)

    for at_s, taken in ((299.0, False), (300.0, True), (301.0, False)):
        correlator.observe(said("else", pod="other"), "n", at_s, 0.0)
        assert taken == (correlator.observe(said("again"), "n", at_s, 0.0) is not None)
    correlator.observe(said("else", pod="other"), "n", 25 * 300.0 + 302.0, 0.0)
    assert all(correlator.observe(said(f"new {n}"), "n", 25 * 300.0 + 303.0, 0.0) for n in range(25))
