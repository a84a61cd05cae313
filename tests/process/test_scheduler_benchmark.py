from lab.benchmarks.scheduler_mesh import bench_scheduler_mesh
from lab.benchmarks.workloads.register import workload


def test_a_workload_is_played_to_an_api_server_and_a_scheduler_of_their_own():
    chosen = workload("Unschedulable")

    result = bench_scheduler_mesh(chosen, chosen.size(10, pods=30))

    assert (result.form, result.pods) == ("mesh", 30)
    assert result.pods_per_s > 0
    assert set(result.rss_mib) == {"apiserver", "scheduler"}
    assert set(result.cpu_us_per_pod_by_process) == {"apiserver", "scheduler", "load"}
    assert result.by_plugin["NodeResourcesFit"] > 0
    assert 0 < result.units_per_pod < result.cpu_us_per_pod
