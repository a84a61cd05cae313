"""One NUMA node must have room for each container: what stale, over-reserved and exact knowledge say."""

import msgspec
import pytest

from scheduler.framework.interface import SUCCESS
from scheduler.node_info import NodeInfo, PodInfo
from scheduler.plugins.node_resource_topology_match import NodeResourceTopologyMatch
from scheduler.world import FixedWorld
from services.api.kinds.noderesourcetopology import NodeResourceTopology
from services.api.kinds.pod import Pod

GPU = "example.com/gpu"


def report(*free, scope="container", policy="single-numa-node", counted="", gpus=None):
    zones = [
        {"name": f"node-{i}", "resources": [{"name": "cpu", "available": str(cpus)},
                                            *([{"name": GPU, "available": str(gpus[i])}] if gpus else [])]}
        for i, cpus in enumerate(free)
    ]  # fmt: skip
    attributes = [{"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope},
                  {"name": "keplabCountedPods", "value": counted}]  # fmt: skip
    return msgspec.convert({"metadata": {"name": "n1"}, "attributes": attributes, "zones": zones}, NodeResourceTopology)


def guaranteed(name, *cpus, qos=True, **more):
    amounts = [{"cpu": c, "memory": "1Gi", **more} for c in cpus]
    containers = [
        {"name": f"c{i}", "resources": {"requests": a, **({"limits": a} if qos else {})}} for i, a in enumerate(amounts)
    ]
    return PodInfo(msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": {"containers": containers}}, Pod))


def verdict(pod, found, *, knowledge="nrt_stale", on_node=()):
    plugin = NodeResourceTopologyMatch(FixedWorld(found), knowledge=knowledge)
    node = NodeInfo("n1")
    for other in on_node:
        node.pods[other.uid] = other
    status = plugin.filter(pod, node)
    return status if status is SUCCESS else status.message


@pytest.mark.parametrize(
    ("cpus", "scope", "answer"),
    [(("6",), "container", "cannot align container"), (("4", "4"), "container", SUCCESS),
     (("4", "4"), "pod", "cannot align pod"), (("4",), "pod", SUCCESS)],
)  # fmt: skip
def test_unbinding_22_each_container_or_the_pod_needs_one_numa_node(cpus, scope, answer):
    assert verdict(guaranteed("p", *cpus), report(4, 4, scope=scope)) == answer


def test_unbinding_22_other_policies_and_unreported_nodes_are_not_judged():
    assert verdict(guaranteed("p", "6"), report(4, 4, policy="restricted")) is SUCCESS
    assert NodeResourceTopologyMatch(FixedWorld(), knowledge="oracle").filter(
        guaranteed("p", "6"), NodeInfo("n1")
    ) is SUCCESS  # fmt: skip


def test_unbinding_22_devices_must_come_from_the_zone_of_the_cpus():
    assert verdict(guaranteed("p", "6", **{GPU: "1"}), report(8, 2, gpus=(0, 1))) == "cannot align container"
    assert verdict(guaranteed("p", "2", **{GPU: "1"}), report(8, 2, gpus=(0, 1))) is SUCCESS


@pytest.mark.parametrize(
    ("knowledge", "answer"),
    [("nrt_stale", SUCCESS), ("nrt_overreserve", "cannot align container"), ("oracle", SUCCESS)],
)
def test_unbinding_1_1_a_pod_the_report_lacks_is_forgotten_charged_everywhere_or_where_it_went(knowledge, answer):
    first = guaranteed("first", "6")

    assert verdict(guaranteed("second", "6"), report(8, 8), knowledge=knowledge, on_node=(first,)) == answer


def test_unbinding_1_1_exact_knowledge_refuses_the_third_of_two():
    others = (guaranteed("first", "6"), guaranteed("second", "6"))

    assert verdict(guaranteed("third", "6"), report(8, 8), knowledge="oracle", on_node=others) == (
        "cannot align container"
    )


def test_unbinding_1_1_a_pod_the_report_includes_is_not_charged_again():
    first = guaranteed("first", "6")

    found = report(2, 8, counted="first")

    assert verdict(guaranteed("second", "6"), found, knowledge="nrt_overreserve", on_node=(first,)) is SUCCESS


def test_unbinding_1_1_pods_without_exclusive_cpus_do_not_take_any():
    shared = guaranteed("shared", "6", qos=False)

    assert verdict(guaranteed("p", "6"), report(8), knowledge="oracle", on_node=(shared,)) is SUCCESS
