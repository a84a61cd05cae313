"""What is recorded under kube-scheduler-simulator's keys is what the profile's plugins say where they are enabled."""

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.profiles import Profile
from scheduler.explain.simulator_record import answers_of
from scheduler.framework.runner import POINTS, Runner, serves

BALANCED = "NodeResourcesBalancedAllocation"


def record(world, pod, without=(), node="n1"):
    points = {
        p: [e.name for e in world.runner.profile if serves(e.plugin, p) and (p, e.name) not in without] for p in POINTS
    }
    runner = Runner(world.runner.profile, points)
    return answers_of(
        Profile("default-scheduler", runner, world.cycle), PodInfo(pod), world.cache.columns, 0.0, node=node
    )


def test_a_plugin_that_the_profile_disables_at_a_point_does_not_answer_there(cluster, a):
    world, pod = cluster().nodes(a.node("n1"), a.node("n2")), a.pod("p", cpu="1")

    enabled, disabled = record(world, pod), record(world, pod, without={("score", BALANCED)})

    assert set(enabled["score-result"]["n1"]) - set(disabled["score-result"]["n1"]) == {BALANCED}
    assert set(enabled["filter-result"]["n1"].values()) == {"passed"}


def test_an_attempt_that_chose_no_node_has_no_scores(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2"))

    found = record(world, a.pod("p"), node="")

    assert (found["score-result"], found["finalscore-result"], found["prescore-result"]) == ({}, {}, {})
    assert set(found["filter-result"]) == {"n1", "n2"}, "what filters said stays"


def test_after_the_first_rejection_of_a_node_no_other_filter_answers_for_it(cluster, a):
    world = cluster().nodes(a.node("n1", unschedulable=True, cpu="1"), a.node("n2"))

    found = record(world, a.pod("p", cpu="2"), node="n2")["filter-result"]

    assert found["n1"] == {"NodeUnschedulable": "node(s) were unschedulable"}
    assert list(found["n2"])[:2] == ["NodeUnschedulable", "NodeName"]
