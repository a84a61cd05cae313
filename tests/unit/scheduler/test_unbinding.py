"""What the scheduler makes of pods that are unbound from nodes (kubelet-unbinding 7)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.event_handlers import Crash, Unbound
from scheduler.queue.scheduling_queue import Pool

NUMA = "TopologyAffinityError"
REASON = f"node(s) rejected this pod earlier ({NUMA})"


def _unbind(world, a, now, *, bound=None, **spec):
    """Have the watch show pod p bound to n1, then unbound from it; return the effects."""
    bound = bound or a.pod("p", cpu="1", node="n1", **spec)
    world.handlers.on_pod(None, bound, now)
    back = a.pod("p", cpu="1", rv=3, unbound=(("n1", NUMA, 60),), **spec)
    return world.handlers.on_pod(bound, back, now)


def test_an_unbound_pod_frees_its_node_and_waits_about_a_second(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2"))

    (effect,) = _unbind(world, a, 10.0)

    assert isinstance(effect, Unbound)
    assert (effect.node_name, effect.reason, effect.attempt) == ("n1", NUMA, 1)
    assert 0.9 <= effect.delay_s <= 1.1
    assert world.cache.nodes["n1"].pods == {}
    assert world.attempt(10.8) == "", "even an idle scheduler waits"
    assert world.attempt(12.0) == "p->n2"


@pytest.mark.parametrize(("count", "delay"), [(2, 2), (5, 16), (9, 60)])
def test_the_extra_back_off_doubles_with_each_unbind_up_to_a_minute(cluster, a, count, delay):
    world = cluster().nodes(a.node("n1"))
    bound = replace(a.pod("p", node="n1"), status=a.pod("p", unbound=(("n1", NUMA, 0),) * (count - 1)).status)
    world.handlers.on_pod(None, bound, 0.0)

    (effect,) = world.handlers.on_pod(bound, a.pod("p", rv=9, unbound=(("n1", NUMA, 0),) * count), 0.0)

    assert 0.9 * delay <= effect.delay_s <= 1.1 * delay


def test_the_capacity_an_unbound_pod_leaves_wakes_others(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1"))
    bound = a.pod("p", cpu="1", node="n1")
    world.pods(bound, a.pod("waits", cpu="1"))
    assert world.attempt(0.0) == "waits!"

    world.handlers.on_pod(bound, a.pod("p", cpu="1", rv=3, unbound=(("n1", NUMA, 60),)), 5.0)

    assert world.attempt(5.0) == "waits->n1"


def test_kubelet_unbinding_03_no_alternative_names_the_reason_until_a_pod_leaves_the_node(cluster, a):
    world = cluster().nodes(a.node("n1")).pods(other := a.pod("other", node="n1"))
    _unbind(world, a, 0.0)
    assert world.attempt(2.0) == "p!"
    assert world.refuse(world.queue.get(a.pod("p").metadata.key).info.pod).refusal == (
        f"0/1 nodes are available: 1 {REASON}."
    )

    world.handlers.on_pod(other, None, 20.0)

    assert world.attempt(20.0) == "p->n1"


def test_an_exclusion_that_runs_out_wakes_its_pod_without_any_event(cluster, a):
    world = cluster().nodes(a.node("n1"))
    _unbind(world, a, 0.0)
    assert world.attempt(2.0) == "p!"
    assert world.exclusions.next_expiry() == 60.0

    world.handlers.expire_exclusions(60.0)

    assert world.attempt(60.0) == "p->n1"


@pytest.mark.parametrize(
    "change",
    [{"labels": {"fixed": "yes"}}, {"cpu": "8"}, {"session": "new"}, {"features": ("A",)}],
    ids=["labels", "allocatable", "session", "features"],
)
def test_a_change_of_the_node_ends_its_exclusions_early(cluster, a, change):
    world = cluster().nodes(node := a.node("n1"))
    _unbind(world, a, 0.0)
    assert world.attempt(2.0) == "p!"

    world.handlers.on_node(node, a.node("n1", **change), 10.0)

    assert world.attempt(10.0) == "p->n1"


@pytest.mark.parametrize(
    ("mode", "with_other", "alone"),
    [("hard", "p->n2", "p!"), ("soft", "p->n2", "p->n1"), ("adaptive", "p->n2", "p->n1")],
)
def test_the_exclusion_switch(cluster, a, mode, with_other, alone):
    both = cluster(scheduler__exclusion=mode).nodes(a.node("n1", cpu="64"), a.node("n2", cpu="2"))
    _unbind(both, a, 0.0)
    only = cluster(scheduler__exclusion=mode).nodes(a.node("n1"))
    _unbind(only, a, 0.0)

    assert (both.attempt(2.0), only.attempt(2.0)) == (with_other, alone)


def test_kubelet_unbinding_04_without_exclusion_the_pod_goes_back_to_the_better_node(cluster, a):
    world = cluster(scheduler__exclusion="none").nodes(a.node("n1", cpu="64", memory="99Gi"), a.node("n2", cpu="2"))
    _unbind(world, a, 0.0)

    assert world.attempt(2.0) == "p->n1"


def test_kubelet_unbinding_12_gate_off_ends_with_upstreams_last_words(cluster, a):
    world = cluster(PodUnbinding=False).nodes(a.node("n1"))

    (effect,) = _unbind(world, a, 0.0)

    assert isinstance(effect, Crash)
    assert effect.message.startswith("Pod updated on a different node than previously added to: pod default/p")
    assert effect.message.endswith("scheduler cache is corrupted and can badly affect scheduling decisions")


def test_kubelet_unbinding_12_gate_off_loses_an_assumed_pod_as_upstream_does(cluster, a):
    world = cluster(PodUnbinding=False).nodes(a.node("n1")).pods(a.pod("p", cpu="1"))
    world.attempt(0.0)

    effects = world.handlers.on_pod(a.pod("p", cpu="1"), a.pod("p", cpu="1", rv=4, unbound=(("n1", NUMA, 60),)), 1.0)

    assert effects == []
    assert world.cache.node_of("p") == "n1"
    assert world.queue.get(a.pod("p").metadata.key) is None


def test_kubelet_unbinding_13_a_bind_and_unbind_seen_as_one_event_leave_no_phantom_usage(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2")).pods(a.pod("p", cpu="1"))
    chosen = world.attempt(0.0).removeprefix("p->")
    assumption = world.cache.pods["p"].assumption

    world.handlers.on_pod(a.pod("p", cpu="1"), a.pod("p", cpu="1", rv=4, unbound=((chosen, NUMA, 60),)), 2.0)

    assert assumption.is_obsolete
    assert world.cache.nodes[chosen].requested["cpu"] == 0
    assert world.cache.columns.requested["cpu"].sum() == 0
    assert world.attempt(4.0) in ("p->n1", "p->n2")
    assert world.cache.node_of("p") != chosen


def test_kubelet_unbinding_14_a_move_seen_as_one_event_moves_the_usage(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2"))
    before = a.pod("p", cpu="1", node="n1")
    world.pods(before)

    effects = world.handlers.on_pod(before, a.pod("p", cpu="1", node="n2", rv=6), 1.0)

    assert effects == []
    assert world.cache.nodes["n1"].requested["cpu"] == 0
    assert world.cache.nodes["n2"].requested["cpu"] == 1000


def test_an_assumed_pod_seen_bound_elsewhere_moves_there(cluster, a):
    world = cluster().nodes(a.node("n1")).pods(a.pod("p", cpu="1"))
    world.attempt(0.0)
    assumption = world.cache.pods["p"].assumption

    world.handlers.on_pod(a.pod("p", cpu="1"), a.pod("p", cpu="1", node="n2", rv=6), 1.0)

    assert assumption.is_obsolete
    assert world.cache.node_of("p") == "n2"
    assert world.cache.assumed_count == 0


def test_an_older_view_of_an_assumed_pod_changes_nothing(cluster, a):
    world = cluster().nodes(a.node("n1")).pods(a.pod("p", cpu="1"))
    world.attempt(0.0)

    world.handlers.on_pod(a.pod("p", cpu="1"), a.pod("p", cpu="1", rv=2, labels={"x": "y"}), 1.0)

    assert world.cache.node_of("p") == "n1"
    assert world.cache.assumed_count == 1


def test_attempts_are_counted_on_over_an_unbind(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2")).pods(a.pod("p", cpu="1"))
    node = world.attempt(0.0).removeprefix("p->")
    bound = a.pod("p", cpu="1", node=node, rv=3)
    world.handlers.on_pod(a.pod("p", cpu="1"), bound, 0.1)
    world.handlers.on_pod(bound, a.pod("p", cpu="1", rv=4, unbound=((node, NUMA, 60),)), 0.2)
    world.queue.flush(3.0)

    assert world.queue.pop(3.0).attempts == 2


def test_after_a_restart_exclusions_are_learned_from_the_history(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2")).pods(a.pod("p", unbound=(("n1", NUMA, 60),)))

    assert world.attempt(0.0) == "p->n2"


def test_an_unbind_of_another_schedulers_pod_only_frees_the_node(cluster, a):
    world = cluster().nodes(a.node("n1"))

    assert _unbind(world, a, 0.0, scheduler_name="other") == []
    assert world.cache.nodes["n1"].pods == {}
    assert world.queue.pools[Pool.ERROR_BACKOFF] == 0


def test_a_cycle_19_failed_bind_frees_its_capacity_for_the_one_that_waits(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1")).pods(a.pod("first", cpu="1"), a.pod("second", cpu="1"))
    assert world.attempt(0.0) == "first->n1"
    assert world.attempt(0.1) == "second!"

    world.cache.forget("first")

    assert world.schedule(a.pod("second", cpu="1")).node_name == "n1"
    assert PodInfo(a.pod("first")).uid not in world.cache.pods
