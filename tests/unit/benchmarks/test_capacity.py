"""What a benchmark says before it starts, instead of waiting for ever: pods that its nodes cannot hold are refused."""

import pytest
from click.testing import CliRunner

from lab.benchmarks.mesh import check_fits as check_mesh
from lab.benchmarks.reporting.scheduler_figures import QUICK_RUNS, RUNS
from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.capacity import TooManyPods, check_fits, requests_of
from lab.benchmarks.workloads.ops import SCALED_PODS_MAX, CreateNodes, CreatePods, Size, Workload
from lab.benchmarks.workloads.register import WORKLOADS, workload
from lab.cli.commands.bench import bench as bench_group


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_workload_fits_at_upstreams_sizes(name):
    for size in WORKLOADS[name].sizes:
        check_fits(WORKLOADS[name], size)


def test_each_run_of_the_report_fits():
    for run in (*RUNS, *QUICK_RUNS):
        chosen = workload(run.workload)
        check_fits(chosen, chosen.size(run.nodes, pods=run.pods or None))


@pytest.mark.parametrize(
    ("pods", "node", "capacity", "limit"),
    [
        ({"cpu": "100m", "memory": "1Gi"}, {}, 32, "memory"),
        ({"cpu": "3", "memory": "1Gi"}, {}, 1, "cpu"),
        ({"cpu": "1m", "memory": "1Mi"}, {}, 110, "pods"),
        ({"cpu": "100m", "memory": "1Gi"}, {"memory": "4Gi"}, 4, "memory"),
    ],
)
def test_capacity_is_that_of_the_templates_and_both_figures_are_named(pods, node, capacity, limit):
    chosen = Workload(
        "x", "", (CreateNodes(template=templates.node(**node)), CreatePods(templates.pod("p", requests=pods))), ()
    )
    check_fits(chosen, Size(3, 0, 3 * capacity))

    with pytest.raises(
        TooManyPods, match=f"^{3 * capacity + 1} pods do not fit: 3 nodes hold {3 * capacity} .*by {limit}$"
    ):
        check_fits(chosen, Size(3, 0, 3 * capacity + 1))


def test_pods_that_keep_apart_need_a_node_each():
    assert requests_of(CreatePods(templates.ANTI_AFFINITY)).keys() >= {"nodes without another such pod"}
    chosen = workload("SchedulingPodAntiAffinity")

    with pytest.raises(TooManyPods, match="101 pods do not fit: 100 nodes hold 100 such pods"):
        check_fits(chosen, Size(100, 0, 101))


def test_pods_that_may_wait_and_those_that_are_preempted_take_no_capacity():
    waiting = CreatePods(templates.DEFAULT, "init_pods", may_wait=True)
    check_fits(Workload("x", "", (CreateNodes(), waiting, CreatePods(templates.DEFAULT)), ()), Size(1, 1_000, 40))
    lesser = CreatePods(templates.LOW, "init_pods")
    check_fits(Workload("x", "", (CreateNodes(), lesser, CreatePods(templates.HIGH)), ()), Size(1, 4, 1))


def test_emulated_nodes_hold_110_pods_each():
    check_mesh(2, 220)

    with pytest.raises(TooManyPods, match="221 pods do not fit: 2 nodes hold 220 such pods, limited by pods"):
        check_mesh(2, 221)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("scheduler --form mesh --nodes 1000 --pods 40000", "41,000 pods do not fit: 1,000 nodes hold 40,000"),
        ("scheduler --form mesh --nodes 100 --pods 4000", "4,100 pods do not fit: 100 nodes hold 4,000"),
        ("scheduler --nodes 1 --pods 50", "do not fit: 1 nodes hold 40"),
        ("scheduler --form mesh --nodes 15001", "--form mesh takes 15,000 nodes at most, not 15,001"),
        ("mesh --nodes 1 --pods 111", "111 pods do not fit: 1 nodes hold 110"),
        ("kubelet --nodes 1 --pods 100 --rate 1 --span 11", "111 pods do not fit"),
    ],
)
def test_a_benchmark_refuses_before_it_starts(words, what):
    answer = CliRunner().invoke(bench_group, words.split())

    assert what in answer.output
    assert answer.exit_code == 2


def test_above_upstreams_nodes_pods_are_scaled_no_further():
    chosen = workload("SchedulingBasic")

    assert chosen.size(15_000) == Size(15_000, 3_000, 30_000)
    assert chosen.size(1_000_000) == Size(1_000_000, SCALED_PODS_MAX, SCALED_PODS_MAX)
    assert chosen.size(1_000_000, pods=40_000).pods == 40_000
