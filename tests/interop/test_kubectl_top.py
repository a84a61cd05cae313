"""kubectl and the metrics APIs: `top`, discovery, what is available, custom and external metrics by their paths."""

import json
import re
import time

import pytest

from services.api.times import format_micro_time, format_time


@pytest.fixture
def a_pod(mesh, namespace):
    """Make a pod that has run for ten minutes on a node whose kubelet lives."""

    def make(name, usage, node="n1", **annotations):
        lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
        spec = {"leaseDurationSeconds": 40, "renewTime": format_micro_time(time.time()), "holderIdentity": node}
        if mesh.call("GET", lease, user=f"system:node:{node}", ok=False)[0] == 404:
            uid = mesh.call("GET", f"/api/v1/nodes/{node}")[1]["metadata"]["uid"]
            owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
            metadata = {"name": node, "namespace": "kube-node-lease", "ownerReferences": [owner]}
            document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            mesh.call("POST", lease.rpartition("/")[0], document, user=f"system:node:{node}")
        mesh.merge(lease, {"spec": spec}, user=f"system:node:{node}")
        pods = f"/api/v1/namespaces/{namespace}/pods"
        containers = [{"name": each, "image": "i:1"} for each in ("main", "log")]
        metadata = {
            "name": name,
            "labels": {"app": name},
            "annotations": {"keplab.dev/usage.main": usage, **annotations},
        }
        mesh.call(
            "POST", pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
        )
        mesh.run_pod(namespace, name, node)
        since = format_time(time.time() - 600)
        statuses = [
            {"name": each["name"], "image": "i:1", "ready": True, "state": {"running": {"startedAt": since}}}
            for each in containers
        ]
        status = {"containerStatuses": statuses, "startTime": since}
        mesh.merge(f"{pods}/{name}/status", {"status": status}, user=f"system:node:{node}")

    return make


def test_top_shows_what_pods_and_their_containers_use(kubectl, namespace, a_pod):
    a_pod("small", "cpu 100m; memory 200Mi")
    a_pod("large", "cpu 1500m; memory 50Mi")
    shown = kubectl("top", "pods", "-n", namespace, "--sort-by=cpu")

    assert [line.split() for line in shown.splitlines()] == [
        ["NAME", "CPU(cores)", "MEMORY(bytes)"], ["large", "1500m", "50Mi"], ["small", "100m", "200Mi"]]  # fmt: skip
    assert re.search(
        r"^large +log +0m +0Mi *\nlarge +main +1500m +50Mi",
        kubectl("top", "pod", "large", "--containers", "-n", namespace),
        re.M,
    )
    assert [line.split()[0] for line in kubectl("top", "pods", "-n", namespace, "--sort-by=memory").splitlines()[1:]] == [
        "small", "large"]  # fmt: skip
    assert re.search(rf"^{namespace} +small ", kubectl("top", "pods", "-A"), re.M)
    assert kubectl("top", "pods", "-l", "app=small", "-n", namespace).splitlines()[1].split()[0] == "small"


def test_top_nodes_shows_the_share_of_what_is_allocatable(kubectl, namespace, a_pod):
    a_pod("p", "cpu 1; memory 2Gi", node="n3")
    shown = kubectl("top", "nodes", "--sort-by=cpu")

    assert re.search(r"^NAME +CPU\(cores\) +CPU(%|\(%\)) +MEMORY\(bytes\) +MEMORY(%|\(%\))", shown)
    assert re.search(r"^n3 +\d+m +\d+% +\d+Mi +\d+%", shown, re.M)


def test_what_has_no_metrics_is_refused_as_metrics_server_refuses_it(kubectl, namespace, mesh):
    pod = {"metadata": {"name": "new"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    mesh.call("POST", f"/api/v1/namespaces/{namespace}/pods", {"apiVersion": "v1", "kind": "Pod", **pod})

    said = kubectl("get", "--raw", f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/new", code=1)
    assert f'podmetrics.metrics.k8s.io "{namespace}/new" not found' in said


def test_the_group_is_discovered_and_available(kubectl, namespace, a_pod):
    a_pod("p", "cpu 250m; memory 1Gi")

    assert re.search(r"^pods +metrics.k8s.io/v1beta1 +true +PodMetrics$", kubectl("api-resources"), re.M)
    # As the manifest of metrics-server has it, without the Service: this server serves the group itself.
    spec = {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
    name = "v1beta1.metrics.k8s.io"
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": spec,
    }
    kubectl("apply", "-f", "-", stdin=service)
    assert re.search(r"^v1beta1.metrics.k8s.io +Local +True ", kubectl("get", "apiservices"), re.M)
    assert re.search(
        r"^NAME +CPU +MEMORY +WINDOW\np +250m +1Gi +15s", kubectl("get", "pods.metrics.k8s.io", "-n", namespace)
    )
    assert kubectl("get", "pods", "-n", namespace).split()[:2] == ["NAME", "READY"]


def test_custom_and_external_metrics_have_their_paths(kubectl, namespace, a_pod):
    a_pod("p", "cpu 1", **{"keplab.dev/metrics": "rps 1500m"})
    kubectl("annotate", "namespace", namespace, "keplab.dev/external-metrics=queue{topic=a} 30; queue{topic=b} 5")
    custom = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}"
    external = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}"

    def read(path):
        return [each["value"] for each in json.loads(kubectl("get", "--raw", path))["items"]]

    assert read(f"{custom}/pods/*/rps?labelSelector=app%3Dp") == ["1500m"]
    assert read(f"{external}/queue?labelSelector=topic%3Db") == ["5"]
    assert "the server could not find the metric x for pods" in kubectl("get", "--raw", f"{custom}/pods/*/x", code=1)
