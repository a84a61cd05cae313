"""One cycle: messages, scores, sampling, order, nomination (scheduler-queue-and-cycles 3, 4, 6, 12)."""

from __future__ import annotations

import pytest

from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cycle.scheduling_cycle import nodes_to_find
from scheduler.framework.arrangement import Enabled
from scheduler.framework.cycle_state import CycleError, CycleState
from scheduler.framework.status import Code, Status
from scheduler.plugins.node_resources_fit import ResourceArgs, StrategyArgs
from services.api.kinds.node import Taint
from services.api.kinds.pod import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    ResourceRequirements,
)
from services.api.switches import Switches
from tests.unit.scheduler.conftest import new_handle, plugin_of

GPU = Taint(key="dedicated", value="gpu", effect="NoSchedule")


def _five(a, cpu):
    return [*(a.node(f"s{i}", cpu=cpu) for i in range(2)), *(a.node(f"t{i}", taints=(GPU,)) for i in range(3))]


def test_scheduler_queue_and_cycles_08_message_counts_reasons_over_all_nodes(cluster, a):
    error = cluster().nodes(*_five(a, "1")).refuse(a.pod(cpu="2"))

    assert error.refusal == "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint(s)."
    assert error.rejectors == {"NodeResourcesFit", "TaintToleration"}
    assert error.unresolvable.sum() == 5


def test_scheduler_queue_and_cycles_08_nodes_that_are_merely_full_may_be_helped_by_preemption(cluster, a):
    world = cluster().nodes(*_five(a, "4")).pods(a.pod("x", cpu="3", node="s0"), a.pod("y", cpu="3", node="s1"))

    assert world.refuse(a.pod(cpu="2")).unresolvable.sum() == 3


def test_scheduler_queue_and_cycles_08_what_preemption_cannot_do_follows_after_a_blank(cluster, a):
    world = cluster().nodes(*_five(a, "1"))

    assert world.refuse(a.pod(cpu="2")).message == (
        "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint(s). "
        "no new claims to deallocate, preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling."
    )


def test_one_node_may_contribute_several_fit_reasons_sorted_as_text(cluster, a):
    error = cluster().nodes(a.node(cpu="1", memory="1Gi", pods="0")).refuse(a.pod(cpu="2", memory="2Gi"))

    assert error.refusal == "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods."


def test_without_nodes_there_is_nothing_to_explain(cluster, a):
    result = cluster().cycle.schedule(PodInfo(a.pod()), 0.0)

    assert result == CycleError("no nodes available to schedule pods", is_rejection=True)


def _score(plugin, pod, node, *there, memory=8 * 2**30):
    info = NodeInfo(node.metadata.name)
    info.node = node
    info.allocatable = {"cpu": 4000, "memory": memory, "pods": 110}
    for other in there:
        info.add(PodInfo(other))
    return plugin.score(CycleState(), PodInfo(pod), info)


@pytest.fixture
def scene(a):
    """n1 holds 1000m and 2Gi, n2 3000m and 2Gi; the pod asks for 500m and 1Gi."""

    def score(plugin):
        pod = a.pod("p", cpu="500m", memory="1Gi")
        n1 = _score(plugin, pod, a.node("n1"), a.pod("x", cpu="1", memory="2Gi"))
        n2 = _score(plugin, pod, a.node("n2"), a.pod("y", cpu="3", memory="2Gi"))
        return n1, n2

    return score


def test_scheduler_queue_and_cycles_09_least_allocated_gives_62_and_37(scene):
    assert scene(plugin_of("NodeResourcesFit")) == (62, 37)


def test_scheduler_queue_and_cycles_10_most_allocated_gives_37_and_62(scene):
    assert scene(plugin_of("NodeResourcesFit", scoring_strategy=StrategyArgs(type="MostAllocated"))) == (37, 62)


def test_scheduler_queue_and_cycles_11_requested_to_capacity_ratio_gives_37_and_87(scene):
    strategy = StrategyArgs(type="RequestedToCapacityRatio", resources=(ResourceArgs("cpu"),))

    assert scene(plugin_of("NodeResourcesFit", scoring_strategy=strategy)) == (37, 87)


