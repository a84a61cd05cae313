"""What a kubelet counts of starts and ends, by upstream's names."""

SLI, START = "kubelet_pod_start_sli_duration_seconds", "kubelet_pod_start_duration_seconds"


def test_kubelet_10_starts_are_counted_without_pulls_and_init_containers(simulate):
    async def scenario(w):
        spec = {"initContainers": [{"name": "setup", "image": "setup"}]}
        notes = {"keplab.dev/run": "pull 20s; exit 0 after 30s", "keplab.dev/run.setup": "exit 0 after 7s"}
        await w.create("p", spec={**spec, "restartPolicy": "Never"}, annotations=notes)
        await w.until_pod("p", lambda pod: pod["status"].get("phase") == "Succeeded", limit_s=90)
        return w.process.metrics()

    found = simulate(scenario, latency=("all=constant:0", "create=constant:1"))

    assert (found[f"{SLI}_count"], found[f"{START}_count"]) == (1, 1)
    assert 2.0 <= found[f"{SLI}_sum"] < 4.5
    assert 1.0 <= found[f"{START}_sum"] < 1.5
    assert found['kubelet_pod_worker_duration_seconds_count{operation_type="create"}'] == 1
    assert found['kubelet_pod_worker_duration_seconds_count{operation_type="kill"}'] == 1
    assert found["kubelet_evented_pleg_connection_success_count"] == 1
