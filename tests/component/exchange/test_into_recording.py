"""Files of other tools as recordings, and recordings played again."""

import json

import pytest

from lab.exchange.format import Reading, open_stream
from lab.exchange.into_recording import write_recording
from lab.exchange.reading import Source
from lab.exchange.stream import Refused
from lab.recordings.format import Meta
from lab.recordings.reader import Recording

SNAPSHOT = """\
apiVersion: v1
kind: Node
metadata: {name: n1, uid: u-1}
status: {allocatable: {cpu: 8, memory: 16Gi, pods: 110}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: default}
spec: {nodeName: n1, containers: [{name: c, image: x}]}
status: {phase: Running}
---
apiVersion: example.com/v1
kind: Gizmo
metadata: {name: g}
"""


def action(at_s, method, name, template=""):
    return (
        f"---\napiVersion: action.kwok.x-k8s.io/v1alpha1\nkind: ResourcePatch\nresource: {{version: v1, resource: pods}}\n"
        f"target: {{name: {name}, namespace: default}}\ndurationNanosecond: {int(at_s * 1e9)}\nmethod: {method}\n"
        + (f"template: {template}\n" if template else "")
    )


DAY = (
    SNAPSHOT
    + action(
        1,
        "create",
        "b",
        "{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: default}, spec: {containers: [{name: c, image: x}]}}",
    )
    + action(2, "patch", "b", "{spec: {nodeName: n1, containers: [{name: c, image: y}]}}")
    + action(3, "delete", "a")
)


@pytest.fixture
def made(tmp_path):
    """Make a recording of a text, and return its path and what was left out."""

    def make(text, wanted=None, name="day.keprec"):
        (tmp_path / "day.yaml").write_text(text)
        stream = open_stream(Source(tmp_path / "day.yaml"), Reading(began_wall_s=1_700_000_000))[1]
        meta = Meta(title="day.yaml", ended="2026-01-01T00:00:00Z")
        found = write_recording(tmp_path / name, meta, [stream], 1_700_000_000, wanted)
        return tmp_path / name, list(found.left_out.lines())

    return make


def test_each_object_and_each_change_is_a_version_at_its_moment(made):
    path, said = made(DAY)

    with Recording.open(path) as recording:
        versions = [(each.rv, each.t, each.type, each.name) for each in recording.versions()]
        b = json.loads(recording.object_at("pods", "default", "b", 4))
        columns = recording.model_at(4).columns("pods")
        meta = recording.meta

    assert versions == [
        (1, 0.0, "ADDED", "n1"),
        (2, 0.0, "ADDED", "a"),
        (3, 1.0, "ADDED", "b"),
        (4, 2.0, "MODIFIED", "b"),
        (5, 3.0, "DELETED", "a"),
    ]
    assert (b["spec"]["nodeName"], b["spec"]["containers"][0]["image"]) == ("n1", "y")
    assert b["metadata"]["creationTimestamp"] == "2023-11-14T22:13:21Z"
    assert sorted(columns["node"][columns["name"] > 0]) == [0, 0], "both pods stand on the node"
    assert (meta.clock.wall_s, meta.ended != "") == (1_700_000_000, True)
    assert [line.partition(":")[0] for line in said] == ["1 of kinds that keplab does not know"]


def test_what_was_not_wanted_is_left_out_with_its_changes(made):
    path, _ = made(DAY, lambda document: document["kind"] == "Pod" and document["metadata"]["name"] == "b")

    with Recording.open(path) as recording:
        assert [each.name for each in recording.versions()] == ["b", "b"]


def test_a_recording_is_read_as_objects_and_changes_again(made):
    path, _ = made(DAY)

    found, stream = open_stream(Source(path), Reading())
    objects, changes = [each.document for each in stream.objects], list(stream.changes)

    assert (found.name, stream.origin.started_wall_s) == ("keprec", 1_700_000_000)
    assert [each["metadata"]["name"] for each in objects] == ["n1", "a"]
    assert [(each.at_s, each.method, each.name) for each in changes] == [
        (1.0, "create", "b"),
        (2.0, "update", "b"),
        (3.0, "delete", "a"),
    ]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (SNAPSHOT + action(1, "patch", "nothing", "{spec: {}}"), "x.keprec", "default/nothing is not there"),
        (SNAPSHOT, "x.txt", "x.txt: want a file that ends in .keprec"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(made, text, name, message):
    with pytest.raises(Refused, match=message):
        made(text, name=name)
