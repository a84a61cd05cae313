"""`would_fit_if`: the smallest change of one dimension, and that it is true."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.cache.node_info import PodInfo
from scheduler.explain.would_fit import Filters, missing_labels, with_request, would_fit_if
from services.api.kinds.node import Taint
from services.api.kinds.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
)
from services.api.meta import LabelSelector


def ask(world, pod):
    filters = Filters(world.runner, world.cache, world.queue.nominator, 0.0)
    return {change.dimension: change for change in would_fit_if(filters, PodInfo(pod))}


def test_a_pod_that_fits_needs_no_change(cluster, a):
    assert ask(cluster().nodes(a.node("n1")), a.pod(cpu="1")) == {}


def test_without_nodes_no_change_helps(cluster, a):
    assert ask(cluster(), a.pod(cpu="1")) == {}


def test_the_largest_request_that_fits_is_what_the_emptiest_node_has_free(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="4"), a.node("n2", cpu="4"))
    world.pods(a.pod("x", cpu="1500m", node="n1"), a.pod("y", cpu="3", node="n2"))

    found = ask(world, a.pod(cpu="3"))

    assert found["cpu"].after == "2500m"
    assert found["cpu"].nodes == ("n1",)


def test_two_resources_that_are_both_short_are_not_cured_by_one(cluster, a):
    found = ask(cluster().nodes(a.node("n1", cpu="2", memory="2Gi")), a.pod(cpu="3", memory="3Gi"))

    assert "cpu" not in found
    assert "memory" not in found


def test_one_toleration_is_named_only_where_it_suffices(cluster, a):
    gpu, old = Taint(key="dedicated", value="gpu", effect="NoSchedule"), Taint(key="old", effect="NoExecute")
    world = cluster().nodes(a.node("n1", taints=(gpu,)), a.node("n2", taints=(gpu, old)))

    found = ask(world, a.pod())

    assert found["taint"].change == "tolerate dedicated=gpu:NoSchedule"
    assert found["taint"].nodes == ("n1",)


def test_a_cordoned_node_is_cured_by_tolerating_its_taint(cluster, a):
    found = ask(cluster().nodes(a.node("n1", unschedulable=True)), a.pod())

    assert found["taint"].change == "tolerate node.kubernetes.io/unschedulable:NoSchedule"


def test_the_node_that_lacks_fewest_labels_is_to_be_labelled(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2", labels={"disk": "ssd"}), a.node("n3", labels={"zone": "b"}))

    found = ask(world, a.pod(node_selector={"disk": "ssd", "zone": "a", "rack": "r1"}))

    assert found["label"].change == "label node n2 rack=r1 zone=a"
    assert (found["label"].before, found["label"].after) == ("", "rack=r1, zone=a")
    assert (found["label"].nodes, found["label"].node_count) == (("n2",), 1)


def test_a_label_of_another_value_is_to_be_changed(cluster, a):
    found = ask(cluster().nodes(a.node("n1", labels={"disk": "hdd"})), a.pod(node_selector={"disk": "ssd"}))["label"]

    assert (found.change, found.before, found.after) == ("label node n1 disk=ssd", "disk=hdd", "disk=ssd")


def test_a_label_that_the_affinity_forbids_is_to_be_removed(cluster, a):
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="spot", operator="DoesNotExist"),))
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))
    world = cluster().nodes(a.node("n1", labels={"spot": "yes"}))

    assert ask(world, a.pod(affinity=affinity))["label"].change == "label node n1 spot-"


def test_labels_that_a_selector_wants_are_found_beside_any_affinity_to_pods(cluster, a):
    world = cluster().nodes(a.node("n1"))
    away = PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=LabelSelector(match_labels={"a": "b"}))
    affinity = Affinity(pod_anti_affinity=PodAffinity(required=(away,)))

    found = ask(world, a.pod(affinity=affinity, node_selector={"disk": "ssd"}))

    assert found["label"].change == "label node n1 disk=ssd"


def test_labels_do_not_help_where_the_node_is_full_as_well(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="1"))

    assert ask(world, a.pod(cpu="2", node_selector={"disk": "ssd"})) == {}


def wanting(a, *requirements, fields=(), **pod):
    """A pod whose node must meet one of these terms, each a sequence of (key, operator, values)."""
    terms = tuple(
        NodeSelectorTerm(
            match_expressions=tuple(NodeSelectorRequirement(key=k, operator=o, values=v) for k, o, v in term)
        )
        for term in requirements
    )
    required = NodeSelector(node_selector_terms=(*fields, *terms))
    return PodInfo(a.pod(affinity=Affinity(node_affinity=NodeAffinity(required=required)), **pod))


@pytest.mark.parametrize(
    ("requirement", "labels", "changes"),
    [
        (("k", "In", ("a", "b")), {}, {"k": "a"}),
        (("k", "In", ("a", "b")), {"k": "b"}, {}),
        (("k", "In", ()), {}, {}),
        (("k", "Exists", ()), {}, {"k": ""}),
        (("k", "NotIn", ("a",)), {"k": "a"}, {"k": None}),
        (("k", "DoesNotExist", ()), {"k": "a"}, {"k": None}),
        (("k", "Gt", ("5",)), {}, {"k": "6"}),
        (("k", "Lt", ("5",)), {"k": "9"}, {"k": "4"}),
        (("k", "Lt", ("-5",)), {}, {"k": "-6"}),
        (("k", "Gt", ("x",)), {}, {}),
        (("k", "Gt", ("5", "6")), {}, {}),
        (("k", "Like", ("a",)), {}, {}),
    ],
)
def test_a_requirement_is_met_by_the_label_that_it_asks_for(a, requirement, labels, changes):
    assert missing_labels(wanting(a, [requirement]), labels) == changes


def test_of_several_terms_the_one_that_wants_fewest_changes_is_met(a):
    two, one = [("a", "Exists", ()), ("b", "Exists", ())], [("c", "In", ("x",))]
    named = NodeSelectorTerm(
        match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("n9",)),)
    )

    assert missing_labels(wanting(a, two, one), {}) == {"c": "x"}
    assert missing_labels(wanting(a, two, one), {"a": "", "b": ""}) == {}
    assert missing_labels(wanting(a, one, fields=(named,)), {}) == {"c": "x"}, "a node's name cannot be changed"
    assert missing_labels(wanting(a, [("c", "Like", ())], two), {}) == {"a": "", "b": ""}


def test_the_selector_and_the_affinity_are_met_together(a):
    pod = wanting(a, [("zone", "In", ("a",)), ("disk", "NotIn", ("hdd",))], node_selector={"disk": "ssd"})

    assert missing_labels(pod, {"disk": "hdd"}) == {"disk": "ssd", "zone": "a"}
    assert missing_labels(wanting(a, [("k", "In", ("a",)), ("k", "Gt", ("5",))]), {}) == {}


def test_taints_that_keep_no_pod_off_or_are_tolerated_are_not_asked_about(cluster, a):
    soft = Taint(key="soft", effect="PreferNoSchedule")
    gpu, own = Taint(key="gpu", effect="NoSchedule"), Taint(key="own", value="x", effect="NoExecute")
    tolerated = Toleration(key="own", operator="Exists")
    world = cluster().nodes(a.node("n1", taints=(soft, gpu, own)))

    found = ask(world, a.pod(tolerations=(tolerated,)))

    assert (found["taint"].change, found["taint"].after) == ("tolerate gpu:NoSchedule", "gpu:NoSchedule")


def test_a_resource_of_which_no_node_has_any_may_be_asked_for_in_no_amount(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="2")).pods(a.pod("x", cpu="2", node="n1"))

    found = ask(world, a.pod(cpu="1"))["cpu"]

    assert (found.change, found.before, found.after) == ("request at most 0 cpu", "1", "0")


def test_at_most_three_nodes_are_named_of_those_where_it_would_fit(cluster, a):
    found = ask(cluster().nodes(*(a.node(f"n{number}", cpu="1") for number in range(5))), a.pod(cpu="2"))["cpu"]

    assert (found.nodes, found.node_count) == (("n0", "n1", "n2"), 5)


def test_several_victims_are_counted(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="2"))
    world.pods(*(a.pod(name, cpu="1", node="n1", priority=1) for name in ("x", "y")))

    found = ask(world, a.pod(cpu="2"))["priority"]

    assert found.change in (
        "priority 2, which preempts default/x and 1 more",
        "priority 2, which preempts default/y and 1 more",
    )
    assert (found.before, found.after) == ("0", "2")


def test_conflicting_requirements_on_one_label_have_no_answer(a):
    wants = [NodeSelectorRequirement(key="k", operator=op, values=v) for op, v in (("In", ("a",)), ("In", ("b",)))]
    term = NodeSelectorTerm(match_expressions=tuple(wants))
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))

    assert missing_labels(PodInfo(a.pod(affinity=affinity)), {}) == {}


def test_the_lowest_priority_that_may_preempt_is_named_with_whom_it_evicts(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="2"), a.node("n2", cpu="2"))
    world.pods(a.pod("x", cpu="2", node="n1", priority=50), a.pod("y", cpu="2", node="n2", priority=10))

    found = ask(world, a.pod(cpu="2", priority=5))

    assert found["priority"].change == "priority 11, which preempts default/y"
    assert found["priority"].nodes == ("n2",)


def test_priority_does_not_help_a_pod_that_never_preempts(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="2")).pods(a.pod("x", cpu="2", node="n1", priority=50))

    assert "priority" not in ask(world, a.pod(cpu="2", preemption_policy="Never"))


def test_a_taken_host_port_is_named(cluster, a):
    world = cluster().nodes(a.node("n1")).pods(a.pod("x", port=80, node="n1"))

    assert ask(world, a.pod(port=80))["hostPort"].change == "ask for no host port (TCP 80)"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(free=st.lists(st.integers(0, 40), min_size=1, max_size=6), asked=st.integers(1, 60))
def test_the_answer_fits_and_a_little_more_does_not(cluster, a, free, asked):
    world = cluster().nodes(*(a.node(f"n{i}", cpu=f"{f * 100}m") for i, f in enumerate(free)))
    pod = a.pod(cpu=f"{asked * 100}m")
    found = ask(world, pod)
    filters = Filters(world.runner, world.cache, world.queue.nominator, 0.0)

    if asked <= max(free):
        assert found == {}
    elif max(free) > 0:
        most = 100 * max(free)
        assert filters.fitting(with_request(PodInfo(pod), "cpu", most)).any()
        assert not filters.fitting(with_request(PodInfo(pod), "cpu", most + 1)).any()
        assert found["cpu"].after in (f"{most}m", str(most // 1000))
