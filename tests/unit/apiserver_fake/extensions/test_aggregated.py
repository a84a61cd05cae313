"""The metrics APIs over a store: what is scraped, what is not, and in whose words that is refused."""

import msgspec
import pytest

from apiserver_fake.extensions.aggregated.answers import answer
from apiserver_fake.storage.store import Store
from services.api.errors import ApiError, MethodNotAllowed
from services.api.metrics.apis import COMPONENT_STATUSES
from services.api.resources import resource_of_kind
from services.api.times import format_micro_time, format_time
from services.api.wire import Request

WALL_S = 1_800_000_000.0
PODS, NODES = "pods.metrics.k8s.io", "nodes.metrics.k8s.io"
CUSTOM, EXTERNAL = "custommetrics.custom.metrics.k8s.io", "externalmetrics.external.metrics.k8s.io"
SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "uid-web-1", "controller": True}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}


def ago(seconds):
    return format_time(WALL_S - seconds)


class World:
    """A store at one moment: a node whose kubelet lives, and what tests add."""

    def __init__(self):
        self.store = Store()
        self.put(
            "v1", "Namespace", "default", annotations={"keplab.dev/external-metrics": "queue{a=1} 30; queue{a=2} 5"}
        )
        self.node("n1")

    def put(self, api_version, kind, name, *, age_s=600, spec=None, status=None, namespace="default", **metadata):
        resource = resource_of_kind(api_version, kind)
        if resource.namespaced:
            metadata["namespace"] = namespace
        metadata |= {"name": name, "uid": f"uid-{name}", "creationTimestamp": ago(age_s)}
        staged = self.store.stage()
        staged.put(resource, {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec or {},
                              "status": status or {}})  # fmt: skip
        staged.seal(0)
        self.store.publish(staged.changes, 0.0)

    def node(self, name, *, renewed_s_ago=3.0, **metadata):
        self.put("v1", "Node", name, **metadata)
        spec = {"leaseDurationSeconds": 40, "renewTime": format_micro_time(WALL_S - renewed_s_ago)}
        self.put("coordination.k8s.io/v1", "Lease", name, spec=spec, namespace="kube-node-lease")

    def pod(self, name, *, node="n1", ready=True, containers=None, phase="Running", owner=None, **metadata):
        """`containers`: the seconds that each has run, None for one that does not run."""
        containers = containers or {"c": 600}
        running = [{"name": n, "state": {"running": {"startedAt": ago(s)}} if s is not None else {"waiting": {}}}
                   for n, s in containers.items()]  # fmt: skip
        status = {
            "phase": phase, "startTime": ago(600), "containerStatuses": running,
            "conditions": [{"type": "Ready", "status": str(ready)}],
        }  # fmt: skip
        spec = {"nodeName": node, "containers": [{"name": n} for n in containers]}
        if owner:
            metadata["ownerReferences"] = [owner]
        self.put("v1", "Pod", name, spec=spec, status=status, **metadata)

    def read(self, resource, name="", namespace="default", **selectors):
        verb = "get" if name else "list"
        request = Request(verb=verb, resource=resource, namespace=namespace, name=name, **selectors)
        return msgspec.json.decode(answer(request, self.store, WALL_S).body)

    def used(self, name, resource="cpu"):
        return {each["name"]: each["usage"][resource] for each in self.read(PODS, name)["containers"]}

    def refusal(self, resource, name="", namespace="default", **selectors):
        with pytest.raises(ApiError) as refused:
            self.read(resource, name, namespace, **selectors)
        return refused.value.message


@pytest.fixture
def metrics():
    return World()


