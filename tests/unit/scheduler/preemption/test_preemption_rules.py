"""Who is evicted for whom (acceptance scenarios of preemption.md that need no waiting)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.framework.status import Code, Status
from scheduler.plugins.default_preemption import DefaultPreemptionArgs
from scheduler.preemption.candidates import (
    ABSOLUTE,
    PERCENTAGE,
    Candidate,
    ExtenderError,
    Victims,
    candidate_count,
    left_by_extender,
    pick,
)
from scheduler.preemption.eligibility import GUARDED, refusal
from scheduler.preemption.progress import RunningPreemptions
from scheduler.preemption.units import Units, by_importance, group_unit, pod_unit
from services.api.kinds.node import Taint
from services.api.kinds.pod import Affinity, PodAffinity, PodAffinityTerm
from services.api.kinds.poddisruptionbudget import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from services.api.meta import Condition, LabelSelector, ObjectMeta


class Attempt:
    """One cycle of a pod that fits nowhere, and what preemption made of it."""

    def __init__(self, world, pod, now=0.0):
        info = PodInfo(pod)
        self.result = world.cycle.schedule(info, now)
        self.post = self.result.post_filter
        self.node = self.post.nominated_node
        self.message = self.result.diagnosis.post_filter_message
        self.victims = [v.key.name for eviction in self.post.actions for v in eviction.victims]


def started(pod, minute):
    return replace(pod, status=replace(pod.status, start_time=f"2026-01-01T10:{minute:02}:00Z"))


def budget(name, allowed, disrupted=(), **labels):
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=labels)),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed, disrupted_pods=dict.fromkeys(disrupted, "")),
    )


def victims_of(a, *priorities, start=None):
    """A candidate's victims of these priorities."""
    pods = [a.pod(f"v{i}", priority=p) for i, p in enumerate(priorities)]
    if start is not None:
        pods = [started(pod, start) for pod in pods]
    return Victims(tuple(by_importance([pod_unit(PodInfo(pod)) for pod in pods])))


