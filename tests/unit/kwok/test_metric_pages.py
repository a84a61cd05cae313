"""The pages of KWOK's Metrics are Prometheus' text, as client_golang writes it."""

import pytest

from services.kwok.documents import read
from services.kwok.expressions import Expressions
from services.kwok.metric_pages import Scene, page
from services.kwok.node_usage import NodeUsage
from services.kwok.usage import Usages

NOW_S = 1_767_225_600.0
NODE = {"metadata": {"name": "n1"}}


def pod(name, containers=("c",), started="2025-12-31T23:59:00Z", **annotations):
    states = [{"name": c, "state": {"running": {"startedAt": started}} if started else {}} for c in containers]
    return {
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}", "annotations": annotations},
        "spec": {"containers": [{"name": c} for c in containers]},
        "status": {"phase": "Running", "containerStatuses": states},
    }


USAGE = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterResourceUsage
metadata: {name: u}
spec:
  usages:
  - usage: {cpu: {value: 500m}, memory: {value: 16Mi}}
  - containers: [big]
    usage: {cpu: {value: 2, expression: '3'}, memory: {expression: 'Quantity("1Gi")'}}
---
"""


def made(metrics, pods, at_s=NOW_S, usage=None, failures=None):
    text = (
        "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Metric\nmetadata: {name: m}\nspec:\n  path: /metrics/x\n  metrics:\n"
    )
    configuration = read([("f", USAGE + text + metrics)])
    usage = usage or NodeUsage(Usages(configuration["ResourceUsage"]))
    scene = Scene(NODE, list(pods), usage, Expressions(has_usage=True), at_s)
    body = page(configuration["Metric"].all[0].spec, scene).decode()
    assert (failures or []) == scene.failures
    return body, usage


def test_the_text_has_families_by_name_samples_by_labels_and_go_numbers():
    metrics = """\
  - {name: z_last, kind: gauge, dimension: node, value: 'node.Usage("memory")', help: "two\\nlines"}
  - name: container_memory
    kind: gauge
    dimension: container
    help: Memory \\ of it
    labels: [{name: pod, value: pod.metadata.name}, {name: container, value: container.name}]
    value: pod.Usage("memory", container.name)
  - {name: k8s.node.up, kind: counter, value: '0.5'}
"""
    body, _ = made(metrics, [pod("b"), pod("a", ("c", "big"))])

    assert (
        body
        == """\
# HELP container_memory Memory \\\\ of it
# TYPE container_memory gauge
container_memory{container="big",pod="a"} 1.073741824e+09
container_memory{container="c",pod="a"} 1.6777216e+07
container_memory{container="c",pod="b"} 1.6777216e+07
# TYPE k8s_node_up counter
k8s_node_up 0.5
# HELP z_last two\\nlines
# TYPE z_last gauge
z_last 1.107296256e+09
"""
    )


def test_what_was_used_grows_between_looks_and_stays_when_pods_go():
    metrics = """\
  - {name: pod_cpu, kind: counter, dimension: pod, labels: [{name: pod, value: pod.metadata.name}], value: pod.CumulativeUsage("cpu")}
  - {name: node_cpu, kind: counter, dimension: node, value: node.CumulativeUsage("cpu")}
"""
    pods = [pod("a"), pod("idle", started=""), pod("own", **{"keplab.dev/usage": "cpu 1; cpu 2 at 30s"})]
    first, usage = made(metrics, pods)
    assert 'pod_cpu{pod="a"} 30\n' in first  # half a core since its start a minute ago
    assert 'pod_cpu{pod="idle"} 0\n' in first
    assert 'pod_cpu{pod="own"} 90\n' in first  # the pod's own annotation wins
    assert "node_cpu 120\n" in first

    second, _ = made(metrics, pods, NOW_S + 10, usage)
    assert 'pod_cpu{pod="a"} 35\n' in second
    assert 'pod_cpu{pod="own"} 110\n' in second
    assert "node_cpu 145\n" in second

    usage.on_deleted("uid-a")
    third, _ = made(metrics, pods[1:], NOW_S + 10, usage)
    assert "node_cpu 145\n" in third


def test_hidden_buckets_count_in_the_next():
    metrics = """\
  - name: took
    kind: histogram
    dimension: node
    buckets: [{le: 1, value: '4'}, {le: 0.5, value: '3', hidden: true}, {le: 2, value: '1.9'}, {le: 5, value: '-1'}]
"""
    body, _ = made(metrics, [])

    assert (
        body
        == """\
# TYPE took histogram
took_bucket{le="1"} 7
took_bucket{le="2"} 8
took_bucket{le="5"} 8
took_bucket{le="+Inf"} 8
took_sum 7.5
took_count 8
"""
    )


@pytest.mark.parametrize(
    ("value", "why"), [("node.metadata.nothing", "no such key: nothing"), ('"a"', "gives str: want a number")]
)
def test_a_metric_that_cannot_be_evaluated_is_left_out_and_named(value, why):
    metrics = f"  - {{name: bad, kind: gauge, value: '{value}'}}\n  - {{name: good, kind: gauge, value: '1'}}\n"
    with pytest.raises(AssertionError) as named:
        made(metrics, [])

    assert "bad: " in str(named.value)
    assert why in str(named.value)


def test_containers_are_counted_as_they_start_and_start_again():
    usage = NodeUsage(Usages(read([])["ResourceUsage"]))
    first = pod("a", ("c", "d"))
    usage.observe("n1", first)
    usage.observe("n1", first)
    assert usage.start_count("n1") == 2

    first["status"]["containerStatuses"][0]["restartCount"] = 3
    usage.observe("n1", first)
    usage.on_deleted("uid-a")
    usage.observe("n1", pod("b", started=""))
    assert (5, 0) == (usage.start_count("n1"), usage.start_count("n2"))
