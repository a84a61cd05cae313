"""One NUMA node must have capacity for each container: what stale, over-reserved and exact knowledge say."""

from random import Random

import msgspec
import pytest

from kubelet.agent.topology_writer import topology_document
from kubelet.managers.allocation import Allocation
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.node.definition import NodeDefinition
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.status import SUCCESS
from services.api.kinds.noderesourcetopology import NodeResourceTopology
from services.api.kinds.pod import Pod
from services.api.switches import Switches
from tests.unit.scheduler.conftest import new_handle, plugin_of

GPU = "example.com/gpu"


def report(*free, scope="container", policy="single-numa-node", counted="", gpus=None, memory=None):
    zones = [
        {
            "name": f"node-{i}",
            "resources": [
                {"name": "cpu", "available": str(cpus)},
                *([{"name": GPU, "available": str(gpus[i])}] if gpus else []),
                *([{"name": "memory", "available": memory[i]}] if memory else []),
            ],
        }
        for i, cpus in enumerate(free)
    ]
    attributes = [
        {"name": "topologyManagerPolicy", "value": policy},
        {"name": "topologyManagerScope", "value": scope},
        {"name": "keplabCountedPods", "value": counted},
    ]
    return msgspec.convert({"metadata": {"name": "n1"}, "attributes": attributes, "zones": zones}, NodeResourceTopology)


