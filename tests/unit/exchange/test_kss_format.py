"""kube-scheduler-simulator's snapshots and records, and Lists of kubectl: what is read, refused and written."""

import io
import json
from pathlib import Path

import pytest

from lab.exchange.format import Reading, format_of, formats, open_stream
from lab.exchange.reading import Source
from lab.exchange.stream import Change, Refused

SNAPSHOT = {
    "pods": [{"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": []}}],
    "nodes": [{"metadata": {"name": "n1"}}],
    "pvs": None,
    "storageClasses": [],
    "schedulerConfig": {"profiles": []},
    "namespaces": [{"metadata": {"name": "team"}}],
}


def source(value):
    text = value if isinstance(value, bytes | str) else json.dumps(value)
    return Source(Path("f"), data=text if isinstance(text, bytes) else text.encode())


def read(value, lenient=False, name=""):
    found, stream = open_stream(source(value), Reading(is_lenient=lenient), name)
    objects, changes = list(stream.objects), list(stream.changes)
    return found.name, objects, changes, stream.notes


def written(name, *documents, changes=()):
    file = io.BytesIO()
    writer = formats()[name].write(file, 1_767_225_600.0)
    for document in documents:
        writer.put(document)
    for change in changes:
        writer.change(change)
    writer.close()
    return file.getvalue()


def test_a_snapshots_objects_get_their_kinds_and_its_configuration_is_noted():
    name, objects, changes, notes = read(SNAPSHOT)

    assert (name, changes) == ("kss", [])
    assert [(o.document["apiVersion"], o.document["kind"], o.document["metadata"]["name"]) for o in objects] == [
        ("v1", "Pod", "p"),
        ("v1", "Node", "n1"),
        ("v1", "Namespace", "team"),
    ]
    assert objects[0].where == "f:document 1 (line 1) pods[0]"
    assert list(notes.values()) == [1]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"pods": {}}, "f:document 1 (line 1): pods: want an array"),
        ({"pods": [], "secrets": [{}]}, "member 'secrets': want one of pods, nodes"),
        ({"pods": [{"metadata": {}}]}, "metadata.name: want a text, not nothing"),
        ({"pods": [{"metadata": {"name": "p", "namespace": 5}}]}, "metadata.namespace: want a text, not 5"),
        ({"pods": [{"metadata": {"name": "p", "uid": ["u"]}}]}, "metadata.uid: want a text, not ['u']"),
        ({"pods": [{"metadata": {"name": "p", "annotations": []}}]}, "Pod p: metadata.annotations: want an object"),
        ({"pods": [{"metadata": {"name": "p"}, "spec": "x"}]}, "pods[0]: Pod p: spec: want an object, not 'x'"),
        ({"nodes": [{"metadata": {"name": "n"}, "status": [[1]]}]}, "Node n: status: want an object, not [[1]]"),
        ('{"pods": [', "the file ends within a value"),
        ({"pods": ["x"]}, "want an object"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_its_place(document, text):
    with pytest.raises(Refused, match=r".") as refused:
        read(document)

    assert text in str(refused.value)


def test_a_snapshot_is_written_as_the_simulator_writes_it():
    text = written(
        "kss",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "system-x"}, "value": 1},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}},
    )

    assert json.loads(text) == {
        "pods": [{"metadata": {"name": "p", "namespace": "default", "uid": "u"}}],
        "nodes": [],
        "pvs": [],
        "pvcs": [],
        "storageClasses": [],
        "priorityClasses": [{"metadata": {"name": "high"}, "value": 1}],
        "schedulerConfig": None,
        "namespaces": [{"metadata": {"name": "team"}}],
    }
    assert list(json.loads(text)) == [
        "pods",
        "nodes",
        "pvs",
        "pvcs",
        "storageClasses",
        "priorityClasses",
        "schedulerConfig",
        "namespaces",
    ]
    assert [o.document["metadata"]["name"] for o in read(text)[1]] == ["p", "high", "team"]


# --- records ---


def line(second, event, document):
    return json.dumps({"time": f"2026-01-02T00:00:{second:012.9f}Z", "event": event, "resource": document})


