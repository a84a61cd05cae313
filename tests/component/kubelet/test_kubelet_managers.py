"""Nodes with static CPU and memory policies, as their pods and the next kubelet find them."""

import dataclasses

import pytest

from kubelet.node.definition import NodeDefinition
from services.api.meta import Key
from services.runtime.config import StartError

STATIC = {"name": "n1", "cpu": "8", "cpuPolicy": "static", "threadsPerCore": 2, "reservedCpus": 2}
MEMORY = {
    "name": "n1", "numa": "2x4", "memory": "8Gi", "memoryPolicy": "Static", "hugepages": {"hugepages-2Mi": "8Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}  # fmt: skip


def phase(wanted):
    return lambda pod: pod is not None and pod["status"].get("phase") == wanted


async def restart(w, **changes):
    """The next kubelet, of a node that is defined otherwise."""
    w.kill_kubelet()
    node = NodeDefinition.parse(STATIC | changes)
    w.config = dataclasses.replace(w.config, definitions=(node,))
    await w.start_kubelet()


def owned(w):
    """Each pod's exclusive CPUs."""
    return {worker.pod.metadata.name: worker.allocation.cpus for worker in w.agent().kubelet.table.pods.values()}


def test_kubelet_6_a_restarted_kubelet_leaves_pods_the_cpus_they_have(simulate):
    async def scenario(w):
        await w.create("a", cpu="2")
        await w.create("b", cpu="1")
        await w.until_pod("b", phase("Running"))
        before = owned(w)
        await w.delete("a", grace_s=0)
        await restart(w)
        await w.create("c", cpu="4")
        await w.until_pod("c", phase("Running"))
        return before, owned(w)

    before, after = simulate(scenario, nodes=(STATIC,))

    assert before == {"a": (1, 5), "b": (2,)}
    assert after == {"b": (2,), "c": (1, 3, 5, 7)}


def test_kubelet_5_4_a_kubelet_whose_policy_changed_does_not_start(simulate):
    async def scenario(w):
        await w.create("a", cpu="2")
        await w.until_pod("a", phase("Running"))
        with pytest.raises(StartError) as refused:
            await restart(w, cpuPolicy="none")
        return str(refused.value)

    assert 'configured policy "none" differs from state checkpoint policy "static"' in simulate(
        scenario, nodes=(STATIC,)
    )


def test_options_of_alpha_level_want_their_gate(simulate):
    async def scenario(w):
        return w.agent().kubelet.managers.cpus.free

    node = STATIC | {"cpuOptions": {"distribute-cpus-across-cores": "true"}}
    with pytest.raises(StartError, match="node n1: CPU Manager Policy Alpha-level Options not enabled, but option"):
        simulate(scenario, nodes=(node,))
    assert simulate(scenario, nodes=(node,), switches=("CPUManagerPolicyAlphaOptions=true",)) == {2, 3, 4, 5, 6, 7}


def sized(memory, pages=""):
    amounts = {"cpu": "500m", "memory": memory, **({"hugepages-2Mi": pages} if pages else {})}
    return {"containers": [{"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}]}


def test_huge_pages_are_a_resource_of_the_node_and_fit_like_any_other(simulate):
    async def scenario(w):
        node = await w.admin.get("nodes", Key("", "n1"))
        await w.create("a", spec=sized("64Mi", "6Mi"))
        await w.until_pod("a", phase("Running"))
        await w.create("b", spec=sized("64Mi", "4Mi"))
        return node["status"], await w.until_pod("b", phase("Failed"))

    node, pod = simulate(scenario, nodes=(MEMORY | {"memoryPolicy": "None"},))

    assert (node["capacity"]["hugepages-2Mi"], node["allocatable"]["hugepages-2Mi"]) == ("8Mi", "8Mi")
    assert (node["capacity"]["memory"], node["allocatable"]["memory"]) == ("8Gi", "7160Mi")
    assert pod["status"]["reason"] == "OutOfhugepages-2Mi"
    assert pod["status"]["message"].endswith("hugepages-2Mi, requested: 4194304, used: 6291456, capacity: 8388608")


def test_memory_that_is_nowhere_in_one_piece_fails_the_pod_with_upstream_s_words(simulate):
    async def scenario(w):
        for name, memory in (("a", "2Gi"), ("b", "3Gi")):
            await w.create(name, spec=sized(memory))
            await w.until_pod(name, phase("Running"))
        await w.create("c", spec=sized("1500Mi"))
        pod = await w.until_pod("c", phase("Failed"))
        return pod["status"], w.process.metrics()

    status, metrics = simulate(scenario, nodes=(MEMORY,))

    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"] == (
        "Pod was rejected: Allocate failed due to [memorymanager] failed to get the default NUMA affinity, "
        "no NUMA nodes with enough memory is available, which is unexpected"
    )
    assert metrics["kubelet_memory_manager_pinning_requests_total"] == 3
    assert metrics["kubelet_memory_manager_pinning_errors_total"] == 1


def test_kubelet_10_what_managers_decide_is_counted(simulate):
    async def scenario(w):
        await w.create("a", cpu="2")
        await w.create("b", cpu="3")
        await w.until_pod("b", phase("Failed"))
        await w.until_pod("a", phase("Running"))
        return w.process.metrics()

    options = {"topologyPolicy": "single-numa-node", "fullPcpusOnly": True}
    metrics = simulate(scenario, nodes=(STATIC | options,))

    assert {name.removeprefix("kubelet_"): metrics[name] for name in metrics if "_manager_" in name} == {
        "topology_manager_admission_requests_total": 2,
        "topology_manager_admission_errors_total": 1,
        "topology_manager_admission_duration_ms_sum": 0,
        "topology_manager_admission_duration_ms_count": 2,
        'topology_manager_admission_duration_ms_bucket{le="+Inf"}': 2,
        "cpu_manager_pinning_requests_total": 2,
        "cpu_manager_pinning_errors_total": 1,
        "cpu_manager_shared_pool_size_millicores": 6000,
        "cpu_manager_exclusive_cpu_allocation_count": 2,
    }
    aligned = "kubelet_container_aligned_compute_resources"
    assert metrics[f'{aligned}_count{{scope="container",boundary="numa_node"}}'] == 1
    assert metrics[f'{aligned}_count{{scope="container",boundary="physical_cpu"}}'] == 1
    assert metrics[f'{aligned}_failure_count{{scope="container",boundary="physical_cpu"}}'] == 1


def test_kep_1287_static_memory_refuses_a_guaranteed_pods_memory(simulate):
    async def scenario(w):
        await w.create("p", spec=sized("1Gi"))
        await w.until_pod("p", phase("Running"))
        resources = {"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}}
        body = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
        await w.admin.patch("pods", Key("default", "p"), body, subresource="resize", patch_type="strategic")

        def pending(pod):
            return next((c for c in pod["status"]["conditions"] if c["type"] == "PodResizePending"), None)

        pod = await w.until_pod("p", pending)
        return pending(pod), w.process.metrics()

    condition, metrics = simulate(scenario, nodes=(MEMORY,))

    assert condition["reason"] == "Infeasible"
    assert condition["message"] == 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'
    detail = "guaranteed_pod_memory_manager_static_policy"
    assert metrics[f'kubelet_pod_infeasible_resizes_total{{reason_detail="{detail}"}}'] == 1
