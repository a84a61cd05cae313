"""KWOK's kinds are read and checked whole: a mistake is one line with file, document, object, field and value."""

import pytest

from services.api.meta import Key
from services.kwok.documents import KwokError, kinds, load, read
from services.kwok.stages.document import StageError, read_stages

HEAD = "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"


def text(kind, spec):
    return HEAD.format(kind=kind, spec=spec)


def test_the_kinds_are_those_of_kwok():
    assert list(kinds()) == [
        "Attach", "ClusterAttach", "ClusterExec", "ClusterLogs", "ClusterPortForward", "ClusterResourceUsage",
        "Exec", "Logs", "Metric", "PortForward", "ResourceUsage",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("Exec", "{execs: [{local: {workdir: /tmp}}]}", "Exec default/x: spec.execs[0].local: Object contains unknown"),
        ("Exec", "{execs: [{local: {envs: [{name: A=b}]}}]}", "spec.execs[0].local.envs[0].name 'A=b': want the name"),
        ("ClusterExec", "{execs: [{local: {securityContext: {runAsUser: -1}}}]}", "runAsUser -1: want 0 to 4294967295"),
        (
            "PortForward",
            "{forwards: [{target: {port: 80, address: 10.0.0.1}}]}",
            "PortForward default/x: spec.forwards[0].target.address '10.0.0.1': want a loopback address",
        ),
        ("PortForward", "{forwards: [{ports: [0], command: [nc]}]}", "spec.forwards[0].ports[0] 0: want 1 to 65535"),
        ("PortForward", "{forwards: [{}]}", "spec.forwards[0]: want target, command or httpRoutes"),
        (
            "PortForward",
            "{forwards: [{httpRoutes: [{location: /, code: 99}]}]}",
            "httpRoutes[0].code 99: want 100 to 599",
        ),
        ("Logs", "{logs: [{}]}", "Logs default/x: spec.logs[0].logsFile: want the path of a file"),
        (
            "ClusterLogs",
            "{selector: {names: [a]}, logs: []}",
            "ClusterLogs x: spec.selector: Object contains unknown field",
        ),
        ("Attach", "{attaches: [{containers: [a]}]}", "spec.attaches[0]: Object missing required field `logsFile`"),
        ("ResourceUsage", "{usages: [{usage: {cpu: {}}}]}", "spec.usages[0].usage.cpu: want value or expression"),
        ("ResourceUsage", "{usages: [{usage: {cpu: {value: 1x}}}]}", "spec.usages[0].usage.cpu.value '1x': "),
        (
            "ResourceUsage",
            "{usages: [{usage: {cpu: {expression: F()}}}]}",
            "usage.cpu.expression: ERROR: <input>:1:2: undecl",
        ),
        (
            "ResourceUsage",
            "{usages: [{usage: {cpu: {expression: 'pod.Usage(\"cpu\")'}}}]}",
            "usage.cpu.expression: ERROR: <input>:1:10: undeclared reference to 'Usage'",
        ),
        ("Metric", "{path: /pods, metrics: []}", "Metric x: spec.path '/pods': want one that begins with /metrics/"),
        (
            "Metric",
            "{path: '/metrics/{pod}', metrics: []}",
            "spec.path '/metrics/{pod}': {pod} is not known; {nodeName} is",
        ),
        (
            "Metric",
            "{path: /metrics/x, metrics: [{name: a, kind: sum}]}",
            "spec.metrics[0].kind: Invalid enum value 'sum'",
        ),
        (
            "Metric",
            "{path: /metrics/x, metrics: [{name: a, kind: gauge}]}",
            "spec.metrics[0].value: a is a gauge: want a value",
        ),
        (
            "Metric",
            "{path: /metrics/x, metrics: [{name: a, kind: histogram, value: '1'}]}",
            "spec.metrics[0].buckets: a is a histogram: want buckets, and no value",
        ),
        (
            "Metric",
            "{path: /metrics/x, metrics: [{name: a, kind: gauge, value: pod.metadata.name}]}",
            "spec.metrics[0].value: 'pod.metadata.name' names pod, and the dimension is node",
        ),
        (
            "Metric",
            "{path: /metrics/x, metrics: [{name: a, kind: gauge, value: '1'}, {name: a, kind: counter, value: '1'}]}",
            "spec.metrics[1].kind: 'counter', and a has 'gauge' above",
        ),
        ("Stag", "{}", "kind Stag is not known; Stage, Attach, "),
        ("Logs", "[]", "Logs default/x: spec: want an object"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(kind, spec, said):
    with pytest.raises(KwokError) as refused:
        read([("f.yaml", text(kind, spec))])

    assert str(refused.value).startswith("f.yaml: document 1: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(StageError, match=r"f.yaml: document 1: "):
        read_stages([("f.yaml", text(kind, spec))])


def test_files_may_mix_kinds_and_a_name_or_a_path_is_there_once(tmp_path):
    logs = text("Logs", "{logs: [{logsFile: a.log}]}")
    assert read_stages([("f.yaml", logs)]) == ()
    with pytest.raises(KwokError, match=r"g.yaml: document 2: Logs default/x: is there already: f.yaml: document 1"):
        read([("f.yaml", logs), ("g.yaml", "---\n---\n" + logs)])
    metric = text("Metric", "{path: /metrics/a, metrics: []}")
    with pytest.raises(KwokError, match=r"Metric y: spec.path '/metrics/a': is that of f.yaml: document 1: Metric x"):
        read([("f.yaml", metric + "---\n" + metric.replace("name: x", "name: y"))])


def test_a_forward_to_a_command_needs_the_flag(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_text(text("ClusterPortForward", "{forwards: [{ports: [1], command: [nc]}]}"))
    with pytest.raises(KwokError, match=r"spec.forwards\[0\].command: it runs a command on this machine, which only"):
        load([str(file)], runs_commands=False)
    assert load([str(file)])["PortForward"].all[0].entries[0].command == ("nc",)


LOGS = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: some}
spec: {selector: {matchNamespaces: [a]}, logs: [{containers: [c], logsFile: 1}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec: {logs: [{logsFile: '2'}, {containers: [d], logsFile: '3'}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Logs
metadata: {name: p, namespace: b}
spec: {logs: [{containers: [c], logsFile: '4'}]}
"""


@pytest.mark.parametrize(
    ("namespace", "name", "container", "file"),
    [
        ("a", "p", "c", "1"),
        ("a", "p", "e", "2"),  # the first document selects the pod and has nothing for this container
        ("x", "p", "c", "2"),
        ("x", "p", "d", "3"),
        ("b", "p", "c", "4"),
        ("b", "p", "d", None),  # a document of the pod is asked alone
        ("b", "q", "d", "3"),
    ],
)
def test_a_document_of_the_pod_wins_and_an_entry_without_containers_is_for_the_others(namespace, name, container, file):
    rules = read([("f.yaml", LOGS.replace("logsFile: 1", "logsFile: '1'"))])["Logs"]

    found = rules.find(Key(namespace, name), container)

    assert (found.entry.logs_file if found else None) == file
