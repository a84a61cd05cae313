"""Objects of KWOK's kinds beside documents of files, and the definitions of their kinds."""

import pytest

from services.api.meta import Key
from services.kwok.definitions import choose_kinds, definition, names, problem_of, resource_of
from services.kwok.documents import read
from services.kwok.objects import KwokObjects
from services.kwok.stages.document import read_stages

HEAD = {"apiVersion": "kwok.x-k8s.io/v1alpha1"}
FILE = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: one}
spec: {resourceRef: {kind: Pod}, selector: {}, weight: 1, next: {delete: true}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: two}
spec: {resourceRef: {kind: Pod}, selector: {}, weight: 2, next: {delete: true}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: logs}
spec: {logs: [{logsFile: of-file.log}]}
"""


def a_stage(name, weight=9, **spec):
    spec = {"resourceRef": {"kind": "Pod"}, "selector": {}, "weight": weight, "next": {"delete": True}, **spec}
    return {**HEAD, "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def logs(name, path, **metadata):
    kind = "Logs" if metadata else "ClusterLogs"
    return {**HEAD, "kind": kind, "metadata": {"name": name, **metadata}, "spec": {"logs": [{"logsFile": path}]}}


@pytest.fixture
def objects():
    return KwokObjects(read_stages([("f.yaml", FILE)]), read([("f.yaml", FILE)]), runs_commands=False)


def weights(objects):
    return [(stage.name, stage.weight) for stage in objects.stages]


def test_an_object_wins_over_the_document_of_its_name_and_gives_it_back_when_it_goes(objects):
    assert objects.put(a_stage("two", 5)) == objects.put(a_stage("a")) == ""
    assert weights(objects) == [("one", 1), ("a", 9), ("two", 5)]
    assert objects.put(logs("logs", "/of-object.log")) == ""
    assert [rule.entries[0].logs_file for rule in objects.configuration["Logs"].all] == ["/of-object.log"]
    objects.remove("Stage", Key("", "two"))
    objects.remove("ClusterLogs", Key("", "logs"))
    assert weights(objects) == [("one", 1), ("two", 2), ("a", 9)]
    assert [rule.entries[0].logs_file for rule in objects.configuration["Logs"].all] == ["of-file.log"]


def test_an_object_that_becomes_wrong_says_nothing_any_more(objects):
    objects.put(a_stage("a"))
    wrong = objects.put(a_stage("a", delay={"durationFrom": {"expressionFrom": ".a ["}}))
    assert wrong.startswith("stages.kwok.x-k8s.io a: spec.delay.durationFrom.expressionFrom: ")
    assert [name for name, _ in weights(objects)] == ["one", "two"]


def test_objects_of_one_kind_and_name_in_two_namespaces_are_two(objects):
    assert objects.put(logs("p", "/a.log", namespace="a")) == objects.put(logs("p", "/b.log", namespace="b")) == ""
    found = objects.configuration["Logs"]
    assert [found.find(Key(ns, "p"), "c").entry.logs_file for ns in "ab"] == ["/a.log", "/b.log"]
    assert found.find(Key("c", "p"), "c").entry.logs_file == "of-file.log"


def test_two_metrics_of_one_path_are_one_and_a_problem(objects):
    spec = {"path": "/metrics/a", "metrics": [{"name": "m", "kind": "gauge", "value": "1"}]}
    first = {**HEAD, "kind": "Metric", "metadata": {"name": "first"}, "spec": spec}
    assert objects.put(first) == ""
    problem = objects.put({**first, "metadata": {"name": "second"}})
    assert "spec.path '/metrics/a': is that of metrics.kwok.x-k8s.io first" in problem


def test_a_forward_to_a_command_needs_a_host_that_runs_commands():
    spec = {"forwards": [{"command": ["sh"]}]}
    document = {**HEAD, "kind": "PortForward", "metadata": {"name": "p", "namespace": "d"}, "spec": spec}
    assert problem_of(document) is None
    problem = problem_of(document, runs_commands=False)
    assert problem.path == "spec.forwards[0].command"
    assert "--host-commands" in problem.message


def test_kinds_are_chosen_by_name_with_commas_or_all():
    assert choose_kinds(["Metric,Stage", "Logs"]) == ("Stage", "Logs", "Metric")
    assert choose_kinds(["all"]) == names()
    assert choose_kinds([]) == ()
    with pytest.raises(ValueError, match="'stage' is none of all, Stage, "):
        choose_kinds(["Stage,stage"])


def test_definitions_have_the_names_and_scopes_of_kwok():
    found = {
        kind: (each["spec"]["names"]["plural"], each["spec"]["scope"])
        for kind, each in ((kind, definition(kind)) for kind in names())
    }
    assert found == {
        "Stage": ("stages", "Cluster"),
        "Attach": ("attaches", "Namespaced"),
        "ClusterAttach": ("clusterattaches", "Cluster"),
        "ClusterExec": ("clusterexecs", "Cluster"),
        "ClusterLogs": ("clusterlogs", "Cluster"),
        "ClusterPortForward": ("clusterportforwards", "Cluster"),
        "ClusterResourceUsage": ("clusterresourceusages", "Cluster"),
        "Exec": ("execs", "Namespaced"),
        "Logs": ("logs", "Namespaced"),
        "Metric": ("metrics", "Cluster"),
        "PortForward": ("portforwards", "Namespaced"),
        "ResourceUsage": ("resourceusages", "Namespaced"),
    }
    assert resource_of("ClusterLogs").list_kind == "ClusterLogsList"


def test_schemas_are_those_of_the_types_that_read_documents():
    spec = definition("ClusterResourceUsage")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["required"] == ["usages"]
    assert spec["properties"]["selector"]["properties"].keys() == {"matchNamespaces", "matchNames"}
    use = spec["properties"]["usages"]["items"]["properties"]["usage"]["additionalProperties"]["properties"]
    assert use == {"value": {"x-kubernetes-int-or-string": True}, "expression": {"type": "string"}}
    stage = definition("Stage")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    patch = stage["next"]["properties"]["patches"]["items"]["properties"]
    assert patch["template"] == {"type": "string"}
    assert patch["type"] == {"type": "string", "enum": ["json", "merge", "strategic"]}
