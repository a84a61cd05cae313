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