def test_scheduler_queue_and_cycles_12_balanced_v135_scores_the_balance_itself(a):
    plugin = plugin_of("NodeResourcesBalancedAllocation", new_handle(Switches({"balanced.formula": "v135"})))
    even = _score(plugin, a.pod("p", cpu="1", memory="2Gi"), a.node(), a.pod("x", cpu="1", memory="2Gi"))
    skewed = _score(plugin, a.pod("p", cpu="600m"), a.node(), a.pod("x", cpu="3", memory="1Gi"), memory=10 * 2**30)

    assert (even, skewed) == (100, 60)


def test_scheduler_queue_and_cycles_12_balanced_v136_scores_what_the_pod_makes_of_it(a):
    plugin = plugin_of("NodeResourcesBalancedAllocation", new_handle(Switches({"balanced.formula": "v136"})))
    better = _score(plugin, a.pod("p", memory="4Gi"), a.node(), a.pod("x", cpu="2"))
    worse = _score(plugin, a.pod("p", cpu="2"), a.node())

    assert (better, worse) == (87, 62)


def test_scheduler_queue_and_cycles_15_sampling_stops_at_420_of_1000_and_goes_on_from_there(cluster, a):
    world = cluster(scheduler__percentage_of_nodes_to_score=0).nodes(*(a.node(f"n{i}") for i in range(1000)))

    first = world.schedule(a.pod("p"))

    assert (first.feasible, first.evaluated, world.cycle.rotation.next_start) == (420, 420, 420)
    world.schedule(a.pod("q"))
    assert world.cycle.rotation.next_start == 840
    world.schedule(a.pod("r"))
    assert world.cycle.rotation.next_start == 260


@pytest.mark.parametrize(("nodes", "found"), [(50, 50), (500, 230), (1000, 420), (5000, 500), (6000, 300)])
def test_the_adaptive_share_of_nodes(nodes, found):
    assert nodes_to_find(nodes, 0) == found


def test_scheduler_queue_and_cycles_16_zone_order_is_a_d_e_b_f_c(cluster, a):
    zones = {"a": "z1", "b": "z1", "c": "z1", "d": "z2", "e": "z3", "f": "z3"}
    world = cluster().nodes(*(a.node(n, labels={"topology.kubernetes.io/zone": z}) for n, z in zones.items()))

    order = [world.cache.columns.nodes[row].name for row in world.cache.order()]

    assert "".join(order) == "adebfc"


def test_scheduler_queue_and_cycles_17_the_nominated_node_wins_if_it_fits_and_is_ignored_if_not(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n9", cpu="2")).pods(a.pod("x", cpu="1", node="n9"))

    assert world.schedule(a.pod("p", cpu="1", nominated="n9")).node_name == "n9"
    assert world.schedule(a.pod("p", cpu="2", nominated="n9")).node_name == "n1"


def test_capacity_is_kept_for_nominated_pods_of_at_least_the_same_priority(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="4"))
    world.queue.nominator.set(PodInfo(a.pod("boss", cpu="3", priority=10)), "n1")

    error = world.refuse(a.pod("p", cpu="2", priority=10))
    assert error.refusal == "0/1 nodes are available: 1 Insufficient cpu."
    assert world.schedule(a.pod("king", cpu="2", priority=11)).node_name == "n1"


def test_ties_are_broken_by_the_seed_alone(cluster, a):
    def choices():
        world = cluster().nodes(*(a.node(f"n{i}") for i in range(50)))
        return [world.schedule(a.pod(f"p{i}")).node_name for i in range(20)]

    assert choices() == choices()
    assert len(set(choices())) > 5


def test_a_preferred_term_that_is_no_label_makes_prescore_fail(cluster, a):
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="x", operator="Gt", values=("-5",)),))
    affinity = Affinity(node_affinity=NodeAffinity(preferred=(PreferredSchedulingTerm(weight=1, preference=term),)))
    result = cluster().nodes(a.node("n1"), a.node("n2")).cycle.schedule(PodInfo(a.pod(affinity=affinity)), 0.0)

    assert isinstance(result, CycleError)
    assert result.message.startswith('running PreScore plugin "NodeAffinity": ')
    assert not result.is_rejection


