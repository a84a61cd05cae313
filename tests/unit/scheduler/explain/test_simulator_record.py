"""What is recorded under kube-scheduler-simulator's keys is what the profile's plugins say where they are enabled."""

import json

import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.profiles import Profile
from scheduler.explain.simulator_record import HISTORY, PREFIX, RECORDS_MAX, SimulatorRecords, answers_of
from scheduler.framework.runner import POINTS, Runner, serves
from services.api.kinds.pod import Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

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


def test_what_was_served_after_a_node_was_chosen_is_a_success_of_each_plugin_that_serves_it(cluster, a):
    world = cluster().nodes(a.node("n1"))

    chosen, none = record(world, a.pod("p", cpu="1")), record(world, a.pod("p", cpu="1"), node="")

    assert (chosen["selected-node"], none["selected-node"]) == ("n1", "")
    for key, point in (("reserve", "reserve"), ("permit", "permit"), ("prebind", "preBind"), ("bind", "bind")):
        assert chosen[f"{key}-result"] == dict.fromkeys(world.runner.points[point], "success"), key
        assert none[f"{key}-result"] == {}, key
    assert chosen["bind-result"] == {"DefaultBinder": "success"}
    assert chosen["prescore-result"] == {BALANCED: "success"}
    assert record(world, a.pod("q"))["prescore-result"] == {}, "it has nothing to balance"


def test_pre_filters_that_have_nothing_to_do_do_not_answer_and_others_name_the_nodes_they_narrow_to(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2"))
    plain = record(world, a.pod("p"))
    pinned = record(world, a.pod("q", affinity=pinned_to("n2")), node="n2")

    assert "VolumeBinding" not in plain["prefilter-result-status"]
    assert plain["prefilter-result-status"]["NodeResourcesFit"] == "success"
    assert (plain["prefilter-result"], pinned["prefilter-result"]) == ({}, {"NodeAffinity": ["n2"]})
    assert list(pinned["filter-result"]) == ["n2"], "the others were not asked"


def pinned_to(name):
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    term = NodeSelectorTerm(match_fields=(field,))
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))


def test_a_nomination_names_the_plugin_that_chose_the_victims(cluster, a):
    world = cluster().nodes(a.node("n1"))
    profile = Profile("default-scheduler", world.runner, world.cycle)
    pod, columns = PodInfo(a.pod("p")), world.cache.columns

    nominated = answers_of(profile, pod, columns, 0.0, nominated="n1")["postfilter-result"]

    assert nominated == {"n1": {"DefaultPreemption": "preemption victim"}}
    assert answers_of(profile, pod, columns, 0.0)["postfilter-result"] == {}


# --- what is kept, and what goes onto the pod ---


def kept(*attempts, uid="u"):
    records = SimulatorRecords()
    for each in attempts:
        records.keep(uid, each)
    return records


def test_the_newest_attempt_stands_beside_the_history_of_all():
    records = kept({"selected-node": ""}, {"selected-node": "n1", "bind-result": {"b": "success", "a": "success"}})

    found = records.whole("u")

    assert found[PREFIX + "selected-node"] == "n1"
    assert found[PREFIX + "bind-result"] == '{"a":"success","b":"success"}'
    assert [each[PREFIX + "selected-node"] for each in json.loads(found[HISTORY])] == ["", "n1"]
    assert records.fitting("u") == found
    assert (records.whole("other"), records.fitting("other")) == ({}, {})


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ({"filter": 10, "score": 10, "finalscore": 10}, ["result-history", "filter-result", "score-result", "finalscore-result"]),
        ({"filter": 60, "score": 60, "finalscore": 60}, ["filter-result", "score-result", "finalscore-result"]),
        ({"filter": 150, "score": 60, "finalscore": 60}, ["score-result", "finalscore-result"]),
        ({"filter": 10, "score": 250, "finalscore": 10}, ["finalscore-result"]),
        ({"filter": 10, "score": 10, "finalscore": 250}, []),
    ],
)  # fmt: skip
def test_what_is_too_much_for_a_pod_goes_in_this_order(sizes, left):
    answers = {f"{name}-result": "x" * (kib * 1024) for name, kib in sizes.items()}

    found = kept({"selected-node": "n1", **answers}).fitting("u")

    assert sorted(found) == sorted(PREFIX + name for name in ("selected-node", *left))


def test_the_pods_that_were_tried_last_are_remembered():
    records = SimulatorRecords()
    for number in range(RECORDS_MAX):
        records.keep(f"u{number}", {})
    records.keep("u0", {})
    records.keep("new", {})

    assert [bool(records.whole(uid)) for uid in ("u0", "u1", "u2", "new")] == [True, False, True, True]
