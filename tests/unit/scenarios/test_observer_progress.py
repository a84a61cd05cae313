"""What a run says of its own observer: how far it saw, how late, and whether its figures are the store's (I33)."""

import pytest

from lab.scenarios.measures.history import History, PodHistory
from lab.scenarios.observer_progress import Ending, ObserverProgress, PodCommits
from services.telemetry.eventlog import Line


def line(rv, uid="a", kind="ADDED", phase="Pending", at_s=None, ev="store.commit", of="Pod", **data):
    obj = {"kind": of, "ns": "default", "name": f"pod-{uid}", "uid": uid}
    ns = int((rv if at_s is None else at_s) * 1e9)
    return Line(1, rv, ns, "", "apiserver", "i", ev, rv=rv, obj=obj, data={"type": kind, "phase": phase, **data})


def history(*pods):
    """Return one with these pods: (uid, failed at)."""
    found = History()
    found.pods = {uid: PodHistory(uid, uid, uid, False, 0.0, failed_s=failed_s) for uid, failed_s in pods}
    return found


def commits(*lines):
    found = PodCommits()
    for each in lines:
        found.take(each)
    return found


STORED = (line(1, "a"), line(2, "b"), line(3, "b", "MODIFIED", "Failed"), line(4, "c"), line(5, "x", of="Node"))


def test_figures_that_are_the_stores_are_silent():
    assert [] == commits(*STORED).disagreements(history(("a", None), ("b", 3.0), ("c", None)), 5)


def test_a_pod_that_was_not_seen_is_named_with_both_figures():
    (text,) = commits(*STORED).disagreements(history(("a", None), ("b", 3.0)), 5)

    assert "pods created: the store committed 3, the observer saw 2 of them; it missed default/pod-c" == text


def test_a_failure_that_was_not_seen_is_named_too():
    (text,) = commits(*STORED).disagreements(history(("a", None), ("b", None), ("c", None)), 5)

    assert "pods failed: the store committed 1, the observer saw 0 of them; it missed default/pod-b" == text


def test_what_was_committed_after_the_version_that_was_seen_does_not_count():
    assert [] == commits(*STORED).disagreements(history(("a", None), ("b", None)), 2)


def test_of_many_three_are_named():
    lines = [line(rv, f"p{rv}") for rv in range(1, 6)]

    (text,) = commits(*lines).disagreements(history(), 9)

    assert text.endswith("it missed default/pod-p1, default/pod-p2, default/pod-p3, …")


def test_commits_whose_lines_were_lost_in_a_crash_count_from_the_replay():
    stored = commits(line(1, "a", replayed=True), line(2, "a", "MODIFIED", "Failed", replayed=True))

    assert 2 == len(stored.disagreements(history(), 2))


def test_a_store_that_forgets_is_not_held_against_what_was_seen_before():
    stored = PodCommits(is_volatile=True)
    for rv in (0, 9):
        assert "" == stored.why_not
        stored.take(line(rv, ev="store.recovered"))

    assert "the store began anew when the API server was restarted" == stored.why_not


def test_behind_is_the_longest_time_from_a_commit_to_its_sight():
    stored = commits(line(1, at_s=5.0), line(2, "b", at_s=11.0), line(3, "c", at_s=12.0))

    assert 2.5 == stored.behind_s({1: 9.0, 2: 1.25, 3: 4.5, 4: 99.0}, started_s=10.0)


@pytest.mark.parametrize(
    ("seen", "notes"),
    [
        (ObserverProgress(9, 9, 0.5), []),
        (ObserverProgress(2368, 4888), ["seen until version 2368 of 4888"]),
        (ObserverProgress(9, None), ["seen until version 9; the API server did not say its own when the run ended"]),
        (ObserverProgress(9, 9, 0.61), ["what was seen was up to 0.6 s behind the store: times are as late as that"]),
        (ObserverProgress(9, 9, 0.0, ("pods: listed",), ("line 3: late",)), ["pods: listed", "line 3: late"]),
    ],
)
def test_a_run_says_what_its_reader_has_to_know_and_nothing_else(seen, notes):
    assert notes == seen.notes
    assert notes == seen.document()["notes"]


def test_a_run_ends_at_one_moment_for_commits_and_for_other_lines():
    ending = Ending()
    before = line(5, at_s=7.0), line(6, at_s=7.5, ev="sched.attempt")
    after = line(8, at_s=7.0), line(9, at_s=8.5, ev="sched.attempt")
    assert all(map(ending.includes, (*before, *after)))

    ending.version, ending.at_s = 7, 8.0

    assert [True, True, False, False] == [ending.includes(each) for each in (*before, *after)]
