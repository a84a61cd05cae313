"""Whatever draws a graph of services from traces sees who calls whom, and who learns of a change from whom."""

import pytest

from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from tests.component.mesh.service_graph import edges, exported, known_attributes, violations

POD = (
    '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trainer"}, "spec": {"containers": [{"name": "c", "image":'
    ' "web:1", "resources": {"claims": [{"name": "gpu"}]}}], "resourceClaims": [{"name": "gpu",'
    ' "resourceClaimTemplateName": "gpu"}]}}'
)
TEMPLATE = (
    '{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu"}, "spec":'
    ' {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}}}}'
)
CLASS = (
    '{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.example.com"}, "spec": {}}'
)
SCENARIO = f"""# Every component at work
limit 60s
nodes n1 cpu=4 drivers=gpu.example.com:2
deployment web replicas=2 cpu=100m
as admin create deviceclasses {CLASS} -> 201
as admin create resourceclaimtemplates {TEMPLATE} -> 201
as admin create pods {POD} -> 201
expect within 30s count pods phase=Running == 3
"""


@pytest.fixture(scope="module")
def run():
    result = simulate(parse_scenario(SCENARIO, "graph", VERBS), seed=3, traced=True)
    assert result.passed, (result.error, result.expectations)
    return result


@pytest.fixture(scope="module")
def spans(run):
    return exported(run.spans)


def rows(spans):
    return [
        (
            span.resource.attributes["service.name"],
            span.kind.name,
            span.context.span_id,
            span.parent.span_id if span.parent else 0,
        )
        for span in spans
    ]


def test_requests_and_watches_are_edges_between_all_components(spans):
    found = edges(rows(spans))

    components = ("claim-controller", "controllers", "kubelet", "scheduler")
    assert {edge for edge in found if edge[2] == "CLIENT"} == {
        *((each, "apiserver", "CLIENT") for each in components),
        ("kubelet", "dra-driver", "CLIENT"),
    }
    assert {edge for edge in found if edge[2] == "PRODUCER"} == {("apiserver", each, "PRODUCER") for each in components}


def test_a_kubelets_call_of_a_driver_is_below_the_pods_stage_by_name_and_socket(run, spans):
    by_id = {span.context.span_id: span for span in spans}
    (served,) = (s for s in spans if s.resource.attributes["service.name"] == "dra-driver" and s.kind.name == "SERVER")
    asked = by_id[served.parent.span_id]

    assert served.name == asked.name == "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    assert by_id[asked.parent.span_id].name == "create sandbox"
    assert {**asked.attributes} == {
        "rpc.system.name": "grpc",
        "rpc.method": asked.name,
        "rpc.response.status_code": "OK",
        "network.transport": "unix",
        "server.address": "nodes/n1/plugins/gpu.example.com/dra.sock",
    }


def test_every_request_of_a_sampled_trace_has_one_client_and_one_server(run, spans):
    by_id = {span.context.span_id: span for span in spans}
    servers = [span for span in spans if span.kind.name == "SERVER" and span.parent is not None]

    assert len(servers) > 20
    assert all(by_id[span.parent.span_id].kind.name == "CLIENT" for span in servers)
    assert len({span.parent.span_id for span in servers}) == len(servers)
    assert len({span.context.span_id for span in spans}) == len(spans)


def test_a_watcher_is_a_child_of_the_published_change_or_linked_to_it(spans):
    by_id = {span.context.span_id: span for span in spans}
    consumers = [span for span in spans if span.kind.name == "CONSUMER"]

    assert {span.name for span in consumers} >= {"schedule pod", "sync pod", "reconcile deployment"}
    for span in consumers:
        causes = [link.context.span_id for link in span.links] + ([span.parent.span_id] if span.parent else [])
        assert causes
        assert {by_id[cause].kind.name for cause in causes} == {"PRODUCER"}, span.name


def test_names_of_attributes_are_the_conventions_or_begin_with_keplab(spans):
    known = known_attributes()

    assert {"k8s.pod.status.phase", "rpc.system.name", "messaging.operation.type"} <= known
    assert [w for s in spans for w in violations(s.name, s.kind.name, s.attributes, known)] == []
    resource = spans[0].resource.attributes
    assert [key for key in resource if key not in known and not key.startswith("keplab.")] == []


def test_a_process_says_which_service_version_and_cluster_it_is(monkeypatch, run):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=lab,keplab.seed=7,service.name=other")

    attributes = exported(run.spans[:1])[0].resource.attributes

    assert attributes["service.name"] == run.spans[0].service
    assert attributes["service.instance.id"] == run.spans[0].instance
    assert (attributes["service.namespace"], attributes["k8s.cluster.name"]) == ("keplab", "lab")
    assert attributes["keplab.seed"] == "7"
    assert attributes["service.version"]


def test_spans_of_a_simulation_say_which_run_they_are_of(run, spans):
    resource = {**spans[0].resource.attributes}

    assert {tuple(sorted(span.resource.items())) for span in run.spans} == {
        tuple(sorted(run.spans[0].resource.items()))
    }
    assert (resource["service.namespace"], resource["keplab.scenario"], resource["keplab.seed"]) == (
        "keplab",
        "graph",
        "3",
    )
    assert "keplab.arm" not in resource
    assert resource["service.version"] == run.spans[0].origin["service.version"]
    assert {span.resource.attributes["service.name"] for span in spans} == {
        span.origin["service.name"] for span in run.spans
    }


def test_the_arm_of_a_simulation_is_part_of_where_its_spans_come_from():
    result = simulate(parse_scenario("limit 5s\nnode n1 cpu=4\npod web\n", "short", VERBS), traced=True, arm="old")

    assert {span.origin["keplab.arm"] for span in result.spans} == {"old"}


def test_tracing_changes_no_decision_and_the_same_seed_traces_the_same(run):
    scenario = parse_scenario(SCENARIO, "graph", VERBS)

    again, untraced = simulate(scenario, seed=3, traced=True), simulate(scenario, seed=3)

    assert again.spans == run.spans
    assert again.digest == run.digest
    assert untraced.spans == []
    assert [each.passed for each in untraced.expectations] == [each.passed for each in run.expectations]