def test_a_pod_has_what_each_container_used_at_the_last_scrape(metrics):
    annotations = {"keplab.dev/usage.a": "cpu 250m; cpu 1 at 5m; memory 64Mi", "keplab.dev/memory": "32Mi"}
    metrics.pod("p", containers={"a": 600, "b": 600}, annotations=annotations, labels={"app": "web"})

    assert metrics.read(PODS, "p") == {
        "kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "p", "namespace": "default", "labels": {"app": "web"}, "creationTimestamp": ago(0)},
        "timestamp": ago(0), "window": "15s",
        "containers": [{"name": "a", "usage": {"cpu": "1", "memory": "64Mi"}},
                       {"name": "b", "usage": {"cpu": "0", "memory": "32Mi"}}],
    }  # fmt: skip


def test_lists_are_of_a_namespace_or_all_and_follow_labels_and_names(metrics):
    metrics.put("v1", "Namespace", "other")
    for name, namespace, app in (("a", "default", "web"), ("b", "default", "db"), ("c", "other", "web")):
        metrics.pod(name, namespace=namespace, labels={"app": app})

    def names(**asked):
        return [each["metadata"]["name"] for each in metrics.read(PODS, **asked)["items"]]

    assert names(namespace="") == ["a", "b", "c"]
    assert names() == ["a", "b"]
    assert names(namespace="", label_selector="app=web") == ["a", "c"]
    assert names(field_selector="metadata.name=b") == ["b"]
    assert metrics.read(PODS)["kind"] == "PodMetricsList"


def test_a_container_that_is_new_hides_its_pod_and_one_that_waits_only_itself(metrics):
    metrics.pod("new", containers={"a": 600, "b": 14})
    metrics.pod("half", containers={"a": 600, "b": None})
    metrics.pod("pending", phase="Pending")

    assert [each["metadata"]["name"] for each in metrics.read(PODS)["items"]] == ["half"]
    assert metrics.used("half") == {"a": "0"}
    assert metrics.refusal(PODS, "new") == 'podmetrics.metrics.k8s.io "default/new" not found'
    assert metrics.refusal(PODS, "gone") == 'pods "gone" not found'


def test_a_kubelet_that_does_not_renew_its_lease_gives_no_metrics(metrics):
    metrics.node("n2", renewed_s_ago=60.0)
    metrics.put("v1", "Node", "n3")
    for node in ("n1", "n2", "n3"):
        metrics.pod(f"on-{node}", node=node, annotations={"keplab.dev/usage": "cpu 100m; memory 1Gi"})
    metrics.pod("more", annotations={"keplab.dev/usage": "cpu 1; memory 1Gi"})

    assert [each["metadata"]["name"] for each in metrics.read(PODS)["items"]] == ["more", "on-n1"]
    (node,) = metrics.read(NODES, namespace="")["items"]
    assert (node["metadata"]["name"], node["usage"]) == ("n1", {"cpu": "1100m", "memory": "2Gi"})
    assert metrics.refusal(NODES, "n2", namespace="") == 'nodemetrics.metrics.k8s.io "n2" not found'
    assert metrics.refusal(NODES, "n9", namespace="") == 'nodes "n9" not found'


def test_a_workloads_load_is_shared_by_its_ready_pods_and_may_be_any_metric(metrics):
    load = {"keplab.dev/load": "cpu 2; memory 4Gi; http_requests 800; http_requests 1 at 1h"}
    metrics.put("apps/v1", "Deployment", "web", annotations=load)
    metrics.put("apps/v1", "ReplicaSet", "web-1", ownerReferences=[DEPLOYMENT])
    for name, ready in (("a", True), ("b", True), ("c", False)):
        metrics.pod(name, ready=ready, owner=SET, annotations={"keplab.dev/usage": "cpu 100m"}, labels={"app": "web"})
    asked = metrics.read(CUSTOM, "pods/*/http_requests", label_selector="app=web")["items"]

    assert [metrics.used(name)["c"] for name in "abc"] == ["1100m", "1100m", "100m"]
    assert metrics.used("a", "memory") == {"c": "2Gi"}
    assert [(each["describedObject"]["name"], each["value"]) for each in asked] == [("a", "400"), ("b", "400")]