def pod(name="p", **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_ks_27_a_record_has_its_times_and_a_torn_last_line_is_reported():
    lines = [line(i / 1000, "Add", pod(f"p{i}")) for i in range(999)]

    name, objects, changes, notes = read("\n".join([*lines, '{"time": "2026-01-02T00:00:01Z", "eve']))

    assert (name, objects, len(changes)) == ("kss-record", [], 999)
    assert notes == {"a torn last line (line 1000)": 1}
    assert [c.at_s for c in changes[:3]] == [0.0, 0.001, 0.002]
    assert (changes[5].method, changes[5].resource, changes[5].name) == ("create", "pods", "p5")


def test_a_whole_last_line_without_a_newline_counts():
    assert len(read(line(0, "Add", pod()))[2]) == 1


def test_updates_of_pods_with_a_node_and_unknown_kinds_are_left_out_and_counted():
    text = "\n".join(
        [
            line(0, "Add", pod()),
            line(1, "Update", pod(nodeName="s1")),
            line(2, "Update", pod(priority=1)),
            line(3, "Add", {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}),
            line(4.5, "Delete", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}),
        ]
    )

    _, _, changes, notes = read(text + "\n")

    assert [(c.at_s, c.method) for c in changes] == [(0.0, "create"), (2.0, "update"), (4.5, "delete")]
    assert changes[-1].document is None
    assert sorted(notes.values()) == [1, 1]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (line(0, "Upsert", pod()), "Pod default/p: event 'Upsert': want Add, Update or Delete"),
        ('{"time": "yesterday", "event": "Add", "resource": {"kind": "Pod"}}', "time 'yesterday': want a moment"),
        ('{"time": "2026-01-02T00:00:00Z", "event": "Add", "resource": 3}', "resource: want an object, not int"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_with_its_place_or_counted(text, wanted):
    with pytest.raises(Refused, match=r".") as refused:
        read(text + "\n" + line(1, "Add", pod()) + "\n")

    assert wanted in str(refused.value)
    assert str(refused.value).startswith("f:document 1 (line 1): ")
    assert len(read(text + "\n" + line(1, "Add", pod()) + "\n", lenient=True)[2]) == 1


def test_a_record_is_written_as_the_simulator_writes_it_and_read_again():
    change = Change(1.25, "update", "pods", "default", "p", pod(x=1))
    gone = Change(2.0, "delete", "storageclasses.storage.k8s.io", "", "fast")

    lines = [json.loads(each) for each in written("kss-record", pod(), changes=[change, gone]).splitlines()]

    assert [(each["time"], each["event"]) for each in lines] == [
        ("2026-01-01T00:00:00Z", "Add"),
        ("2026-01-01T00:00:01.25Z", "Update"),
        ("2026-01-01T00:00:02Z", "Delete"),
    ]
    assert lines[2]["resource"] == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
    }
    again = read(written("kss-record", pod(), changes=[change, gone]))[2]
    assert [(c.at_s, c.method, c.name) for c in again] == [
        (0.0, "create", "p"),
        (1.25, "update", "p"),
        (2.0, "delete", "fast"),
    ]


# --- kubectl ---

LIST = """\
apiVersion: v1
items:
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: a
    namespace: default
  data:
    text: |
      - items:
      kind: List

      ---- no separator
- apiVersion: v1
  kind: Node
  metadata:
    name: n1
kind: List
metadata:
  resourceVersion: ""
"""


def names(value, name=""):
    found, objects, _, _ = read(value, name=name)
    return found, [(o.document["kind"], o.document["metadata"]["name"]) for o in objects]


def test_a_list_of_kubectl_is_read_item_by_item():
    found, objects, _, _ = read(LIST)

    assert (found, [o.document["metadata"]["name"] for o in objects]) == ("kubectl", ["a", "n1"])
    assert objects[0].document["data"]["text"] == "- items:\nkind: List\n\n---- no separator\n"
    assert objects[1].where == "f:document 3 (line 14)"


def test_lists_and_objects_may_follow_each_other():
    text = LIST + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\n" + LIST.replace("n1", "n2")

    assert names(text) == (
        "kubectl",
        [("ConfigMap", "a"), ("Node", "n1"), ("Pod", "p"), ("ConfigMap", "a"), ("Node", "n2")],
    )


def test_lists_of_json_and_single_objects_too():
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}

    assert names({"apiVersion": "v1", "items": [node, node], "kind": "List", "metadata": {}}) == (
        "kubectl",
        [("Node", "n1")] * 2,
    )
    assert names(node) == ("kubectl", [("Node", "n1")])
    assert names({"apiVersion": "v1", "items": [], "kind": "List"}) == ("kubectl", [])
    assert names("apiVersion: v1\nitems: []\nkind: List\n") == ("kubectl", [])
    pods = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    assert read(pods)[1][0].document == pods


def test_a_list_that_is_written_is_read_again():
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {"a": "b: |\n c"}}}

    text = written("kubectl", node, pod())

    assert [o.document for o in read(text)[1]] == [node, pod()]
    assert names(written("kubectl")) == ("kubectl", [])


def test_a_mistake_in_an_item_is_refused_with_its_line():
    with pytest.raises(Refused, match=r"f:document 3 \(line 14\): Node: metadata.name: want a text"):
        read(LIST.replace("    name: n1", "    labels: {}"))


def test_formats_are_known_by_their_content():
    heads = {"kss": json.dumps(SNAPSHOT), "kss-record": line(0, "Add", pod()), "kubectl": LIST}

    assert {name: format_of(source(text)).name for name, text in heads.items()} == {name: name for name in heads}
