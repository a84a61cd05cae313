"""How long a pod's status was missing or stale, against what the scheduler thought (KEP-5501 7)."""

from __future__ import annotations

import pytest

from lab.scenarios.measures.scheduling_results import (
    NOTHING,
    Misreported,
    ReportedReason,
    SchedulingResult,
    SchedulingResults,
    is_missing,
    is_stale,
)
from services.telemetry.eventlog import Line

STARTED_S = 100.0
ABSENT = ReportedReason()


def line(ev, at_s, **data):
    return Line(1, 1, int((STARTED_S + at_s) * 1e9), "", "scheduler", "1", ev,
                obj={"kind": "Pod", "ns": "default", "name": "p", "uid": "u"}, data=data)  # fmt: skip


def rejected(at_s, message, plugin="Dra", **more):
    return line("sched.gated", at_s, plugin=plugin, message=message, **more)


def of(*lines):
    results = SchedulingResults()
    for each in lines:
        results.take(each)
    return results


def test_a_rejection_is_missing_until_the_status_reports_it():
    results = of(rejected(0, "A"))

    reported = [(5.0, ReportedReason("NotReadyForScheduling", "A"))]

    assert results.misreported_times("u", reported, STARTED_S, 60.0) == Misreported(missing=5.0, seen_s=5.0)


def test_an_old_message_is_stale_until_the_new_one_is_reported():
    reported = [
        (0.0, ReportedReason("NotReadyForScheduling", "A")),
        (25.0, ReportedReason("NotReadyForScheduling", "B")),
    ]

    assert of(rejected(0, "A"), rejected(20, "B")).misreported_times("u", reported, STARTED_S, 60.0) == Misreported(
        stale=5.0, seen_s=0.0
    )


def test_a_rejection_that_ended_is_stale_until_it_is_cleared_or_the_pod_is_bound():
    results = of(rejected(0, "A"), line("sched.ungated", 30))
    reported = [(0.0, ReportedReason("NotReadyForScheduling", "A"))]

    assert results.misreported_times("u", [*reported, (35.0, ABSENT)], STARTED_S, 60.0).stale == 5.0
    assert results.misreported_times("u", reported, STARTED_S, 32.0).stale == 2.0


def test_a_failed_attempt_counts_until_the_next():
    results = of(line("sched.attempt", 0, outcome="unschedulable", message="0/1"), line("sched.ungated", 10))

    reported = [(1.0, ReportedReason("Unschedulable", "0/1"))]

    assert results.misreported_times("u", reported, STARTED_S, 20.0) == Misreported(missing=1.0)


def test_unschedulable_misleads_while_no_node_was_looked_at_and_is_stale_once_preenqueue_passes():
    results = of(rejected(0, "A"), line("sched.ungated", 30))
    reported = [(5.0, ReportedReason("Unschedulable", "A"))]

    assert results.misreported_times("u", reported, STARTED_S, 40.0) == Misreported(5.0, 10.0, 35.0, 5.0)


def test_what_the_group_says_is_a_reason_seen_but_not_on_the_pod():
    of_group = [(5.0, ReportedReason("NotReadyForScheduling", "A")), (30.0, ReportedReason("Unschedulable", "no fit"))]
    results = of(rejected(0, "A"), rejected(20, "B"))

    assert results.misreported_times("u", (), STARTED_S, 40.0, of_group) == Misreported(40.0, 10.0, 0.0, 5.0)


@pytest.mark.parametrize(
    ("result", "reported", "missing", "stale"),
    [
        (NOTHING, ABSENT, False, False),
        (NOTHING, ReportedReason("Unschedulable", "0/1"), False, False),
        (NOTHING, ReportedReason("NotReadyForScheduling", "A"), False, True),
        (SchedulingResult("Dra", "A"), ABSENT, True, False),
        (SchedulingResult("Dra", "A", "for users"), ReportedReason("NotReadyForScheduling", "for users"), False, False),
        (
            SchedulingResult("Dra", "A"),
            ReportedReason("NotReadyForScheduling", "blocked on PreEnqueue by plugin: Dra"),
            False,
            False,
        ),
        (SchedulingResult("Dra", "A"), ReportedReason("Unschedulable", "0/1"), False, True),
        (SchedulingResult("SchedulingGates", "waiting"), ReportedReason("SchedulingGated", "blocked"), False, False),
        (SchedulingResult("Dra", "A"), ReportedReason("SchedulingGated", "blocked"), False, True),
    ],
)
def test_what_the_status_reports_is_held_against_what_the_scheduler_found(result, reported, missing, stale):
    assert (is_missing(result, reported), is_stale(result, reported)) == (missing, stale)


def test_only_the_schedulers_status_writes_count_as_patches():
    commit = {"verb": "patch", "subresource": "status"}
    of_scheduler = Line(1, 1, 0, "", "apiserver", "1", "store.commit", identity="system:kube-scheduler",
                        obj={"kind": "Pod", "ns": "d", "name": "p", "uid": "u"}, data=commit)  # fmt: skip
    of_kubelet = Line(1, 1, 0, "", "apiserver", "1", "store.commit", identity="system:node:n1",
                      obj={"kind": "Pod", "ns": "d", "name": "p", "uid": "u"}, data=commit)  # fmt: skip

    assert of(of_scheduler, of_kubelet, of_scheduler).patches_by_uid == {"u": 2}
