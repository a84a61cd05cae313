import pytest

from lab.benchmarks.algorithm import bench_algorithm
from lab.benchmarks.workloads.register import workload


@pytest.mark.parametrize(
    "name", ["SchedulingBasic", "SchedulingNodeAffinity", "Unschedulable", "SchedulingWithMixedChurn"]
)
def test_a_workload_is_played_until_every_measured_pod_has_a_node(name):
    chosen = workload(name)

    result = bench_algorithm(chosen, chosen.size(20, pods=40))

    assert (result.workload, result.form, result.nodes, result.pods) == (name, "algorithm", 20, 40)
    assert result.pods_per_s > 0
    assert result.p50_ms <= result.p99_ms
    assert result.by_plugin["NodeResourcesFit"] > 0
    assert set(result.rss_mib) == {"algorithm"}


def test_evaluated_nodes_are_counted_for_the_measured_pods_alone():
    chosen = workload("SchedulingBasic")

    result = bench_algorithm(chosen, chosen.size(20, init_pods=30, pods=10))

    cpu_s = 1e-6 * result.cpu_us_per_pod * 10
    assert result.node_evaluations_per_core_s == pytest.approx(20 * 10 / cpu_s, rel=0.05)
    assert result.units_per_pod == pytest.approx(result.cpu_us_per_pod / result.unit_us, rel=0.05)