def test_preemption_02_equal_priority_is_safe(cluster, a):
    world = cluster().nodes(a.node("n1")).pods(a.pod("v", cpu="4", node="n1", priority=1000))

    attempt = Attempt(world, a.pod("p", cpu="2", priority=1000))

    assert attempt.message == (
        "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert (attempt.node, attempt.victims) == ("", [])


def test_preemption_03_greedy_reprieve_keeps_a_and_c(cluster, a):
    world = (
        cluster()
        .nodes(a.node("n1"))
        .pods(
            a.pod("a", cpu="1", node="n1", priority=100),
            started(a.pod("b", cpu="2", node="n1", priority=50), 5),
            started(a.pod("c", cpu="1", node="n1", priority=50), 20),
        )
    )

    assert Attempt(world, a.pod("p", cpu="2", priority=1000)).victims == ["b"]


def test_preemption_04_the_lowest_goes_first_when_it_is_enough(cluster, a):
    world = (
        cluster()
        .nodes(a.node("n1"))
        .pods(
            a.pod("b", cpu="1500m", node="n1", priority=200),
            a.pod("a", cpu="1500m", node="n1", priority=100),
            a.pod("c", cpu="1", node="n1", priority=10),
        )
    )

    assert Attempt(world, a.pod("p", cpu="1", priority=1000)).victims == ["c"]


def test_preemption_05_a_budget_beats_priority(cluster, a):
    world = (
        cluster()
        .nodes(a.node("n1"))
        .pods(
            a.pod("a", cpu="2", node="n1", priority=50, labels={"app": "x"}),
            a.pod("b", cpu="2", node="n1", priority=100),
        )
    )
    world.world.put(budget("x", 0, app="x"))

    assert Attempt(world, a.pod("p", cpu="2", priority=1000)).victims == ["b"]


@pytest.mark.parametrize(("cpu", "victims"), [("2", ["b"]), ("4", ["b", "a"])])
def test_preemption_06_the_important_one_consumes_the_budget(cluster, a, cpu, victims):
    x = {"app": "x"}
    world = (
        cluster()
        .nodes(a.node("n1"))
        .pods(
            a.pod("a", cpu="2", node="n1", priority=50, labels=x),
            a.pod("b", cpu="2", node="n1", priority=100, labels=x),
        )
    )
    world.world.put(budget("x", 1, app="x"))

    assert Attempt(world, a.pod("p", cpu=cpu, priority=1000)).victims == victims


def test_preemption_06_a_pod_the_budget_has_counted_already_costs_nothing(cluster, a):
    x = {"app": "x"}
    world = (
        cluster()
        .nodes(a.node("n1"), a.node("n2"))
        .pods(a.pod("a", cpu="4", node="n1", priority=50, labels=x), a.pod("b", cpu="4", node="n2", priority=50))
    )
    world.world.put(budget("x", 0, disrupted=("a",), app="x"))

    assert Attempt(world, a.pod("p", cpu="2", priority=1000)).victims == ["a"]


def test_preemption_07_the_lowest_top_priority_decides_even_against_the_count(a):
    one, two = Candidate("n1", victims_of(a, 100)), Candidate("n2", victims_of(a, 10, 10))

    assert pick([one, two]).node == "n2"


def test_preemption_07_one_victim_below_zero_is_a_smaller_loss_than_two(a):
    three, four = Candidate("n3", victims_of(a, -10)), Candidate("n4", victims_of(a, -10, -10))

    assert (three.victims.loss[2], four.victims.loss[2]) == (2147483638, 4294967276)
    assert pick([four, three]).node == "n3"


def test_preemption_08_of_equal_losses_the_one_that_ran_shorter(cluster, a):
    world = (
        cluster()
        .nodes(a.node("n1"), a.node("n2"))
        .pods(
            started(a.pod("v1", cpu="4", node="n1", priority=5), 0),
            started(a.pod("v2", cpu="4", node="n2", priority=5), 59),
        )
    )

    attempt = Attempt(world, a.pod("p", cpu="4", priority=1000))

    assert (attempt.node, attempt.victims) == ("n2", ["v2"])


def test_preemption_09_the_message_counts_nodes_that_were_never_tried(cluster, a):
    gpu = Taint(key="dedicated", value="gpu", effect="NoSchedule")
    world = cluster().nodes(*(a.node(f"t{i}", taints=(gpu,)) for i in range(3)), a.node("f0"), a.node("f1"))
    world.pods(*(a.pod(f"v{i}", cpu="4", node=f"f{i}", priority=1000 + i) for i in range(2)))

    assert Attempt(world, a.pod("p", cpu="2", priority=1000)).message == (
        "no new claims to deallocate, preemption: 0/5 nodes are available: 2 No preemption victims found for incoming pod, "
        "3 Preemption is not helpful for scheduling."
    )


def test_preemption_09_a_node_that_no_eviction_frees_says_what_it_still_lacks(cluster, a):
    world = (
        cluster()
        .nodes(a.node("n1"))
        .pods(a.pod("high", cpu="3", node="n1", priority=2000), a.pod("low", cpu="1", node="n1"))
    )

    assert Attempt(world, a.pod("p", cpu="2", priority=1000)).message == (
        "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Insufficient cpu."
    )


def test_preemption_10_never_means_never(cluster, a):
    world = cluster().nodes(a.node("n1")).pods(a.pod("v", cpu="4", node="n1"))

    attempt = Attempt(world, a.pod("p", cpu="2", priority=1000, preemption_policy="Never"))

    assert attempt.message == "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
    assert (attempt.node, attempt.victims) == (None, [])
    assert world.handle.preempting.attempts == 1


def test_preemption_11_the_guard_wants_both_the_deletion_and_the_mark(cluster, a):
    def dying(**condition):
        pod = a.pod("v", cpu="4", node="n1")
        marks = (Condition(type="DisruptionTarget", status="True", **condition),)
        return replace(
            pod,
            metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T10:00:00Z"),
            status=replace(pod.status, conditions=marks),
        )

    p = a.pod("p", cpu="2", priority=1000)
    ours = cluster().nodes(a.node("n1")).pods(dying(reason="PreemptionByScheduler"))
    users = cluster().nodes(a.node("n1")).pods(dying(reason="EvictionByEvictionAPI"))
    hopeless = (
        cluster()
        .nodes(a.node("n1", unschedulable=True), a.node("n2"))
        .pods(dying(reason="PreemptionByScheduler"), a.pod("w", cpu="4", node="n2"))
    )
    for world in (ours, users, hopeless):
        world.handle.nominator.set(PodInfo(p), "n1")

    assert (
        Attempt(ours, p).message
        == "no new claims to deallocate, preemption: not eligible due to a terminating pod on the nominated node."
    )
    assert Attempt(ours, p).node is None
    assert Attempt(users, p).node == "n1"
    assert Attempt(hopeless, p).node == "n2"


@pytest.mark.parametrize(("mode", "victims"), [("match", ["w"]), ("ignore", ["v"])])
def test_preemption_24_an_unlabelled_pod_under_a_budget_for_all(cluster, a, mode, victims):
    world = cluster(preemption__pdb_empty_selector=mode).nodes(a.node("n1"), a.node("n2"))
    other = a.pod("w", cpu="4", node="n2", priority=10)
    world.pods(a.pod("v", cpu="4", node="n1"), replace(other, metadata=replace(other.metadata, namespace="elsewhere")))
    world.world.put(budget("all", 0))

    assert Attempt(world, a.pod("p", cpu="2", priority=1000)).victims == victims


@pytest.mark.parametrize(("nodes", "enough"), [(50, 50), (1000, 100), (5000, 500)])
def test_preemption_3_2_how_many_candidates_are_enough(nodes, enough):
    assert candidate_count(nodes, PERCENTAGE, ABSOLUTE) == enough


@pytest.mark.parametrize("args", [(-1, 1), (101, 1), (1, -1), (0, 0)])
def test_preemption_3_2_arguments_that_make_no_sense_are_refused(args):
    with pytest.raises(ValueError, match="minCandidateNodes"):
        DefaultPreemptionArgs(*args)


def test_preemption_3_3_importance_is_priority_then_structure_then_size_then_age(a):
    def pod(name, minute, priority=1):
        return PodInfo(started(a.pod(name, priority=priority), minute))

    old, young, never = pod("old", 1), pod("young", 9), PodInfo(a.pod("never", priority=1))
    units = [
        pod_unit(never),
        pod_unit(young),
        pod_unit(old),
        group_unit((pod("s1", 0),), 1),
        group_unit((pod("l1", 30), pod("l2", 31)), 1),
        pod_unit(pod("top", 50, priority=2)),
    ]

    assert [unit.uid for unit in by_importance(units)] == ["top", "l1", "s1", "old", "young", "never"]


def test_preemption_3_3_a_nominated_rival_counts_as_present_and_one_of_lower_priority_does_not(cluster, a):
    world = (
        cluster().nodes(a.node("n1")).pods(a.pod("v", cpu="2", node="n1"), a.pod("w", cpu="2", node="n1", priority=1))
    )
    world.handle.nominator.set(PodInfo(a.pod("rival", cpu="2", priority=1000)), "n1")
    world.handle.nominator.set(PodInfo(a.pod("lesser", cpu="4", priority=999)), "n1")

    assert Attempt(world, a.pod("p", cpu="2", priority=1000)).victims == ["w", "v"]


def test_what_is_remembered_of_a_template_follows_every_change(cluster, a):
    world = (
        cluster()
        .nodes(a.node("n1"), a.node("n2"))
        .pods(a.pod("v", cpu="4", node="n1", priority=1), a.pod("w", cpu="4", node="n2", priority=2))
    )
    p = a.pod("p", cpu="2", priority=1000)
    seen = [Attempt(world, p).victims]
    world.world.put(budget("all", 0))
    seen.append(Attempt(world, p).victims)
    world.world.delete(budget("all", 0))
    world.handle.nominator.set(PodInfo(a.pod("rival", cpu="4", priority=1000)), "n1")
    seen.append(Attempt(world, p).victims)
    world.handle.nominator.remove("rival")
    gone = a.pod("v", cpu="4", node="n1", priority=1)
    world.handlers.on_pod(gone, None, 0.0)
    world.pods(a.pod("x", cpu="4", node="n1", priority=5))
    seen.append(Attempt(world, p).victims)

    assert seen == [["v"], ["v"], ["w"], ["w"]]


def test_a_tie_between_nodes_goes_by_name(a, cluster):
    def chosen(world):
        world.nodes(a.node("n1"), a.node("n2")).pods(a.pod("v", cpu="4", node="n1"), a.pod("w", cpu="4", node="n2"))
        return {Attempt(world, a.pod("p", cpu="4", priority=1000)).node for _ in range(20)}

    assert chosen(cluster()) == {"n1"}


def test_a_tie_between_victims_goes_by_uid(a, cluster):
    def chosen(world):
        world.nodes(a.node("n1")).pods(a.pod("v", cpu="2", node="n1"), a.pod("w", cpu="2", node="n1"))
        return {tuple(Attempt(world, a.pod("p", cpu="2", priority=1000)).victims) for _ in range(20)}

    assert chosen(cluster()) == {("w",)}


def test_a_nomination_outlives_updates_that_know_nothing_of_it_and_ends_when_the_status_says_so(a, cluster):
    nominator = cluster().handle.nominator
    silent, nominated = PodInfo(a.pod("p", rv=1)), PodInfo(a.pod("p", rv=2, nominated="n1"))
    nominator.set(silent, "n1")
    seen = []
    for old, new in ((silent, silent), (silent, nominated), (nominated, silent)):
        nominator.update(old, new)
        seen.append(nominator.node_of("p"))

    assert seen == ["n1", "n1", ""]


def test_preemption_3_4_extenders_thin_out_the_candidates(a):
    found = [Candidate("n1", victims_of(a, 1)), Candidate("n2", victims_of(a, 2))]
    away, empty = ExtenderError("the extender is away"), {"n1": Victims(())}

    def left(answer, *, is_ignorable=False):
        return left_by_extender(found, answer, is_ignorable=is_ignorable)

    assert left({"n2": found[1].victims}) == found[1:]
    assert left({}).message == "no candidate node for preemption"
    assert left(away) == Status(Code.ERROR, ("the extender is away",))
    assert left(empty) == Status(Code.ERROR, ('expected at least one victim pod on node "n1"',))
    assert left(away, is_ignorable=True) == left(empty, is_ignorable=True) == found


def test_a_neighbour_that_anti_affinity_forbids_is_the_victim_whatever_capacity_is_free(a, cluster):
    x = LabelSelector(match_labels={"app": "x"})
    apart = Affinity(pod_anti_affinity=PodAffinity(required=(PodAffinityTerm(label_selector=x, topology_key="zone"),)))
    world = cluster().nodes(a.node("n1", labels={"zone": "z1"}), a.node("n2", labels={"zone": "z1"}))
    world.pods(a.pod("x1", cpu="1", node="n1", labels={"app": "x"}), a.pod("y", cpu="1", node="n1"))

    attempt = Attempt(world, a.pod("p", cpu="1", priority=100, affinity=apart))

    assert (attempt.node, attempt.victims) == ("n1", ["x1"])


def test_preemption_4_while_the_last_victim_is_evicted_its_own_state_opens_the_gate(a):
    staying = {"last"}
    preempting, last = RunningPreemptions(lambda pod: pod.uid in staying), PodInfo(a.pod("last"))
    seen = [preempting.is_running("p")]
    preempting.begin("p")
    seen.append(preempting.is_running("p"))
    preempting.come_to_last("p", last)
    seen.append(preempting.is_running("p"))
    staying.clear()
    seen.append(preempting.is_running("p"))
    preempting.end("p")

    assert seen == [False, True, True, False]
    assert not preempting.is_running("p")


@pytest.mark.parametrize(("priority", "reason"), [(9, GUARDED), (10, "")])
def test_only_a_leaving_victim_of_lower_priority_makes_a_pod_wait_on_its_nominated_node(cluster, a, priority, reason):
    marked = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    victim = a.pod("v", node="n1", priority=priority)
    victim = replace(
        victim,
        metadata=replace(victim.metadata, deletion_timestamp="2026-01-01T10:00:00Z"),
        status=replace(victim.status, conditions=(marked,)),
    )
    world = cluster().nodes(a.node("n1")).pods(victim)
    units = Units(world.handle.groups, world.cache, world.world)

    assert refusal(PodInfo(a.pod("p", priority=10)), 10, world.cache.nodes["n1"], units) == reason
