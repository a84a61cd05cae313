"""The dispatcher's call queue: merging, skipping, delays, and what waits behind a running call (KEP-5229, 5501)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.dispatcher.call_queue import CallQueue, Ending
from scheduler.dispatcher.calls import NOT_READY, UNSCHEDULABLE, ClearCondition, PodBinding, SetCondition, status_patch
from services.api.meta import Condition, Key
from services.reconcile.workqueue import TokenBucket

WALL_S = 1_700_000_000.0


@pytest.fixture
def queue():
    return CallQueue()


def saying(a, *conditions, nominated="", name="p", rv=1):
    """Return a pod whose status says so already."""
    pod = a.pod(name, rv=rv, nominated=nominated)
    shown = tuple(Condition(type="PodScheduled", status="False", reason=r, message=m) for r, m in conditions)
    return replace(pod, status=replace(pod.status, conditions=shown))


def fails(pod, message, **more):
    return status_patch(pod, SetCondition(UNSCHEDULABLE, message), **more)


def gated(pod, message):
    return status_patch(pod, SetCondition(NOT_READY, message), event=(NOT_READY, message))


def bind(pod):
    return PodBinding(key=pod.metadata.key, uid=pod.metadata.uid, node="n1")


def ending_of(added):
    call_id, ended = added
    return ended[call_id]


def messages(started):
    document = started.call.document(WALL_S)
    return [c["message"] for c in document["status"]["conditions"]] if document else []


def test_dispatcher_01_a_second_failure_waits_behind_the_first_patch_under_way(queue, a):
    pod = saying(a)
    queue.add(fails(pod, "m1"), 0.0)
    first = queue.pop(0.0)
    queue.add(fails(pod, "m2"), 0.2)
    assert queue.pop(0.3) is None

    queue.finalize(first, 0.5, is_done=True, rv=2)
    second = queue.pop(0.5)

    assert [messages(first), messages(second)] == [["m1"], ["m2"]]


def test_dispatcher_01_a_second_failure_takes_the_place_of_a_patch_not_yet_begun(queue, a):
    pod = saying(a)
    queue.add(fails(saying(a, name="other"), "m0"), 0.0)
    first, _ = queue.add(fails(pod, "m1"), 0.0)
    _, ended = queue.add(fails(pod, "m2"), 0.2)

    assert ended == {first: Ending.OVERWRITTEN}
    assert [messages(queue.pop(1.0)), messages(queue.pop(1.0)), queue.pop(1.0)] == [["m0"], ["m2"], None]


def test_dispatcher_02_the_same_failure_again_is_skipped(queue, a):
    call_id, ended = queue.add(fails(saying(a, (UNSCHEDULABLE, "m")), "m"), 0.0)

    assert ended == {call_id: Ending.SKIPPED}
    assert queue.pending == {"pod_status_patch": 0, "pod_binding": 0}
    assert queue.pop(0.0) is None


def test_dispatcher_02_a_change_back_while_the_change_is_under_way_is_still_made(queue, a):
    pod = saying(a, (UNSCHEDULABLE, "m0"))
    queue.add(fails(pod, "m1"), 0.0)
    running = queue.pop(0.0)
    back, ended = queue.add(fails(pod, "m0"), 0.1)
    assert back not in ended

    queue.finalize(running, 0.5, is_done=True, rv=2)

    assert messages(queue.pop(0.5)) == ["m0"]


def test_dispatcher_03_a_bind_overwrites_the_patch_that_waits(queue, a):
    pod = saying(a)
    patch, _ = queue.add(fails(pod, "m"), 0.0)
    assert queue.pending["pod_status_patch"] == 1

    _, ended = queue.add(bind(pod), 0.1)

    assert ended == {patch: Ending.OVERWRITTEN}
    assert queue.pending == {"pod_status_patch": 0, "pod_binding": 1}
    assert queue.pop(0.2).call.call_type == "pod_binding"
    assert queue.pop(0.2) is None


@pytest.mark.parametrize("is_running", [False, True], ids=["waiting", "running"])
def test_dispatcher_04_a_patch_after_a_bind_is_skipped(queue, a, is_running):
    pod = saying(a)
    queue.add(bind(pod), 0.0)
    if is_running:
        queue.pop(0.0)

    assert ending_of(queue.add(fails(pod, "m"), 0.1)) is Ending.SKIPPED


def test_what_clears_a_report_waits_behind_the_bind_under_way(queue, a):
    pod = saying(a, (NOT_READY, "m"))
    queue.add(bind(pod), 0.0)
    started = queue.pop(0.0)

    queue.add(status_patch(pod, ClearCondition(), is_report=True), 0.1)

    assert queue.pop(0.1) is None
    queue.finalize(started, 0.2, is_done=True, rv=2)
    assert "pod_status_patch" == queue.pop(0.2).call.call_type


def test_dispatcher_05_a_bind_waits_for_the_patch_under_way(queue, a):
    pod = saying(a)
    queue.add(fails(pod, "m"), 0.0)
    patch = queue.pop(0.0)
    bound, ended = queue.add(bind(pod), 0.1)
    assert ended == {}
    assert queue.pop(0.5) is None

    ended = queue.finalize(patch, 1.0, is_done=True, rv=2)

    assert ended == {patch.call_id: Ending.DONE}
    assert queue.pop(1.0).call_id == bound


def test_dispatcher_06_a_nomination_survives_a_later_failure(queue, a):
    pod = saying(a)
    queue.add(fails(pod, "old", nomination="n1"), 0.0)
    queue.add(fails(pod, "new"), 0.1)

    sent = queue.pop(0.2).call.document(WALL_S)

    assert sent["status"]["nominatedNodeName"] == "n1"
    assert [c["message"] for c in sent["status"]["conditions"]] == ["new"]


def test_dispatcher_07_a_nomination_is_cleared_once(queue, a):
    nominated = saying(a, (UNSCHEDULABLE, "m"), nominated="n1")
    queue.add(fails(nominated, "m", nomination=""), 0.0)
    assert queue.pop(0.0).call.document(WALL_S) == {"status": {"nominatedNodeName": None}}

    empty = saying(a, (UNSCHEDULABLE, "m"), name="q")
    assert ending_of(queue.add(fails(empty, "m", nomination=""), 0.0)) is Ending.SKIPPED


def test_dispatcher_08_a_patch_that_another_client_made_needless_is_dropped(queue, a):
    call_id, _ = queue.add(fails(saying(a), "m"), 0.0)

    ended = queue.sync(saying(a, (UNSCHEDULABLE, "m"), rv=2))

    assert ended == {call_id: Ending.SKIPPED}
    assert queue.pop(1.0) is None


def test_a_status_older_than_our_own_write_changes_nothing(queue, a):
    pod = saying(a, rv=5)
    queue.add(gated(pod, "A"), 0.0)
    running = queue.pop(0.0)
    queue.add(status_patch(pod, ClearCondition()), 0.1)
    queue.finalize(running, 0.2, is_done=True, rv=9)

    assert queue.sync(saying(a, rv=7)) == {}
    assert queue.pop(0.3).call.document(WALL_S) == {
        "status": {"conditions": [{"$patch": "delete", "type": "PodScheduled"}]}
    }


def test_dispatcher_10_objects_are_independent_and_come_in_order(queue, a):
    for i in range(1000):
        queue.add(fails(saying(a, name=f"p{i}"), "m"), 0.0)

    assert queue.pending["pod_status_patch"] == 1000
    assert [queue.pop(0.0).call.key for _ in range(1000)] == [Key("default", f"p{i}") for i in range(1000)]


def test_dispatcher_14_closing_fails_every_waiting_caller(queue, a):
    ids = [queue.add(fails(saying(a, name=f"p{i}"), "m"), 0.0)[0] for i in range(10)]
    queue.pop(0.0)

    ended = queue.close()

    assert ended == dict.fromkeys(ids, Ending.CLOSED)
    assert queue.pop(0.0) is None
    assert ending_of(queue.add(fails(saying(a), "m"), 0.0)) is Ending.CLOSED


def test_dispatcher_15_the_gauge_of_waiting_calls_returns_to_zero(queue, a):
    pod = saying(a)
    queue.add(fails(pod, "m1"), 0.0)
    queue.add(fails(pod, "m2"), 0.0)
    running = queue.pop(0.0)
    queue.add(bind(pod), 0.1)
    queue.finalize(running, 0.2, is_done=False)
    assert queue.pending == {"pod_status_patch": 0, "pod_binding": 1}

    queue.finalize(queue.pop(0.2), 0.3, is_done=True)

    assert queue.pending == {"pod_status_patch": 0, "pod_binding": 0}
    assert queue.pop(0.3) is None


# -- delayed calls (kep-5501 4.1) --------------------------------------------------------------------------


def test_a_delayed_call_is_due_after_its_delay(queue, a):
    queue.add(gated(saying(a), "A"), 10.0, delay_s=5.0)

    assert queue.next_due(10.0) == 15.0
    assert queue.pop(14.9) is None
    assert messages(queue.pop(15.0)) == ["A"]


def test_preenqueue_03_a_newer_delayed_message_does_not_move_the_time(queue, a):
    pod = saying(a)
    queue.add(gated(pod, "A"), 0.0, delay_s=5.0)
    queue.add(gated(pod, "B"), 4.0, delay_s=5.0)

    assert queue.next_due(4.0) == 5.0
    sent = queue.pop(5.0)
    assert messages(sent) == ["B"]
    assert sent.call.event == (NOT_READY, "B")


def test_a_delayed_clear_undoes_a_set_that_was_never_sent(queue, a):
    pod = saying(a)
    queue.add(gated(pod, "A"), 0.0, delay_s=5.0)

    call_id, ended = queue.add(status_patch(pod, ClearCondition()), 3.0, delay_s=5.0)

    assert ended[call_id] is Ending.SKIPPED
    assert queue.next_due(3.0) is None
    assert queue.pending["pod_status_patch"] == 0


def test_preenqueue_07_setting_what_is_about_to_be_cleared_sends_nothing(queue, a):
    pod = saying(a, (NOT_READY, "A"))
    queue.add(status_patch(pod, ClearCondition()), 30.0, delay_s=5.0)

    assert ending_of(queue.add(gated(pod, "A"), 32.0, delay_s=5.0)) is Ending.SKIPPED
    assert queue.pop(40.0) is None


def test_a_failed_attempt_makes_the_delayed_call_due_at_once_in_its_own_words(queue, a):
    pod = saying(a)
    queue.add(gated(pod, "A"), 0.0, delay_s=5.0)
    queue.add(fails(pod, "0/1 nodes"), 1.0)

    sent = queue.pop(1.0)

    assert messages(sent) == ["0/1 nodes"]
    assert sent.call.event is None
    assert queue.pop(9.0) is None


def test_preenqueue_08_a_bind_drops_the_delayed_call(queue, a):
    pod = saying(a)
    queue.add(gated(pod, "A"), 0.0, delay_s=5.0)
    queue.add(bind(pod), 3.0)

    assert queue.pop(3.0).call.call_type == "pod_binding"
    assert queue.pop(9.0) is None


def test_a_delayed_call_behind_a_running_one_keeps_its_own_delay(queue, a):
    pod = saying(a)
    queue.add(fails(pod, "m"), 0.0)
    running = queue.pop(0.0)
    queue.add(gated(pod, "A"), 1.0, delay_s=5.0)
    queue.finalize(running, 2.0, is_done=True, rv=2)

    assert queue.next_due(2.0) == 6.0


def test_only_a_condition_of_our_own_reason_is_cleared(queue, a):
    pod = saying(a, (UNSCHEDULABLE, "0/3 nodes"))

    assert ending_of(queue.add(status_patch(pod, ClearCondition()), 0.0)) is Ending.SKIPPED


def test_a_call_is_a_child_of_the_latest_decision_and_remembers_those_merged_into_it(queue, a):
    pod = saying(a)
    queue.add(fails(pod, "m1", traceparent="one"), 0.0)
    queue.add(fails(pod, "m2", traceparent="two"), 0.0)

    assert queue.pop(0.0).call.causes == ("two", "one")


def report(pod, message="m"):
    return status_patch(pod, SetCondition(NOT_READY, message), is_report=True)


def started(queue, now):
    """Return the names of what is due, all of it begun and ended at that time."""
    found = []
    while (each := queue.pop(now)) is not None:
        found.append(each.call.key.name)
        queue.finalize(each, now, is_done=True)
    return found


def test_reports_with_a_rate_limit_of_their_own_do_not_delay_other_calls(a):
    queue = CallQueue(TokenBucket(1.0, 1.0))
    for name in ("p1", "p2", "p3"):
        queue.add(report(saying(a, name=name)), 0.0, delay_s=5.0)
    queue.add(fails(saying(a, name="other"), "0/1"), 5.0)
    queue.add(bind(saying(a, name="ready")), 5.0)

    assert sorted(started(queue, 5.0)) == ["other", "p1", "ready"]
    assert queue.next_due(5.0) == 6.0
    assert [started(queue, 6.0), started(queue, 6.5), started(queue, 7.0)] == [["p2"], [], ["p3"]]


def test_a_failed_attempt_does_not_wait_for_the_token_of_the_report_it_replaces(a):
    queue = CallQueue(TokenBucket(1.0, 1.0))
    queue.add(report(saying(a, name="p1")), 0.0)
    queue.add(report(saying(a, name="p2")), 0.0)
    assert started(queue, 0.0) == ["p1"]

    queue.add(fails(saying(a, name="p2"), "0/1"), 0.1)

    assert started(queue, 0.1) == ["p2"]


def test_new_words_do_not_cost_a_report_its_turn(a):
    queue = CallQueue(TokenBucket(1.0, 1.0))
    for name in ("p1", "p2", "p3"):
        queue.add(report(saying(a, name=name)), 0.0)
    started(queue, 0.0)

    queue.add(report(saying(a, name="p2"), "other words"), 0.5)

    assert [started(queue, 1.0), started(queue, 2.0)] == [["p2"], ["p3"]]