def test_custom_metrics_are_of_pods_of_any_object_and_of_the_namespace(metrics):
    metrics.pod("p", annotations={"keplab.dev/metrics": "rps{verb=get} 1500m; rps{verb=put} 2"}, labels={"app": "web"})
    metrics.put("v1", "Service", "web", annotations={"keplab.dev/metrics": "rps 10; rps 20 by 20m"})
    metrics.put("v1", "Namespace", "default", annotations={"keplab.dev/metrics": "jobs 7"})
    one = metrics.read(CUSTOM, "services/web/rps")

    assert metrics.read(CUSTOM, "pods/p/rps")["items"][0]["value"] == "3500m"
    assert metrics.read(CUSTOM, "pods/*/rps", field_selector="verb=put")["items"][0]["value"] == "2"
    assert one["kind"] == "MetricValueList"
    assert one["items"] == [{
        "describedObject": {"kind": "Service", "apiVersion": "v1", "name": "web", "namespace": "default"},
        "metric": {"name": "rps", "selector": None}, "timestamp": ago(0), "value": "15",
    }]  # fmt: skip
    assert metrics.read(CUSTOM, "metrics/jobs")["items"][0]["value"] == "7"
    assert metrics.refusal(CUSTOM, "pods/*/x") == "the server could not find the metric x for pods"
    assert metrics.refusal(CUSTOM, "services/web/x") == "the server could not find the metric x for services web"
    assert metrics.refusal(CUSTOM, "gadgets/web/x") == "the server could not find the requested resource"


def test_external_metrics_are_what_their_namespace_says(metrics):
    def values(**asked):
        return [each["value"] for each in metrics.read(EXTERNAL, "queue", **asked)["items"]]

    assert values() == ["30", "5"]
    assert values(label_selector="a=2") == ["5"]
    assert values(label_selector="a=3") == []
    assert metrics.refusal(EXTERNAL, "x") == "the server could not find the metric x for namespaces default"


def test_what_cannot_be_read_is_not_measured(metrics):
    metrics.pod("p", annotations={"keplab.dev/usage": "cpu lots", "keplab.dev/metrics": "rps{a} 1"})

    assert metrics.used("p") == {"c": "0"}
    assert metrics.refusal(CUSTOM, "pods/p/rps") == "the server could not find the metric rps for pods p"


@pytest.mark.parametrize(("resource", "verb"), [(PODS, "watch"), (NODES, "delete"), (CUSTOM, "list")])
def test_nothing_else_is_allowed(metrics, resource, verb):
    with pytest.raises(MethodNotAllowed):
        answer(Request(verb=verb, resource=resource), metrics.store, WALL_S)


def test_component_statuses_say_who_watches_the_server(metrics):
    def read(name="", watching=("system:kube-scheduler",), **selectors):
        request = Request(verb="get" if name else "list", resource="componentstatuses", name=name, **selectors)
        return msgspec.json.decode(answer(request, metrics.store, WALL_S, watching).body)

    refused = 'Get "https://127.0.0.1:10257/healthz": dial tcp 127.0.0.1:10257: connect: connection refused'
    assert read() == {"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": [
        {"metadata": {"name": "controller-manager"},
         "conditions": [{"type": "Healthy", "status": "False", "message": refused}]},
        {"metadata": {"name": "etcd-0"}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]},
        {"metadata": {"name": "scheduler"}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]},
    ]}  # fmt: skip
    assert read("scheduler", ())["conditions"][0]["status"] == "False"
    assert [each["metadata"]["name"] for each in read(field_selector="metadata.name=etcd-0")["items"]] == ["etcd-0"]
    assert read(label_selector="a=b")["items"] == []
    with pytest.raises(ApiError, match="Component not found: kubelet"):
        read("kubelet")
    cells = [[column.source(each, 0.0) for column in COMPONENT_STATUSES.columns[1:]] for each in read()["items"]]
    assert cells == [["Unhealthy", refused, ""], ["Healthy", "ok", ""], ["Healthy", "ok", ""]]
