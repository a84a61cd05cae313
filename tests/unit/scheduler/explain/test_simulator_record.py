"""What is recorded under kube-scheduler-simulator's keys is what the profile's plugins say where they are enabled."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.profiles import Profile
from scheduler.cycle.result import ScheduleResult, Unschedulable
from scheduler.explain.record_rules import RecordRules, add_answer, bind_failed
from scheduler.explain.simulator_record import answers_of
from scheduler.framework.arrangement import POINTS, Enabled, serves
from scheduler.framework.cycle_state import CycleError
from scheduler.framework.runner import Runner
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, error_status, unresolvable, unschedulable
from services.api.kinds.node import Taint
from services.api.kinds.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Toleration,
)

BALANCED = "NodeResourcesBalancedAllocation"
KSS = RecordRules()
LATER = ("reserve-result", "permit-result", "permit-result-timeout", "prebind-result", "bind-result")


def attempt(world, pod, rules=KSS, without=()):
    """Run one cycle and return its result with the record of it."""
    points = {
        p: [e.name for e in world.runner.profile if serves(e.plugin, p) and (p, e.name) not in without] for p in POINTS
    }
    runner = Runner(world.runner.profile, points)
    cycle = replace(world.cycle, runner=runner)
    info = PodInfo(pod)
    result = cycle.schedule(info, 0.0)
    profile = Profile("default-scheduler", runner, cycle)
    return result, answers_of(profile, info, world.cache.columns, 0.0, world.queue.nominator, result, rules)


def record(world, pod, rules=KSS, without=()):
    return attempt(world, pod, rules, without)[1]


def test_a_plugin_that_the_profile_disables_at_a_point_does_not_answer_there(cluster, a):
    world, pod = cluster().nodes(a.node("n1"), a.node("n2")), a.pod("p", cpu="1")

    enabled, disabled = record(world, pod), record(world, pod, without={("score", BALANCED)})

    assert set(enabled["score-result"]["n1"]) - set(disabled["score-result"]["n1"]) == {BALANCED}
    assert set(enabled["filter-result"]["n1"].values()) == {"passed"}


def test_with_one_feasible_node_nothing_is_scored_as_kube_scheduler_scores_nothing(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="4"), a.node("n2", cpu="1"))

    found = record(world, a.pod("p", cpu="2"))

    assert found["filter-result"]["n2"]["NodeResourcesFit"] == "Insufficient cpu"
    assert (found["score-result"], found["finalscore-result"], found["prescore-result"]) == ({}, {}, {})


def test_three_feasible_nodes_are_scored_and_the_best_sum_is_chosen(cluster, a):
    soft = Taint(key="k", value="", effect="PreferNoSchedule")
    world = cluster().nodes(a.node("n1"), a.node("n2", taints=(soft,)), a.node("n3", cpu="8"))

    result, found = attempt(world, a.pod("p", cpu="1"))

    assert found["finalscore-result"]["n1"]["TaintToleration"] == "300"
    assert found["finalscore-result"]["n2"]["TaintToleration"] == "0"
    assert found["score-result"]["n2"]["TaintToleration"] == "1", "before NormalizeScore"
    sums = {node: sum(map(int, scores.values())) for node, scores in found["finalscore-result"].items()}
    assert result.node_name == max(sums, key=sums.__getitem__)


def test_an_attempt_that_chose_no_node_has_no_scores_and_no_later_answers(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1"), a.node("n2", cpu="1"))

    found = record(world, a.pod("p", cpu="2"))

    assert (found["score-result"], found["finalscore-result"], found["prescore-result"]) == ({}, {}, {})
    assert set(found["filter-result"]) == {"n1", "n2"}, "what filters said stays"
    assert [found[key] for key in LATER] == [{}] * len(LATER)
    assert found["selected-node"] == ""


def test_after_the_first_rejection_of_a_node_no_other_filter_answers_for_it(cluster, a):
    world = cluster().nodes(a.node("n1", unschedulable=True, cpu="1"), a.node("n2"))

    found = record(world, a.pod("p", cpu="2"))["filter-result"]

    assert found["n1"] == {"NodeUnschedulable": "node(s) were unschedulable"}
    assert list(found["n2"])[:2] == ["NodeUnschedulable", "NodeName"]


@pytest.mark.parametrize(("rules", "said"), [(KSS, ""), (RecordRules(skip=None), None)])
def test_a_plugin_that_skips_is_an_empty_text_or_left_out(cluster, a, rules, said):
    world = cluster().nodes(a.node("n1"), a.node("n2"))
    plain = record(world, a.pod("p"), rules)

    assert plain["prefilter-result-status"].get("VolumeBinding") == said
    assert plain["prefilter-result-status"]["NodeResourcesFit"] == "success"
    assert plain["prescore-result"].get(BALANCED) == said, "it has nothing to balance"


def test_pre_filters_name_the_nodes_they_narrow_to_and_no_other_is_asked(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2"))
    pinned = record(world, a.pod("q", affinity=pinned_to("n2")))

    assert record(world, a.pod("p"))["prefilter-result"] == {}
    assert pinned["prefilter-result"] == {"NodeAffinity": ["n2"]}
    assert list(pinned["filter-result"]) == ["n2"], "the others were not asked"


def pinned_to(name):
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    term = NodeSelectorTerm(match_fields=(field,))
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))


def test_preemption_names_every_rejected_node_and_the_victims_of_the_nominated_one(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1"), a.node("n2", cpu="1"))
    world.pods(a.pod("high", cpu="1", node="n1", priority=9), a.pod("low", cpu="1", node="n2", priority=0))

    found = record(world, a.pod("p", cpu="1", priority=5))
    in_vain = record(world, a.pod("q", cpu="1", priority=0))

    assert found["postfilter-result"] == {"n1": {}, "n2": {"DefaultPreemption": "preemption victim"}}
    assert in_vain["postfilter-result"] == {"n1": {}, "n2": {}}


class Rejecting:
    """Rejects at PreFilter, or has PostFilter name a node."""

    name = "Mine"

    def __init__(self, status=SUCCESS, nominated=""):
        self.status, self.nominated = status, nominated

    def pre_filter(self, state, pod, columns):
        return self.status


def test_a_rejection_by_pre_filter_leaves_no_node_with_an_answer(cluster, a):
    world = cluster(extra=[Enabled(Rejecting(unresolvable("no licence")))]).nodes(a.node("n1"))

    result, found = attempt(world, a.pod("p"))

    assert isinstance(result, Unschedulable)
    assert found["prefilter-result-status"]["Mine"] == "no licence"
    assert (found["filter-result"], found["postfilter-result"]) == ({}, {})


def test_an_error_of_a_plugin_is_recorded_as_its_message(cluster, a):
    world = cluster(extra=[Enabled(Rejecting(error_status("the disk is full")))]).nodes(a.node("n1"))

    result, found = attempt(world, a.pod("p"))

    assert isinstance(result, CycleError)
    assert found["prefilter-result-status"]["Mine"] == "the disk is full"


def test_only_the_nodes_that_a_sampling_cycle_looked_at_are_recorded(cluster, a):
    names = [f"n{i:03}" for i in range(250)]
    world = cluster(scheduler__percentage_of_nodes_to_score=40).nodes(*map(a.node, names))

    first, found = attempt(world, a.pod("p"))
    second, after = attempt(world, a.pod("q"))
    whole = record(world, a.pod("r"), RecordRules(all_nodes=True))

    assert (first.evaluated, len(found["filter-result"]), len(found["finalscore-result"])) == (100, 100, 100)
    assert not set(found["filter-result"]) & set(after["filter-result"]), "it goes on where the first ended"
    assert second.node_name in after["finalscore-result"]
    assert (len(whole["filter-result"]), len(whole["finalscore-result"])) == (250, 100)


def test_a_pod_that_fits_where_it_is_nominated_has_the_answers_of_that_node_alone(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2"))

    found = record(world, a.pod("p", nominated="n2"))

    assert (list(found["filter-result"]), found["finalscore-result"]) == (["n2"], {})


def test_a_node_that_is_kept_for_a_nominated_pod_says_so(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="2"), a.node("n2", cpu="2"))
    world.queue.nominator.set(PodInfo(a.pod("first", cpu="2", priority=5)), "n1")

    result, found = attempt(world, a.pod("p", cpu="2", priority=1))

    assert result.node_name == "n2"
    assert found["filter-result"]["n1"]["NodeResourcesFit"] == "Insufficient cpu"


# --- what follows the choice ---


def empty():
    return {key: {} for key in LATER}


def test_answers_after_the_choice_are_recorded_as_they_were_given():
    found, rules = empty(), RecordRules()

    add_answer(found, rules, "reserve", "VolumeBinding", SUCCESS, 0.0)
    add_answer(found, rules, "permit", "Gang", Status(Code.WAIT, ("for two more",)), 10.0)
    add_answer(found, rules, "permit", "Other", unschedulable("not today"), 0.0)
    add_answer(found, rules, "prebind", "VolumeBinding", error_status("no volume"), 0.0)
    add_answer(found, rules, "bind", "Mine", SKIP, 0.0)
    add_answer(found, rules, "bind", "DefaultBinder", SUCCESS, 0.0)

    assert found["reserve-result"] == {"VolumeBinding": "success"}
    assert found["permit-result"] == {"Gang": "wait", "Other": "not today"}
    assert found["permit-result-timeout"] == {"Gang": "10s", "Other": "0s"}
    assert found["prebind-result"] == {"VolumeBinding": "no volume"}
    assert found["bind-result"] == {"Mine": "", "DefaultBinder": "success"}


def test_the_plugin_that_bound_says_why_there_is_no_binding():
    found = empty() | {"bind-result": {"Mine": "", "DefaultBinder": "success"}}

    bind_failed(found, "pod default/p is already assigned to node n3")

    assert found["bind-result"] == {"Mine": "", "DefaultBinder": "pod default/p is already assigned to node n3"}


# --- record and cycle agree ---


def generated(cluster, a, seed):
    """A small cluster with pods on it and nominations to it, and a pod in search of a node."""
    chance = random.Random(seed)
    taints = [
        Taint(key="k", value=v, effect=e) for v in "ab" for e in ("NoSchedule", "PreferNoSchedule", "PreferNoSchedule")
    ]
    share = chance.choice([100, 100, 40])
    world = cluster(scheduler__percentage_of_nodes_to_score=share)
    names = [f"n{i:03}" for i in range(chance.choice([1, 2, 5, 9, 120]))]
    for name in names:
        some = tuple(chance.sample(taints, chance.choice([0, 0, 1, 2])))
        zone = {"zone": chance.choice("xy")}
        world.nodes(a.node(name, cpu=str(chance.randint(1, 8)), taints=some, labels=zone))
    for i in range(chance.randint(0, 30)):
        size, place = str(chance.randint(0, 2)), chance.choice(names)
        world.pods(a.pod(f"old{i}", cpu=size, node=place, priority=chance.randint(0, 4)))
    for i in range(chance.choice([0, 0, 1, 3])):
        rival = PodInfo(a.pod(f"rival{i}", cpu="2", priority=chance.randint(0, 9)))
        world.queue.nominator.set(rival, chance.choice(names))
    tolerations = (Toleration(key="k", operator="Exists"),) if chance.random() < 0.3 else ()
    selector = {"zone": "x"} if chance.random() < 0.3 else {}
    nominated = chance.choice(["", "", chance.choice(names)])
    size, priority = str(chance.randint(0, 4)), chance.randint(0, 5)
    pod = a.pod("p", cpu=size, priority=priority, tolerations=tolerations, node_selector=selector, nominated=nominated)
    return world, pod


@pytest.mark.parametrize("first_seed", range(0, 90, 30))
def test_record_and_cycle_agree_on_the_feasible_nodes_the_sums_and_the_choice(cluster, a, first_seed):
    for seed in range(first_seed, first_seed + 30):
        world, pod = generated(cluster, a, seed)

        result, found = attempt(world, pod)

        passed = {node for node, said in found["filter-result"].items() if set(said.values()) <= {"passed"}}
        scored = {node: sum(map(int, scores.values())) for node, scores in found["finalscore-result"].items()}
        if isinstance(result, Unschedulable):
            assert (passed, scored) == (set(), {}), seed
            assert set(found["postfilter-result"]) == set(found["filter-result"]), seed
            continue
        assert isinstance(result, ScheduleResult), (seed, result)
        assert result.node_name in passed, seed
        assert len(passed) == result.feasible, seed
        if result.ranking is None:
            assert scored == {}, seed
            continue
        assert set(scored) == passed, seed
        assert scored[result.node_name] == max(scored.values()), seed
        assert {node: scored[node] for node in result.ranking.names} == result.ranking.totals, seed
