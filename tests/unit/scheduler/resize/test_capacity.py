"""A node with pods taken off and put back in thought: what is short there for a pod of it (kep-5836 6.2)."""

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import TOO_MANY_PODS
from scheduler.framework.status import Code
from scheduler.preemption.units import Unit, pod_unit
from scheduler.resize.fit import NodeCapacity

GPU = "example.com/gpu"


@pytest.fixture
def node(cluster, a):
    """A node of four CPUs with room for three pods: p, which asks for a CPU, and q and r."""

    def made(**more):
        pods = [a.pod(name, cpu=cpu, node="n1") for name, cpu in (("p", "1"), ("q", "2"), ("r", "1"))]
        world = cluster().nodes(a.node("n1", **{"cpu": "4", "pods": "3", **more})).pods(*pods)
        return world.cache.nodes["n1"]

    return made


def reasons(capacity):
    return list(capacity.fits().reasons)


def capacity_of(node, need=None, **more):
    return NodeCapacity(node, node.pods["p"], {"cpu": 1000} if need is None else need, **more)


def test_a_pod_counts_twice_where_pods_are_limited_as_upstream_counts_unless_that_is_adjusted(node):
    assert reasons(capacity_of(node())) == [TOO_MANY_PODS]
    assert reasons(capacity_of(node(), adjusts_pod_count=True)) == []
    assert reasons(capacity_of(node(), without_self=True)) == []


def test_a_pod_that_leaves_makes_place_for_another_until_it_is_put_back(node):
    here = node()
    capacity, unit = capacity_of(here), pod_unit(here.pods["q"])

    capacity.remove(unit)
    without = reasons(capacity)
    capacity.add(unit)

    assert (without, reasons(capacity)) == ([], [TOO_MANY_PODS])


def test_what_a_unit_uses_is_free_once_however_often_it_is_removed_and_used_once_however_often_it_is_added(node):
    here = node(pods="9")
    capacity, unit = capacity_of(here, {"cpu": 3500}), pod_unit(here.pods["q"])

    found = [capacity.shortage()]
    for change in (capacity.add, capacity.remove, capacity.remove, capacity.add, capacity.add):
        change(unit)
        found.append(capacity.shortage())

    short, enough = {"cpu": 2500}, {"cpu": 500}
    assert found == [short, short, enough, enough, short, short]


def test_pods_of_other_nodes_make_no_difference(node, a):
    here = node()
    capacity, elsewhere = capacity_of(here), PodInfo(a.pod("elsewhere", cpu="3", node="n2"))

    capacity.remove(Unit((elsewhere, here.pods["r"]), 0, 0.0))
    capacity.add(Unit((elsewhere,), 0, 0.0))

    assert reasons(capacity) == []
    assert capacity.shortage() == {}


def test_nominated_rivals_count_as_pods_and_for_what_they_ask(node, a):
    rival = PodInfo(a.pod("rival", cpu="500m"))
    capacity = capacity_of(node(pods="4"), rivals=[rival])

    assert reasons(capacity) == [TOO_MANY_PODS, "Insufficient cpu"]
    assert capacity.shortage() == {"cpu": 500}


def test_other_pods_count_for_what_the_rules_say_and_the_pod_for_what_it_has(node):
    capacity = capacity_of(node(pods="9"), {"cpu": 3000}, count=lambda pod: {"cpu": 500})

    assert capacity.shortage() == {}
    assert capacity_of(node(pods="9"), {"cpu": 3000}).shortage() == {"cpu": 2000}


@pytest.mark.parametrize(
    ("need", "code"),
    [(2000, Code.UNSCHEDULABLE), (4000, Code.UNSCHEDULABLE), (4001, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)],
)
def test_no_eviction_helps_a_pod_that_asks_for_more_than_the_node_has(node, need, code):
    status = capacity_of(node(pods="9"), {"cpu": need}).fits()

    assert (status.code, status.reasons) == (code, ("Insufficient cpu",))


def test_of_an_extended_resource_only_what_is_asked_for_beyond_has_to_be_there(node, a):
    here = node(pods="9", **{GPU.replace("/", "__"): "1"})
    pod = PodInfo(replace(a.pod("p", node="n1", requests={GPU: "2"}), metadata=here.pods["p"].pod.metadata))
    here.pods["p"] = pod

    assert [NodeCapacity(here, pod, {GPU: number}).fits().code for number in (3, 4)] == [
        Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    ]  # fmt: skip


def test_everything_that_is_short_is_named_in_upstreams_order(node):
    need = {GPU: 1, "memory": 1 << 40, "cpu": 9000, "ephemeral-storage": 0}

    assert reasons(capacity_of(node(), need)) == [
        TOO_MANY_PODS, "Insufficient cpu", "Insufficient memory", f"Insufficient {GPU}",
    ]  # fmt: skip
