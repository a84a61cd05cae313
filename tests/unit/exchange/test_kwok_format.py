"""kwokctl's streams: what is read, what is refused, and what is written."""

import io
from pathlib import Path

import pytest

from apiserver_fake.registry.patch.patch import strategic_merge_patch
from apiserver_fake.registry.schema.schemas import shape_of
from lab.exchange.format import Reading, format_of, open_stream
from lab.exchange.patches import strategic_diff
from lab.exchange.reading import Source
from lab.exchange.stream import Change, Refused
from lab.exchange.times import nanoseconds_of, to_moments, to_offsets
from services.api.times import parse_time

BEGAN = parse_time("2026-01-02T00:00:00Z")
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: default
  uid: u1
  creationTimestamp: $(time-offset-nanosecond -3600000000000)
"""


def source(text):
    return Source(Path("f.yaml"), data=text if isinstance(text, bytes) else text.encode())


def action(
    number=0, *, method="patch", target="{name: web, namespace: default}", template="{spec: {}}", resource="pods"
):
    template = f"template: {template}\n" if template else ""
    return (
        f"apiVersion: action.kwok.x-k8s.io/v1alpha1\nkind: ResourcePatch\nresource: {{version: v1, resource: {resource}}}\n"
        f"target: {target}\ndurationNanosecond: {number}\nmethod: {method}\n{template}"
    )


def opened(*documents, **reading):
    return open_stream(source("---\n".join(documents)), Reading(began_wall_s=BEGAN, **reading))[1]


def test_a_snapshot_ends_with_the_first_change():
    stream = opened(POD, action(1_500_000_000))

    (web,), (change,) = list(stream.objects), list(stream.changes)
    assert web.document["metadata"]["creationTimestamp"] == "2026-01-01T23:00:00.000000Z"
    assert (change.at_s, change.method, change.resource, change.patch_type) == (1.5, "patch", "pods", "strategic")
    assert change.where == "f.yaml:document 2 (line 9)"


def test_the_changes_alone_can_be_read_and_none_is_lost_after_the_objects():
    assert [each.name for each in opened(POD, action(), action(1)).changes] == ["web", "web"]
    stream = opened(POD, action(), action(1))
    assert (len(list(stream.objects)), len(list(stream.changes))) == (1, 2)
    assert list(opened(POD).changes) == []


def test_changes_come_by_their_times_and_those_of_one_moment_in_their_order():
    stream = opened(*(action(at, target=f"{{name: p{n}}}") for n, at in enumerate((3, 1, 2, 1))))

    assert [each.name for each in stream.changes] == ["p1", "p3", "p2", "p0"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (action(method="upsert"), 'ResourcePatch default/web: method "upsert": want create, patch or delete'),
        (action(target="{}"), "ResourcePatch : target.name nothing: want the name of an object"),
        (
            action(-1),
            "ResourcePatch default/web: durationNanosecond -1: want nanoseconds since the beginning, 0 or more",
        ),
        (
            action(method="delete"),
            'ResourcePatch default/web: template {"spec":{}}: want nothing where the method is delete',
        ),
        (action(template=""), "ResourcePatch default/web: template nothing: want a strategic merge patch"),
        (
            action(template="{spec: {containers: [{image: x}]}}"),
            "ResourcePatch default/web: template.spec.containers[0].name nothing: want the merge key of the list",
        ),
        (
            action(method="create", template="{apiVersion: v1, kind: Pod, metadata: {name: b}}"),
            'ResourcePatch default/web: target "default/web": want that of its template, Pod b',
        ),
        (POD, "Pod default/web: want ResourcePatch alone after the first one"),
    ],
)
def test_a_change_that_cannot_be_used_is_refused_with_place_field_and_value(document, message):
    stream = opened(POD, action(), document)

    with pytest.raises(Refused) as refused:
        list(stream.changes)
    assert str(refused.value) == f"f.yaml:document 3 (line 17): {message}"


def test_a_lenient_reader_counts_what_it_leaves_out():
    stream = opened(POD, action(method="upsert"), action(), POD, "- 1\n", is_lenient=True)

    assert len(list(stream.changes)) == 1
    assert stream.notes == {
        "ResourcePatch documents that cannot be used": 1,
        "objects after the first ResourcePatch": 1,
        "documents that cannot be read": 1,
    }


@pytest.mark.parametrize("text", [POD, POD.replace("$(time-offset-nanosecond -3600000000000)", "null"), action()])
def test_it_is_known_by_its_content(text):
    assert format_of(source(text)).name == "kwok"


def test_a_snapshot_of_etcd_is_refused_with_advice():
    page = bytes(16) + bytes.fromhex("edda0ced") + bytes(4000)

    with pytest.raises(Refused) as refused:
        format_of(source(page))
    assert str(refused.value) == "f.yaml: a snapshot of etcd: a bbolt file; run `kwokctl snapshot save --format k8s`"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "", "f.yaml: it is empty"),
        ("hello", "", "f.yaml: no format fits the beginning of the file; want one of "),
        (POD, "bson", "--format bson: want one of "),
    ],
)
def test_a_file_of_no_format_is_refused(text, name, message):
    with pytest.raises(Refused) as refused:
        format_of(source(text), name)
    assert str(refused.value).startswith(message)


def test_times_keep_their_nanoseconds_on_the_way_out_and_microseconds_on_the_way_in():
    began = nanoseconds_of("2026-01-02T00:00:00Z")
    text = b'a: "2026-01-02T00:00:01.000000123+01:00" 2026-13-45T00:00:00Z'

    there = to_offsets(text, began)
    assert there == b'a: "$(time-offset-nanosecond -3598999999877)" 2026-13-45T00:00:00Z'
    assert to_moments(there, began) == b'a: "2026-01-01T23:00:01.000000Z" 2026-13-45T00:00:00Z'
    far = b"$(time-offset-nanosecond 9223372036854775807) $(time-offset-nanosecond 99999999999999999999)"
    assert to_moments(far, 1 << 62) == b"2408-05-31T23:40:55.282163Z $(time-offset-nanosecond 99999999999999999999)"


def pod(**containers):
    made = [{"name": name, "image": image} for name, image in containers.items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "7"},
        "spec": {"containers": made},
        "status": {"startTime": "2026-01-01T23:00:00Z"},
    }


def test_what_is_written_is_read_again():
    file = io.BytesIO()
    writer = open_stream(source(POD), Reading())[0].write(file, BEGAN)
    writer.put(pod(a="1", b="1"))
    for at, method, document in (
        (1, "update", pod(a="2", b="1")),
        (2, "update", pod(a="2", b="1")),
        (3, "delete", None),
    ):
        writer.change(Change(at, method, "pods", "default", "web", document))
    writer.close()

    text = file.getvalue().decode()
    assert "resourceVersion" not in text
    assert "$(time-offset-nanosecond -3600000000000)" in text
    stream = opened(text)
    assert next(stream.objects).document["status"]["startTime"] == "2026-01-01T23:00:00.000000Z"
    patch, delete = stream.changes
    assert (patch.at_s, patch.document["spec"]) == (
        1.0,
        {"containers": [{"image": "2", "name": "a"}], "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}]},
    )
    assert (delete.at_s, delete.method, delete.document) == (3.0, "delete", None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            {"spec": {"containers": [{"name": "a", "image": "1"}]}},
            {"spec": {"containers": [{"name": "b", "image": "1"}]}},
        ),
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
            {"spec": {"containers": [{"name": "b"}, {"name": "a"}]}},
        ),
        ({"metadata": {"finalizers": ["x", "y"]}}, {"metadata": {"finalizers": ["y", "z"]}}),
        ({"spec": {"nodeSelector": {"a": "1", "b": "2"}}}, {"spec": {"nodeSelector": {"a": "2"}}}),
        ({"spec": {"tolerations": [{"key": "a"}]}}, {"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}}),
        ({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, {"spec": {"containers": [{"name": "a"}]}}),
        ({"metadata": {"labels": {"a": "1"}}}, {"metadata": {}}),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, {"status": {"conditions": []}}),
        ({}, {"spec": {"a": [1]}}),
        ({"spec": {}}, {"spec": {}}),
    ],
)
def test_the_patch_between_two_states_makes_the_second_of_the_first(before, after):
    shape = shape_of("v1", "Pod")

    patch = strategic_diff(before, after, shape)

    assert strategic_merge_patch(before, patch, shape) == after
    assert (patch == {}) == (before == after)


def test_a_null_member_is_one_that_is_not_there_so_that_what_changed_is_given_alone():
    before = {"spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Pending", "startTime": None}}
    bound = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    after = {
        "spec": {"containers": [{"name": "a"}], "nodeName": "n1"},
        "status": {"phase": "Pending", "conditions": [bound]},
    }

    patch = strategic_diff(before, after, shape_of("v1", "Pod"))

    assert patch == {"spec": {"nodeName": "n1"}, "status": {"conditions": [bound], "startTime": None}}
