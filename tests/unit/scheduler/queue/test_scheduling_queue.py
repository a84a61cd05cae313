"""The queue: back-off series, hints, in-flight events, gates, leftovers (scheduler-queue-and-cycles 2)."""

from __future__ import annotations

from scheduler.cache.node_info import PodInfo
from scheduler.framework.events import ASSIGNED_POD_DELETE, NODE, NODE_ADD, Action, ClusterEvent
from scheduler.queue.scheduling_queue import Pool
from services.api.kinds.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingGate,
)


def _attempts_while_pods_leave(cluster, a, *, until_s, **switches):
    """A pod needs 3000m of 4000m, 2000m are held; every 0.5 s a small pod leaves the node."""
    world = cluster(**switches).nodes(a.node("n1", cpu="4"))
    world.pods(a.pod("big", cpu="2", node="n1", priority=100), a.pod("waits", cpu="3"))
    found = []
    for half in range(int(until_s * 2) + 1):
        now = half / 2
        if half:
            small = a.pod(f"small{half}", cpu="10m", node="n1")
            world.handlers.on_pod(None, small, now)
            world.handlers.on_pod(small, None, now)
        if world.attempt(now):
            found.append(now)
    return found


def test_scheduler_queue_and_cycles_01_back_off_series_is_0_1_3_7_15_25_35(cluster, a):
    found = _attempts_while_pods_leave(cluster, a, until_s=36, SchedulerPopFromBackoffQ=False)

    assert [0, 1, 3, 7, 15, 25, 35] == [round(t) for t in found]


def test_scheduler_queue_and_cycles_02_an_idle_scheduler_takes_the_pod_from_back_off_after_each_event(cluster, a):
    found = _attempts_while_pods_leave(cluster, a, until_s=3)

    assert [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0] == found


def test_scheduler_queue_and_cycles_02_a_busy_scheduler_leaves_pods_in_back_off(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="4")).pods(a.pod("big", cpu="2", node="n1"), a.pod("waits", cpu="3"))
    assert world.attempt(0.0) == "waits!"
    small = a.pod("small", cpu="10m", node="n1")
    world.handlers.on_pod(None, small, 0.1)
    world.handlers.on_pod(small, None, 0.1)
    world.pods(a.pod("ready", cpu="1"), now=0.1)

    assert world.attempt(0.1) == "ready->n1"
    assert world.queue.pools[Pool.BACKOFF] == 1


def test_scheduler_queue_and_cycles_03_an_error_waits_out_its_back_off_even_when_idle(cluster, a):
    world = cluster().nodes(a.node("n1")).pods(a.pod("p"))
    queued = world.queue.pop(0.0)
    world.queue.add_unschedulable(queued, 0.0)

    assert world.queue.pools[Pool.ERROR_BACKOFF] == 1
    assert world.attempt(0.9) == ""
    assert world.attempt(2.0) == "p->n1"


def _prefers(key, value):
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=key, operator="In", values=(value,)),))
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))


def test_scheduler_queue_and_cycles_04_only_an_event_its_rejector_cares_for_wakes_a_pod(cluster, a):
    node = a.node("n1")
    other = a.pod("other", node="n1")
    world = cluster().nodes(node).pods(other, a.pod("picky", affinity=_prefers("disk", "ssd")))
    assert world.attempt(0.0) == "picky!"

    world.handlers.on_pod(other, None, 1.0)
    assert world.queue.pools[Pool.UNSCHEDULABLE] == 1
    world.handlers.on_node(node, a.node("n1", labels={"disk": "hdd"}), 2.0)
    assert world.queue.pools[Pool.UNSCHEDULABLE] == 1
    world.handlers.on_node(node, a.node("n1", labels={"disk": "ssd"}), 3.0)

    assert world.attempt(3.0) == "picky->n1"


