"""Workloads whose template names a node: the kubelet takes their pods, and no scheduler tries them (decision 0080)."""

import pytest

from lab.scenarios.run import load_scenario, simulate

POD = "{containers: [{name: c, image: i, resources: {requests: {cpu: 500m}}}], nodeName: n2%s}"
LABELS = "{app: web}"


def workload(kind, group, spec, *, cpu="500m", more=""):
    template = f"{{metadata: {{labels: {LABELS}}}, spec: {(POD % more).replace('500m', cpu)}}}"
    return f"{{apiVersion: {group}/v1, kind: {kind}, metadata: {{name: web}}, spec: {{{spec}template: {template}}}}}"


SELECTOR = f"selector: {{matchLabels: {LABELS}}}, "
JOB = "completions: 2, parallelism: 2, "


def observed(tmp_path, *lines):
    """Simulate a scenario; return its result, and the event log's lines about pods."""
    path, seen = tmp_path / "named.txt", []
    path.write_text("\n".join(("nodes n1..n3 cpu=2", *lines, "")))
    result = simulate(load_scenario(path), seed=1, on_line=seen.append)
    assert not result.violations
    return result, [line for line in seen if (line.obj or {}).get("kind") == "Pod"]


def failed(result):
    return [(each.text, each.seen) for each in result.expectations if not each.passed]


@pytest.mark.parametrize(
    ("text", "pods", "phase"),
    [
        (workload("ReplicaSet", "apps", f"replicas: 3, {SELECTOR}"), 3, "Running"),
        (workload("Deployment", "apps", f"replicas: 3, {SELECTOR}"), 3, "Running"),
        (workload("StatefulSet", "apps", f"replicas: 3, serviceName: web, {SELECTOR}"), 3, "Running"),
        (workload("DaemonSet", "apps", SELECTOR), 1, "Running"),
        (workload("Job", "batch", JOB, more=", restartPolicy: Never"), 2, "Running"),
    ],
    ids=["ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job"],
)
def test_pods_of_a_template_that_names_a_node_run_there_without_the_scheduler(tmp_path, text, pods, phase):
    result, lines = observed(
        tmp_path,
        f"apply <<EOF\n{text}\nEOF",
        f"expect within 30s count pods phase={phase} node=n2 == {pods}",
        f"expect count pods == {pods}",
    )

    assert [] == failed(result)
    assert [] == [line.ev for line in lines if line.ev.startswith("sched.")]
    assert [] == [line for line in lines if line.ev == "store.commit" and line.data.get("subresource") == "binding"]


def test_the_scheduler_counts_pods_that_it_did_not_place(tmp_path):
    text = workload("ReplicaSet", "apps", f"replicas: 4, {SELECTOR}")
    result, _ = observed(
        tmp_path,
        f"apply <<EOF\n{text}\nEOF",
        "expect within 30s count pods phase=Running node=n2 == 4",
        "pod wide-1 cpu=2",
        "pod wide-2 cpu=2",
        "pod wide-3 cpu=2",
        "expect within 30s count pods name=wide-* phase=Running == 2",
        "expect count pods name=wide-* node=n2 == 0",
    )

    assert [] == failed(result)


def test_kubernetes_113907_pods_that_their_node_rejects_fail_and_are_replaced(tmp_path):
    text = workload("ReplicaSet", "apps", f"replicas: 1, {SELECTOR}", cpu="3")
    result, lines = observed(
        tmp_path,
        f"apply <<EOF\n{text}\nEOF",
        "expect within 30s count pods phase=Failed node=n2 >= 3",
        "expect each pods phase=Failed status.reason == OutOfcpu",
    )

    assert [] == failed(result)
    assert [] == [line.ev for line in lines if line.ev.startswith("sched.")]
