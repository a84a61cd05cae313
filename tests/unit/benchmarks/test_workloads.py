import msgspec
import pytest

from lab.benchmarks.workloads import documents, templates
from lab.benchmarks.workloads.ops import CreateNodes, CreatePods, Size
from lab.benchmarks.workloads.register import WORKLOADS, UnknownWorkload, workload
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod

SMALL = Size(nodes=6, init_pods=2, pods=4)


def test_a_workload_is_found_whatever_its_capitals():
    assert workload("schedulingbasic") is WORKLOADS["SchedulingBasic"]


def test_an_unknown_workload_names_those_that_are_near():
    with pytest.raises(UnknownWorkload, match="did you mean SchedulingPodAffinity"):
        workload("ShedulingPodAffinity")


def test_a_workload_between_upstreams_sizes_is_scaled_from_the_nearest():
    assert workload("SchedulingBasic").size(1_000) == Size(1_000, 1_000, 2_000)
    assert workload("SchedulingBasic").size(15_000, pods=7) == Size(15_000, 3_000, 7)


def test_a_workload_of_one_node_stays_one():
    assert workload("SchedulingWhileGated").size(5_000).nodes == 1


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_measures_exactly_one_step(name):
    measured = [op for op in WORKLOADS[name].ops if isinstance(op, CreatePods) and op.is_measured]

    assert len(measured) == 1


def test_nodes_are_dealt_over_the_zones_and_know_their_name():
    op = CreateNodes(zones=("a", "b"))
    nodes = [msgspec.json.decode(each.body, type=Node) for each in documents.nodes_of(op, SMALL)]

    assert [node.metadata.labels[templates.ZONE] for node in nodes] == ["a", "b", "a", "b", "a", "b"]
    assert all(node.metadata.labels[templates.HOSTNAME] == node.metadata.name for node in nodes)


def test_a_stored_pod_is_what_the_api_server_makes_of_the_sent_one():
    op = CreatePods(templates.HIGH, namespace="one")
    sent = msgspec.json.decode(next(documents.pods_of(op, 3, SMALL)).body)
    seen = msgspec.json.decode(next(documents.pods_of(op, 3, SMALL, is_stored=True)).body, type=Pod)

    assert sent["spec"]["priorityClassName"] == "perf-10"
    assert "priority" not in sent["spec"]
    assert (seen.spec.priority, seen.status.phase, len(seen.spec.tolerations)) == (10, "Pending", 2)
    assert (seen.metadata.namespace, seen.metadata.name) == ("one", "high-3-000000")


def test_pods_may_be_dealt_over_namespaces():
    op = CreatePods(templates.DEFAULT, "pods", namespace="init-ns", is_dealt=True)
    size = Size(nodes=100, init_pods=0, pods=3)

    assert [pod.namespace for pod in documents.pods_of(op, 0, size)] == ["init-ns-0", "init-ns-1", "init-ns-0"]
