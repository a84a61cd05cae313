"""How long a pod's status was missing or stale, against what the scheduler thought (KEP-5501 7)."""

from __future__ import annotations

import pytest

from services.scenarios.measures.scheduling_results import NOTHING, Told, Verdict, Verdicts, is_missing, is_stale
from services.telemetry.eventlog import Line

STARTED_S = 100.0
ABSENT = Told()


def line(ev, at_s, **data):
    return Line(1, 1, int((STARTED_S + at_s) * 1e9), "", "scheduler", "1", ev,
                obj={"kind": "Pod", "ns": "default", "name": "p", "uid": "u"}, data=data)  # fmt: skip


def rejected(at_s, message, plugin="Dra", **more):
    return line("sched.gated", at_s, plugin=plugin, message=message, **more)


def of(*lines):
    verdicts = Verdicts()
    for each in lines:
        verdicts.take(each)
    return verdicts


def test_until_it_is_told_a_rejection_is_missing():
    verdicts = of(rejected(0, "A"))

    assert verdicts.untold_s("u", [(5.0, Told("NotReadyForScheduling", "A"))], STARTED_S, 60.0) == (5.0, 0.0)


def test_old_words_are_stale_until_the_new_ones_are_told():
    told = [(0.0, Told("NotReadyForScheduling", "A")), (25.0, Told("NotReadyForScheduling", "B"))]

    assert of(rejected(0, "A"), rejected(20, "B")).untold_s("u", told, STARTED_S, 60.0) == (0.0, 5.0)


def test_a_rejection_that_ended_is_stale_until_it_is_cleared_or_the_pod_is_bound():
    verdicts = of(rejected(0, "A"), line("sched.ungated", 30))
    told = [(0.0, Told("NotReadyForScheduling", "A"))]

    assert verdicts.untold_s("u", [*told, (35.0, ABSENT)], STARTED_S, 60.0) == (0.0, 5.0)
    assert verdicts.untold_s("u", told, STARTED_S, 32.0) == (0.0, 2.0)


def test_a_failed_attempt_counts_until_the_next():
    verdicts = of(line("sched.attempt", 0, outcome="unschedulable", message="0/1"), line("sched.ungated", 10))

    assert verdicts.untold_s("u", [(1.0, Told("Unschedulable", "0/1"))], STARTED_S, 20.0) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("verdict", "told", "missing", "stale"),
    [
        (NOTHING, ABSENT, False, False),
        (NOTHING, Told("Unschedulable", "0/1"), False, False),
        (NOTHING, Told("NotReadyForScheduling", "A"), False, True),
        (Verdict("Dra", "A"), ABSENT, True, False),
        (Verdict("Dra", "A", "for users"), Told("NotReadyForScheduling", "for users"), False, False),
        (Verdict("Dra", "A"), Told("NotReadyForScheduling", "blocked on PreEnqueue by plugin: Dra"), False, False),
        (Verdict("Dra", "A"), Told("Unschedulable", "0/1"), False, True),
        (Verdict("SchedulingGates", "waiting"), Told("SchedulingGated", "blocked"), False, False),
        (Verdict("Dra", "A"), Told("SchedulingGated", "blocked"), False, True),
    ],
)
def test_what_is_told_is_held_against_what_is_so(verdict, told, missing, stale):
    assert (is_missing(verdict, told), is_stale(verdict, told)) == (missing, stale)


def test_only_the_schedulers_status_writes_count_as_patches():
    commit = {"verb": "patch", "subresource": "status"}
    of_scheduler = Line(1, 1, 0, "", "apiserver", "1", "store.commit", identity="system:kube-scheduler",
                        obj={"kind": "Pod", "ns": "d", "name": "p", "uid": "u"}, data=commit)  # fmt: skip
    of_kubelet = Line(1, 1, 0, "", "apiserver", "1", "store.commit", identity="system:node:n1",
                      obj={"kind": "Pod", "ns": "d", "name": "p", "uid": "u"}, data=commit)  # fmt: skip

    assert of(of_scheduler, of_kubelet, of_scheduler).patches_by_uid == {"u": 2}
