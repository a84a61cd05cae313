"""Gated pods in the queue: which are asked again, when, and what is reported (scheduler-queue-and-cycles 2.1, 2.3)."""

from __future__ import annotations

import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.framework.events import ASSIGNED_POD_DELETE, NODE, NODE_ADD, Action, ClusterEvent, Hint, Registration
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.queue.scheduling_queue import Pool, SchedulingQueue


class Gates:
    """A queue whose PreEnqueue says what `says` says; remembers which pods were asked about and what was observed."""

    def __init__(self, hint=None, *, pop_from_backoff=True):
        self.says: Status = SUCCESS
        self.asked = []
        self.observed = []
        self.queue = SchedulingQueue(
            sort_key=lambda pod, timestamp: (timestamp,),
            pre_enqueue=self._ask,
            registrations_by_profile={
                "default-scheduler": {
                    "Gate": (Registration(ClusterEvent(NODE, Action.ADD), hint),),
                    "Other": (Registration(ASSIGNED_POD_DELETE),),
                }
            },
            pop_from_backoff=pop_from_backoff,
            on_gate=lambda queued, status, now: self.observed.append((status.message, now)),
        )

    def _ask(self, pod, first):
        self.asked.append((pod.key.name, first))
        return self.says


CLOSED = Status(unresolvable().code, ("closed",), "Gate")


@pytest.fixture
def pod(a):
    return PodInfo(a.pod("p"))


def test_every_rejection_is_observed_and_so_is_the_end_of_it(pod):
    gates = Gates()
    gates.says = CLOSED
    gates.queue.add(pod, 0.0)
    gates.queue.move_all(NODE_ADD, None, None, 1.0)
    gates.says = SUCCESS
    gates.queue.move_all(NODE_ADD, None, None, 2.0)

    assert gates.observed == [("closed", 0.0), ("closed", 1.0), ("", 2.0)]
    assert gates.asked[1:] == [("p", "Gate"), ("p", "Gate")]
    assert gates.queue.pools[Pool.ACTIVE] == 1


def test_an_event_of_the_plugin_that_rejected_before_does_not_have_the_gates_asked(pod):
    gates = Gates()
    gates.queue.add(pod, 0.0)
    queued = gates.queue.pop(0.0)
    gates.says = CLOSED
    gates.queue.activate([pod.key], 0.0)
    gates.queue.add_unschedulable(queued, 0.0, rejectors={"Other"})
    assert queued.rejectors == {"Other", "Gate"}
    asked = len(gates.asked)

    gates.queue.move_all(ASSIGNED_POD_DELETE, None, None, 5.0)

    assert len(gates.asked) == asked


def test_an_event_that_the_gates_own_hint_skips_does_not_have_it_asked(pod):
    gates = Gates(lambda pod, old, new: Hint.SKIP)
    gates.says = CLOSED
    gates.queue.add(pod, 0.0)
    gates.queue.move_all(NODE_ADD, None, None, 1.0)

    assert len(gates.asked) == 1


def test_a_gated_pod_without_events_has_its_gates_asked_after_five_minutes(pod):
    gates = Gates()
    gates.says = CLOSED
    gates.queue.add(pod, 0.0)
    gates.queue.flush(0.0)
    gates.queue.flush(290.0)
    assert len(gates.asked) == 1

    gates.queue.flush(330.0)

    assert len(gates.asked) == 2


def test_activation_asks_the_gates_of_a_rejected_pod_but_not_of_one_in_back_off(pod):
    gates = Gates()
    gates.queue.add(pod, 0.0)
    queued = gates.queue.pop(0.0)
    gates.queue.add_unschedulable(queued, 0.0)  # an error: it waits out its back-off
    assert queued.pool is Pool.ERROR_BACKOFF
    asked = len(gates.asked)

    gates.queue.activate([pod.key], 0.1)

    assert queued.pool is Pool.ACTIVE
    assert len(gates.asked) == asked
    gates.queue.add_unschedulable(gates.queue.pop(0.1), 0.1, rejectors={"Other"})
    gates.says = CLOSED
    gates.queue.activate([pod.key], 0.2)
    assert queued.pool is Pool.GATED


def test_activation_does_not_shorten_the_wait_after_an_unbind(pod):
    gates = Gates()
    queued = gates.queue.add_after(pod, 0.0, 7.0, NODE_ADD)

    gates.queue.activate([pod.key], 1.0)

    assert queued.pool is Pool.ERROR_BACKOFF


def test_an_activation_during_the_attempt_is_not_missed(pod):
    gates = Gates()
    gates.queue.add(pod, 0.0)
    queued = gates.queue.pop(0.0)
    gates.queue.activate([pod.key], 0.1)

    gates.queue.add_unschedulable(queued, 5.0, rejectors={"Other"})

    assert queued.pool is not Pool.UNSCHEDULABLE


def test_an_activation_of_another_pod_during_the_attempt_is_not_ours(pod, a):
    gates = Gates()
    gates.queue.add(pod, 0.0)
    gates.queue.add(PodInfo(a.pod("q")), 0.1)
    queued, other = gates.queue.pop(0.2), gates.queue.pop(0.2)
    gates.queue.activate([other.key], 0.3)

    gates.queue.add_unschedulable(queued, 5.0, rejectors={"Other"})

    assert queued.pool is Pool.UNSCHEDULABLE


def test_the_first_attempt_counts_from_when_the_pod_was_first_ready(pod):
    gates = Gates()
    gates.says = CLOSED
    gates.queue.add(pod, 0.0)
    gates.says = SUCCESS
    gates.queue.move_all(NODE_ADD, None, None, 60.0)

    assert gates.queue.pop(61.0).initial_attempt == 60.0


def test_a_rejected_pod_counts_for_its_plugin_until_it_is_tried_again(pod):
    gates = Gates()
    gates.queue.add(pod, 0.0)
    gates.queue.add_unschedulable(gates.queue.pop(0.0), 0.0, rejectors={"Other"})
    gates.queue.move_all(ASSIGNED_POD_DELETE, None, None, 0.1)
    assert gates.queue.pools[Pool.BACKOFF] == 1
    assert gates.queue.unschedulable_plugins() == {"Other": 1}

    gates.queue.pop(0.2)

    assert gates.queue.unschedulable_plugins() == {}