def test_scheduler_queue_and_cycles_05_a_node_added_while_the_pod_is_tried_is_not_missed(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p", cpu="2"))
    queued = world.queue.pop(0.0)
    error = world.refuse(queued.info.pod)
    world.nodes(a.node("n2", cpu="4"), now=0.1)

    world.queue.add_unschedulable(queued, 0.2, rejectors=error.rejectors)

    assert queued.pool is Pool.BACKOFF
    assert world.queue.in_flight_event_count == 0


def test_scheduler_queue_and_cycles_06_without_events_a_pod_is_tried_again_between_5_and_5_5_minutes(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p", cpu="2"))
    assert world.attempt(0.0) == "p!"

    second = next(t for t in range(1, 400) if world.attempt(float(t)))

    assert 300 < second <= 330


def test_scheduler_queue_and_cycles_06_a_pod_saved_only_by_the_flush_is_marked_for_i29(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p", cpu="2"))
    world.attempt(0.0)
    world.queue.flush(329.0)

    assert world.queue.pop(329.0).is_rescued


def test_scheduler_queue_and_cycles_07_a_gated_pod_is_not_asked_again_by_100_node_events(cluster, a):
    world = cluster()
    asked = []
    real = world.queue.pre_enqueue
    world.queue.pre_enqueue = lambda pod, first: (asked.append(pod.key), real(pod, first))[1]
    gated = a.pod("p", scheduling_gates=(SchedulingGate(name="wait"),))
    world.pods(gated)
    assert world.queue.pools[Pool.GATED] == 1
    asked.clear()

    world.nodes(*(a.node(f"n{i}") for i in range(100)))
    assert asked == []
    world.handlers.on_pod(gated, a.pod("p", rv=2), 1.0)

    assert world.queue.pools[Pool.GATED] == 0
    assert world.attempt(1.0).startswith("p->")


def test_higher_priority_goes_first_then_who_waited_longer(cluster, a):
    world = cluster().nodes(a.node("n1"))
    for i, (name, priority) in enumerate([("late-high", 10), ("early", 0), ("late", 0), ("top", 99)]):
        world.handlers.on_pod(None, a.pod(name, priority=priority), float(i))

    order = [world.queue.pop(9.0).key.name for _ in range(4)]

    assert ["top", "late-high", "early", "late"] == order


def test_activate_moves_a_rejected_pod_without_back_off(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p", cpu="2"))
    world.attempt(0.0)
    world.queue.activate([a.pod("p").metadata.key], 0.1)

    assert world.queue.pools[Pool.ACTIVE] == 1


def test_a_pod_deleted_in_flight_does_not_come_back(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p", cpu="2"))
    queued = world.queue.pop(0.0)
    world.handlers.on_pod(a.pod("p"), None, 0.1)
    world.queue.add_unschedulable(queued, 0.2, rejectors={"NodeResourcesFit"})

    assert world.queue.get(queued.key) is None
    assert sum(world.queue.pools.values()) == 0


def test_events_no_plugin_registered_for_are_not_kept(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p", cpu="2"))
    world.queue.pop(0.0)
    world.queue.move_all(ASSIGNED_POD_DELETE, a.pod("x", node="n1"), None, 0.1)
    annotated = ClusterEvent(NODE, Action.UPDATE_NODE_ANNOTATION, "NodeAnnotationChange")
    world.queue.move_all(annotated, None, a.node("n1"), 0.1)  # no plugin of this profile waits for it
    world.queue.move_all(NODE_ADD, None, a.node("n9"), 0.1)

    assert world.queue.in_flight_event_count == 2


def test_a_pod_created_again_under_its_name_starts_afresh(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p", cpu="2", uid="one"))
    world.attempt(0.0)
    world.handlers.on_pod(a.pod("p", cpu="2", uid="one"), a.pod("p", cpu="500m", uid="two", rv=5), 1.0)

    assert world.attempt(1.0) == "p->n1"
    assert PodInfo(a.pod("p", uid="one")).uid not in world.cache.pods


def test_a_pod_whose_window_is_the_current_second_still_counts_as_backing_off(cluster, a):
    def pool_after_an_event_at(now):
        world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p", cpu="2"))
        assert world.attempt(0.5) == "p!"  # expires at 1.5, in the window of second 1
        world.nodes(a.node("n2"), now=now)
        return world.queue.get(a.pod("p").metadata.key).pool

    assert pool_after_an_event_at(1.9) is Pool.BACKOFF
    assert pool_after_an_event_at(2.0) is Pool.ACTIVE


def test_pods_that_others_bind_leave_nothing_behind_in_a_queue_of_a_standby(cluster, a):
    world = cluster().nodes(a.node("n1"))
    first = a.pod("first", priority=9)
    world.pods(first)
    for i in range(500):
        world.pods(a.pod(f"p{i}"))
        world.handlers.on_pod(a.pod(f"p{i}"), a.pod(f"p{i}", node="n1", rv=2), 1.0)
    world.pods(a.pod("last"))

    assert len(world.queue._active) < 100
    assert [world.queue.pop(2.0).key.name for _ in range(2)] == ["first", "last"]


def test_a_standby_that_forgot_bound_pods_still_leads_by_priority(cluster, a):
    world = cluster().nodes(a.node("n1"))
    for i in range(100):
        world.pods(a.pod(f"p{i}", priority=i * 37 % 101))
    left = range(3, 100, 10)
    for i in set(range(100)) - set(left):
        world.handlers.on_pod(a.pod(f"p{i}"), a.pod(f"p{i}", node="n1", rv=2), 1.0)

    found = [int(world.queue.pop(2.0).key.name[1:]) for _ in left]

    assert found == sorted(left, key=lambda i: i * 37 % 101, reverse=True)


def test_a_pod_bound_elsewhere_than_nominated_leaves_its_capacity_to_lesser_ones(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="2"), a.node("n2", cpu="1")).pods(a.pod("x", cpu="1", node="n2"))
    high = a.pod("high", cpu="2", priority=10, nominated="n1", scheduler_name="another")
    world.queue.nominator.set(PodInfo(high), "n1")
    world.pods(a.pod("low", cpu="1"))
    assert world.attempt(1.0) == "low!"

    world.queue.nominator.remove("high")
    elsewhere = a.pod("high", cpu="2", priority=10, nominated="n1", node="n9", rv=2, scheduler_name="another")
    world.handlers.on_pod(high, elsewhere, 30.0)

    assert world.attempt(60.0) == "low->n1"


def test_every_pod_that_comes_in_is_counted_once_by_queue_and_event(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p1", cpu="2"), a.pod("p2", cpu="2"))
    assert world.queue.incoming == {("active", "UnscheduledPodAdd"): 2}

    world.attempt(0.0)
    world.attempt(0.0)
    world.handlers.on_node(None, a.node("n2", cpu="4"), 0.5)

    incoming = dict(world.queue.incoming)
    assert incoming == {
        ("active", "UnscheduledPodAdd"): 2,
        ("unschedulable", "ScheduleAttemptFailure"): 2,
        ("backoff", "NodeAdd"): 2,
    }


def test_one_event_in_ten_that_plugins_care_for_is_timed_the_first_included(cluster, a):
    """Source: scheduler-queue-and-cycles 10."""
    timed = []

    class Stopwatch:
        def now(self):
            return 5.0

        def hint(self, *_):
            pass

        def event(self, label, took_s):
            timed.append((label, took_s))

    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("p", cpu="2"))
    world.queue.watch(Stopwatch())
    counts = []
    for number in range(12):
        world.queue.move_all(NODE_ADD, None, a.node(f"m{number}"), float(number))
        counts.append(len(timed))

    assert [1] * 10 + [2] * 2 == counts
    assert {(NODE_ADD.label, 0.0)} == set(timed)
