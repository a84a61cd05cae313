"""Topology, CPU and device managers: who may have which CPUs where."""

import pytest

from kubelet.managers.allocation import Allocation, DeviceRejection, Rejection
from kubelet.managers.device_calls import Share
from kubelet.managers.options import CpuOptions, TopologyOptions, parse_cpu_options, parse_topology_options
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.managers.topology import Hint, counted_hints

TWO_BY_EIGHT = {"numa": "2x8"}


def test_no_options_are_upstreams_defaults():
    assert TopologyOptions() == parse_topology_options({}) == TopologyOptions(False, 8)
    assert CpuOptions() == parse_cpu_options({}) == CpuOptions(*[False] * 6)


def test_six_cpus_with_four_free_on_each_node_prefer_one_node_and_get_none():
    assert counted_hints(6, [4, 4], [8, 8]) == [Hint(0b11, False)]


@pytest.mark.parametrize(
    ("policy", "admits"), [("none", True), ("best-effort", True), ("restricted", False), ("single-numa-node", False)]
)
def test_kubelet_10_six_cpus_over_two_half_free_numa_nodes_are_rejected(a_node, guaranteed, policy, admits):
    managers = ResourceManagers(a_node(**TWO_BY_EIGHT, topologyPolicy=policy, cpuPolicy="static"))
    managers.take(Allocation(cpus=(0, 1, 2, 3, 8, 9, 10, 11)))

    outcome = managers.admit(guaranteed("p", "6"))

    assert isinstance(outcome, Allocation) is admits
    if not admits:
        assert outcome == Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
        assert len(managers.cpus.free) == 8


@pytest.mark.parametrize(("scope", "admits"), [("container", True), ("pod", False)])
def test_kubelet_11_two_containers_of_five_cpus_fit_by_container_and_not_by_pod(a_node, guaranteed, scope, admits):
    node = a_node(**TWO_BY_EIGHT, topologyPolicy="single-numa-node", topologyScope=scope)

    outcome = ResourceManagers(node).admit(guaranteed("p", "5", "5"))

    assert isinstance(outcome, Allocation) is admits
    if admits:
        assert sorted(c // 8 for c in outcome.cpus) == [0] * 5 + [1] * 5


def test_kubelet_12_three_cpus_on_two_thread_cores_are_an_smt_alignment_error(a_node, guaranteed):
    node = a_node(numa="1x8", cpuPolicy="static", threadsPerCore=2, fullPcpusOnly=True)

    outcome = ResourceManagers(node).admit(guaranteed("p", "3"))

    message = "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    assert outcome == Rejection("SMTAlignmentError", message)


def test_what_a_rejected_pod_had_taken_is_free_at_once(a_node, guaranteed):
    node = a_node(**TWO_BY_EIGHT, topologyPolicy="single-numa-node")
    managers = ResourceManagers(node)
    managers.take(Allocation(cpus=(8, 9, 10, 11)))

    assert isinstance(managers.admit(guaranteed("p", "5", "5")), Rejection)

    assert isinstance(managers.admit(guaranteed("q", "5")), Allocation)
    assert isinstance(managers.admit(guaranteed("r", "3")), Allocation)


def test_only_guaranteed_pods_with_whole_cpus_get_exclusive_ones(a_node, guaranteed, a_pod):
    managers = ResourceManagers(a_node(numa="1x8", cpuPolicy="static"))

    assert managers.admit(guaranteed("a", "1500m")).cpus == ()
    assert managers.admit(a_pod("b", cpu="2", limits=False)).cpus == ()
    assert managers.admit(guaranteed("c", "2")).cpus == (0, 1)


def test_devices_and_cpus_of_a_pod_come_from_the_same_numa_node(a_node, a_pod):
    numa = [{"cpus": 8}, {"cpus": 8, "devices": {"example.com/gpu": 2}}]
    managers = ResourceManagers(a_node(numa=numa, topologyPolicy="single-numa-node"))
    amounts = {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}
    pod = a_pod(containers=[{"name": "c", "resources": {"requests": amounts, "limits": amounts}}])

    outcome = managers.admit(pod)

    assert (outcome.cpus, outcome.devices) == ((8, 9), (Share("c", "example.com/gpu", ("gpu-1-0",)),))
    managers.release(outcome)
    assert managers.devices.counts_by_numa() == {"example.com/gpu": ([0, 2], [0, 2])}


def test_too_few_devices_are_an_unexpected_admission_error_with_both_numbers(a_node, a_pod):
    managers = ResourceManagers(a_node(extended={"example.com/gpu": 1}))
    pod = a_pod(containers=[{"name": "c", "resources": {"limits": {"example.com/gpu": "2"}}}])

    assert managers.admit(pod) == DeviceRejection(
        "UnexpectedAdmissionError",
        "Allocate failed due to requested number of devices unavailable for example.com/gpu. "
        "Requested: 2, Available: 1, which is unexpected",
    )


def test_a_main_container_reuses_the_cpus_of_a_plain_init_container(a_node, a_pod):
    managers = ResourceManagers(a_node(numa="1x4", cpuPolicy="static"))
    four = {"cpu": "4", "memory": "1Gi"}
    resources = {"requests": four, "limits": four}
    init = [{"name": "i", "resources": resources}]
    pod = a_pod(containers=[{"name": "c", "resources": resources}], spec={"initContainers": init})

    assert managers.admit(pod).cpus == (0, 1, 2, 3)


def _asking(**limits):
    return {"limits": {"example.com/gpu": "1"} | limits}


def test_a_main_container_takes_over_the_device_of_a_plain_init_container_and_a_sidecar_keeps_its_own(a_node, a_pod):
    managers = ResourceManagers(a_node(extended={"example.com/gpu": 3}))
    init = [{"name": "i", "resources": _asking()}, {"name": "s", "restartPolicy": "Always", "resources": _asking()}]
    pod = a_pod(containers=[{"name": "c", "resources": _asking()}], spec={"initContainers": init})

    outcome = managers.admit(pod)

    # The sidecar takes over what the init container had; the main container needs one of its own.
    assert {share.container: share.ids for share in outcome.devices} == {
        "i": ("gpu-0",), "s": ("gpu-0",), "c": ("gpu-1",)
    }  # fmt: skip
    managers.release(outcome)
    assert managers.devices.free("example.com/gpu") == 3


def test_with_scope_pod_every_container_has_devices_of_its_own_inside_the_pods_mask(a_node, a_pod):
    numa = [{"cpus": 8, "devices": {"example.com/gpu": 1}}, {"cpus": 8, "devices": {"example.com/gpu": 2}}]
    managers = ResourceManagers(a_node(numa=numa, topologyPolicy="single-numa-node", topologyScope="pod"))
    pod = a_pod(containers=[{"name": name, "resources": _asking()} for name in "ab"])

    outcome = managers.admit(pod)

    assert outcome.devices == (
        Share("a", "example.com/gpu", ("gpu-1-0",)), Share("b", "example.com/gpu", ("gpu-1-1",))
    )  # fmt: skip