def test_match_fields_narrow_the_nodes_before_any_filter(cluster, a):
    term = NodeSelectorTerm(
        match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("n2", "nowhere")),)
    )
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))
    world = cluster().nodes(a.node("n1"), a.node("n2", cpu="1"), a.node("n3"))

    assert world.schedule(a.pod(affinity=affinity)).node_name == "n2"
    assert world.refuse(a.pod(cpu="2", affinity=affinity)).refusal == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_host_ports_of_sidecars_conflict_and_of_plain_init_containers_do_not(cluster, a):
    port = (ContainerPort(container_port=1, host_port=8080),)
    sidecar = Container(name="s", restart_policy="Always", ports=port)
    init = Container(name="i", ports=port)
    world = cluster().nodes(a.node("n1")).pods(a.pod("x", node="n1", port=8080, host_ip="10.0.0.1"))

    assert world.refuse(a.pod(init_containers=(sidecar,))).refusal == (
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    )
    assert world.schedule(a.pod(init_containers=(init,))).node_name == "n1"
    assert world.schedule(a.pod(port=8080, host_ip="10.0.0.2")).node_name == "n1"


def test_an_extended_resource_that_no_node_has_is_out_of_reach(cluster, a):
    error = cluster().nodes(a.node("n1"), a.node("n2", example_com__gpu="1")).refuse(a.pod(requests={"x.io/fpga": "1"}))

    assert error.refusal == "0/2 nodes are available: 2 Insufficient x.io/fpga."
    assert error.unresolvable.sum() == 2


def test_best_effort_pods_spread_by_assumed_requests(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2")).pods(*(a.pod(f"x{i}", node="n1") for i in range(5)))

    assert world.schedule(a.pod()).node_name == "n2"


def test_an_explicit_zero_request_stays_zero(a):
    explicit = PodInfo(a.pod(requests={"cpu": "0"})).requests
    silent = PodInfo(a.pod()).requests

    assert (explicit.nonzero_cpu, silent.nonzero_cpu) == (0, 100)
    assert explicit.nonzero_memory == silent.nonzero_memory == 200 * 2**20


def test_pod_level_requests_count_in_the_filter_but_not_in_least_allocated(a):
    pod = PodInfo(a.pod(cpu="100m", resources=ResourceRequirements(requests={"cpu": "2"})))

    assert pod.requests.amounts["cpu"] == 2000
    assert (pod.requests.nonzero_cpu, pod.requests.scoring_cpu) == (2000, 100)


def test_a_plugin_for_one_node_works_beside_the_vectorised_ones(cluster, a):
    class OddNodes:
        name = "OddNodes"

        def filter(self, state, pod, node):
            return Status() if int(node.name[1:]) % 2 else Status(Code.UNSCHEDULABLE, ("node is even",))

        def score(self, state, pod, node):
            return 100 if node.name == "n5" else 0

    extra = [Enabled(OddNodes(), 100)]
    world = cluster(extra).nodes(*(a.node(f"n{i}") for i in range(8)))

    assert world.schedule(a.pod()).node_name == "n5"
    assert world.schedule(a.pod()).ranking.scores["OddNodes"] == {"n1": 0, "n3": 0, "n5": 100, "n7": 0}
    world = cluster(extra).nodes(a.node("n0"), a.node("n2"))
    assert world.refuse(a.pod()).refusal == "0/2 nodes are available: 2 node is even."


def test_the_ranking_adds_up_to_what_decided(cluster, a):
    world = cluster().nodes(a.node("n1"), a.node("n2")).pods(a.pod("x", cpu="2", memory="4Gi", node="n1"))
    ranking = world.schedule(a.pod("p", cpu="1", memory="2Gi")).ranking

    assert ranking.scores["TaintToleration"] == {"n1": 100, "n2": 100}
    assert ranking.scores["NodeResourcesFit"] == {"n1": 25, "n2": 75}
    assert ranking.totals == {"n1": 300 + 25 + 75, "n2": 300 + 75 + 75}