def guaranteed(name, *cpus, qos=True, **more):
    amounts = [{"cpu": c, "memory": "1Gi", **more} for c in cpus]
    containers = [
        {"name": f"c{i}", "resources": {"requests": a, **({"limits": a} if qos else {})}} for i, a in enumerate(amounts)
    ]
    return PodInfo(msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": {"containers": containers}}, Pod))


def answer_of(pod, found, *, knowledge="nrt_stale", on_node=()):
    plugin = plugin_of("NodeResourceTopologyMatch", new_handle(Switches({"numa_scheduler": knowledge}), found))
    node = NodeInfo("n1")
    for other in on_node:
        node.pods[other.uid] = other
    status = plugin.filter(CycleState(), pod, node)
    return status if status is SUCCESS else status.message


@pytest.mark.parametrize(
    ("cpus", "scope", "answer"),
    [(("6",), "container", "cannot align container"), (("4", "4"), "container", SUCCESS),
     (("4", "4"), "pod", "cannot align pod"), (("4",), "pod", SUCCESS)],
)  # fmt: skip
def test_unbinding_22_each_container_or_the_pod_needs_one_numa_node(cpus, scope, answer):
    assert answer_of(guaranteed("p", *cpus), report(4, 4, scope=scope)) == answer


def test_unbinding_22_other_policies_and_unreported_nodes_are_not_judged():
    assert answer_of(guaranteed("p", "6"), report(4, 4, policy="restricted")) is SUCCESS
    plugin = plugin_of("NodeResourceTopologyMatch", new_handle(Switches({"numa_scheduler": "oracle"})))
    assert plugin.filter(CycleState(), guaranteed("p", "6"), NodeInfo("n1")) is SUCCESS


def test_unbinding_22_devices_must_come_from_the_zone_of_the_cpus():
    assert answer_of(guaranteed("p", "6", **{GPU: "1"}), report(8, 2, gpus=(0, 1))) == "cannot align container"
    assert answer_of(guaranteed("p", "2", **{GPU: "1"}), report(8, 2, gpus=(0, 1))) is SUCCESS


@pytest.mark.parametrize(
    ("knowledge", "answer"),
    [("nrt_stale", SUCCESS), ("nrt_overreserve", "cannot align container"), ("oracle", SUCCESS)],
)
def test_unbinding_1_1_a_pod_the_report_lacks_is_forgotten_charged_everywhere_or_where_it_went(knowledge, answer):
    first = guaranteed("first", "6")

    assert answer_of(guaranteed("second", "6"), report(8, 8), knowledge=knowledge, on_node=(first,)) == answer


def test_unbinding_1_1_exact_knowledge_refuses_the_third_of_two():
    others = (guaranteed("first", "6"), guaranteed("second", "6"))

    assert answer_of(guaranteed("third", "6"), report(8, 8), knowledge="oracle", on_node=others) == (
        "cannot align container"
    )


def test_unbinding_1_1_a_pod_the_report_includes_is_not_charged_again():
    first = guaranteed("first", "6")

    found = report(2, 8, counted="first")

    assert answer_of(guaranteed("second", "6"), found, knowledge="nrt_overreserve", on_node=(first,)) is SUCCESS


def test_unbinding_1_1_pods_without_exclusive_cpus_do_not_take_any():
    shared = guaranteed("shared", "6", qos=False)

    assert answer_of(guaranteed("p", "6"), report(8), knowledge="oracle", on_node=(shared,)) is SUCCESS


def test_unbinding_1_1_memory_counts_where_it_is_reported_and_only_for_guaranteed_pods():
    found = report(8, 8, memory=("512Mi", "2Gi"))
    one, two = guaranteed("first", "1"), guaranteed("second", "1")

    assert answer_of(guaranteed("p", "1"), found, knowledge="oracle", on_node=(one,)) is SUCCESS
    assert answer_of(guaranteed("p", "1"), found, knowledge="oracle", on_node=(one, two)) == "cannot align container"
    assert answer_of(guaranteed("p", "1", qos=False), found, knowledge="oracle", on_node=(one, two)) is SUCCESS


# --- against the kubelet itself ---


def a_random_pod(random, name):
    def container(at):
        amounts = {"cpu": random.choice(("500m", "1", "2", "3", "5")), "memory": f"{random.randint(1, 5)}Gi"}
        if random.random() < 0.3:
            amounts[GPU] = str(random.randint(1, 2))
        limits = amounts if random.random() < 0.9 else {}
        always = {"restartPolicy": "Always"} if at < 0 and random.random() < 0.4 else {}
        return {"name": f"c{at + 3}", "resources": {"requests": amounts, "limits": limits}, **always}

    spec = {
        "initContainers": [container(-3 + i) for i in range(random.choice((0, 0, 1, 2)))],
        "containers": [container(i) for i in range(random.choice((1, 1, 2)))],
    }
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, Pod)


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("memory", ["None", "Static"])
@pytest.mark.parametrize("seed", range(6))
def test_unbinding_1_1_exact_knowledge_says_what_the_kubelet_will_say(scope, memory, seed):
    """Pods come and go: with a report of a while ago and the pods since then, each answer is the kubelet's.

    But one: memory for a whole pod that no NUMA nodes have is no opinion for upstream's topology manager, so the pod's
    containers may end on several. No scheduler should send a pod there for that.
    """
    random = Random(seed)
    definition = NodeDefinition.parse(
        {
            "name": "n1",
            "numa": [{"cpus": 8, "devices": {GPU: 2}}, {"cpus": 6}, {"cpus": 8, "devices": {GPU: 1}}],
            "memory": "48Gi",
            "topologyPolicy": "single-numa-node",
            "topologyScope": scope,
            "memoryPolicy": memory,
            "reservedCpus": 1,
            "reservedMemory": [{"numaNode": 1, "limits": {"memory": "2Gi"}}],
        }
    )
    managers = ResourceManagers(definition)
    running: dict[str, tuple[Pod, Allocation]] = {}
    since: list[Pod] = []
    found = topology_document(definition, managers, ())
    results = []
    for number in range(60):
        if random.random() < 0.2:
            found, since = topology_document(definition, managers, running), []
        pod = a_random_pod(random, f"p{number}")
        others = [PodInfo(other) for other in since]
        said = answer_of(PodInfo(pod), msgspec.convert(found, NodeResourceTopology), knowledge="oracle", on_node=others)
        outcome = managers.admit(pod)

        is_scattered = isinstance(outcome, Allocation) and len({block.numas for block in outcome.memory}) > 1
        if not (is_scattered and scope == "pod"):
            assert (said is SUCCESS) == isinstance(outcome, Allocation), (number, pod.spec, outcome)

        results.append(said is SUCCESS)
        if isinstance(outcome, Allocation):
            running[pod.metadata.uid] = pod, outcome
            since.append(pod)
        if is_scattered:
            found, since = topology_document(definition, managers, running), []
        if len(running) > 4:
            gone = random.choice(sorted(running))
            managers.release(running.pop(gone)[1])
            found, since = topology_document(definition, managers, running), []
    assert set(results) == {True, False}
