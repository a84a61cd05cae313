"""Rows, columns and frames: however a version is come to, its columns are the same."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.recordings import frames, rows
from lab.recordings.format import Meta
from lab.recordings.frames import FrameError, Mirror, read_frame
from lab.recordings.model import Change, Model
from lab.recordings.reader import Recording
from lab.recordings.roles import parts_of
from lab.recordings.writer import Writer
from tests.unit.recordings.histories import KINDS, History, histories, node, pod


def change_of(event):
    return Change(event.type, event.resource, KINDS[event.resource], event.namespace, event.name, event.uid, event.body)


def applied(history, up_to=None):
    model = Model()
    for line, event in zip(history.lines[:up_to], history.events[:up_to], strict=True):
        if event is None:
            model.move(line.obj["uid"], line.data["to"])
            continue
        model.apply(event.rv, line.mono_ns / 1e9, line.data["group_end"] == line.rv, (change_of(event),))
    return model


def row(model, table, name):
    """Return the row of that name as a dict."""
    columns = model.columns(table)
    slot = next(i for i, number in enumerate(columns["name"]) if number and model.strings[number] == name)
    return {column: values[slot].tolist() for column, values in columns.items()}


def test_a_pod_row_says_what_a_table_shows():
    document = pod("web-0", "u", node="n1", phase="Running", cpu="1500m", unbindCount=1, nominatedNodeName="n2")
    document["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "creationTimestamp": "2026-01-01T00:00:01Z"}
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "o", "controller": True, "apiVersion": "apps/v1"}
    document["metadata"]["ownerReferences"] = [owner]
    document["spec"] |= {"priority": 9, "schedulingGroup": {"podGroupName": "g"}}

    found = rows.pod_row(document)

    flags = rows.TERMINATING | rows.NOMINATED | rows.IN_GROUP | rows.WAS_UNBOUND
    assert (found.cpu, found.memory, found.phase, found.priority) == (1500, 64 << 20, 1, 9)
    assert (found.owner, found.flags, found.node, found.nominated) == ("ReplicaSet/web", flags, "n1", "n2")
    assert found.created == 1767225601.0
    assert rows.pod_row(msgspec.json.encode(document)) == found


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"reason": "Evicted", "phase": "Failed"}, "Evicted"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, "Unschedulable"),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}, "CrashLoopBackOff"),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        ({"containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}, "Error"),
        ({}, ""),
    ],
)
def test_a_pods_reason_is_the_one_that_kubectl_shows(status, reason):
    document = pod("p", "u")
    document["status"] = status

    assert rows.pod_row(document).reason == reason


def test_a_node_row_counts_extended_resources_as_devices_and_joins_taints():
    document = node("n1", "u", ready="Unknown")
    document["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "effect": "NoExecute"}],
    }

    found = rows.node_row(document)

    assert (found.ready, found.unschedulable, found.taints) == (2, True, "a=b:NoSchedule,c:NoExecute")
    assert (found.cpu, found.memory, found.pods, found.devices, found.zone) == (8000, 32 << 30, 110, 4, "zone-a")


@pytest.mark.parametrize("read", [rows.pod_row, rows.node_row, rows.numa_row, rows.slice_row, rows.claim_row])
def test_a_body_that_is_none_of_the_kind_has_no_row(read):
    assert read(b'{"metadata": 7}') is None
    assert read(b"{") is None


def test_nodes_have_the_sums_of_the_pods_that_request_of_them():
    history = History()
    history.commit("pods", pod("early", "u0", node="n1", cpu="1"))
    history.commit("nodes", node("n1", "node-1"))
    history.commit("pods", pod("a", "u1", node="n1", phase="Running", cpu="2"))
    history.commit("pods", pod("b", "u2", node="n1", phase="Succeeded", cpu="4"))
    model = applied(history)

    found = row(model, "nodes", "n1")
    assert (found["req_cpu_m"], found["req_mem"], found["req_pods"]) == (3000, 2 * (64 << 20), 2)
    assert found["phases"] == [1, 1, 1, 0, 0]
    assert row(model, "pods", "early")["node"] == 0

    history.commit("nodes", node("n1", "node-1"), "DELETED")
    model = applied(history)
    assert row(model, "pods", "early")["node"] == -1
    assert not model.columns("nodes")["name"].any()


def test_a_node_changes_when_what_its_pods_come_to_does():
    history, model = History(), Model()
    history.commit("nodes", node("n1", "u-n1"))
    history.commit("pods", pod("a", "u1", node="n1", phase="Running"))
    waiting = pod("a", "u1", node="n1", phase="Running")
    waiting["status"]["reason"] = "Evicted"
    history.commit("pods", waiting)
    history.commit("pods", pod("a", "u1", node="n1", phase="Succeeded"))
    changed = []
    for event in history.events:
        model.apply(event.rv, 0.0, True, (change_of(event),))
        model.columns("nodes")
        changed.append((bool(model.nodes.changed), bool(model.pods.changed)))
        model.forget_changes()

    assert [(True, False), (True, True), (False, True), (True, True)] == changed


def test_devices_of_slices_and_claims_are_counted_on_their_node():
    model = Model()
    node_change = Change("ADDED", "nodes", "Node", "", "n1", "node-1", node("n1", "node-1"))
    pool = {"name": "n1", "generation": 2}
    slice_ = {
        "metadata": {"name": "s"},
        "spec": {"driver": "d", "nodeName": "n1", "pool": pool, "devices": [{"name": "x"}, {"name": "y"}]},
    }
    results = [
        {"driver": "d", "pool": "n1", "device": "x"},
        {"driver": "d", "pool": "n1", "device": "y", "adminAccess": True},
    ]
    claim = {
        "metadata": {"name": "c", "namespace": "shop"},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    model.apply(1, 0.1, True, (node_change,))
    model.apply(2, 0.2, True, (Change("ADDED", rows.SLICES, "ResourceSlice", "", "s", "s", slice_),))
    model.apply(3, 0.3, True, (Change("ADDED", rows.CLAIMS, "ResourceClaim", "shop", "c", "c", claim),))

    found = row(model, "nodes", "n1")
    assert (found["devices"], found["used_devices"]) == (4 + 2, 1)

    model.apply(4, 0.4, True, (Change("DELETED", rows.CLAIMS, "ResourceClaim", "shop", "c", "c"),))
    assert row(model, "nodes", "n1")["used_devices"] == 0


def test_numa_nodes_are_those_of_the_nodes_topology():
    zones = [
        {"name": f"node-{i}", "resources": [{"name": "cpu", "allocatable": "16", "available": str(16 - 4 * i)}]}
        for i in range(2)
    ]
    model = Model()
    topology = {"metadata": {"name": "n1"}, "zones": zones}
    model.apply(1, 0.1, True, (Change("ADDED", rows.TOPOLOGIES, "NodeResourceTopology", "", "n1", "t", topology),))
    model.apply(2, 0.2, True, (Change("ADDED", "nodes", "Node", "", "n1", "node-1", node("n1", "node-1")),))

    found = row(model, "nodes", "n1")
    assert found["numa"] == [16, 16, 0, 0, 0, 0, 0, 0]
    assert found["numa_req"] == [0, 4, 0, 0, 0, 0, 0, 0]


def test_the_lowest_free_slot_is_used_again():
    history = History()
    for name in "abc":
        history.commit("pods", pod(name, f"u-{name}"))
    history.commit("pods", pod("b", "u-b"), "DELETED")
    history.commit("pods", pod("a", "u-a"), "DELETED")
    history.commit("pods", pod("d", "u-d"))
    model = applied(history)

    names = [model.strings[number] for number in model.columns("pods")["name"]]
    assert names == ["d", "", "c"]


def test_a_pod_whose_body_is_not_recorded_has_a_row_of_facts():
    model = Model()
    facts = {"node": "n1", "phase": "Running", "requests": {"cpu": 250, "memory": 5}}
    model.apply(1, 0.1, True, (Change("ADDED", "pods", "Pod", "shop", "p", "u", None, facts, ()),))
    model.apply(
        2,
        0.2,
        True,
        (Change("MODIFIED", "pods", "Pod", "shop", "p", "u", None, {"node": "n1", "phase": "Failed"}, ()),),
    )

    found = row(model, "pods", "p")
    assert (found["cpu_m"], found["mem"], found["phase"], found["flags"]) == (250, 5, 3, rows.FROM_FACTS)


def test_the_pool_of_a_pod_is_kept_whichever_comes_first():
    history, model = History(), Model()
    history.commit("pods", pod("p", "u"))
    model.move("u", "active", 0.001)
    model.apply(1, 0.01, True, (change_of(history.events[0]),))
    assert row(model, "pods", "p")["pool"] == 2
    model.move("u", "unschedulable")
    assert row(model, "pods", "p")["pool"] == 5
    model.move("u", "")
    assert row(model, "pods", "p")["pool"] == 0


def test_pods_have_the_roles_by_which_runs_are_compared():
    history = History()
    history.commit("replicasets.apps", {"metadata": {"name": "web-abc", "namespace": "shop", "uid": "rs"}})
    for name in ("web-x", "web-y"):
        document = pod(name, name)
        document["metadata"]["ownerReferences"] = [
            {"uid": "rs", "kind": "ReplicaSet", "name": "web-abc", "controller": True}
        ]
        history.commit("pods", document)
    model = applied(history)

    columns = model.columns("pods")
    roles = [model.strings[number] for number in columns["role"]]
    assert roles == ["shop/replicaset/web-abc"] * 2
    assert columns["role_number"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("role", "parts"),
    [("pod/a", ("pod/a", 0)), ("job/a#0", ("job/a", 1)), ("a#1#12", ("a#1", 13)), ("a#b", ("a#b", 0))],
)
def test_a_role_is_what_stands_before_its_number_and_the_number(role, parts):
    assert parts_of(role) == parts


def test_a_node_holds_what_its_kubelet_has_allocated_to_the_pods_that_it_has_seen():
    """The scheduler counts the larger of desired and allocated while a resize is deferred, and a pod once it is bound."""
    resized = pod("resized", "u1", node="n1", phase="Running", cpu="4", startTime="2026-01-01T00:00:00Z")
    sizes = {"cpu": "1", "memory": "64Mi"}
    resized["status"]["containerStatuses"] = [
        {"name": "c", "allocatedResources": sizes, "resources": {"requests": sizes}}
    ]
    history = History()
    history.commit("nodes", node("n1", "node-1"))
    history.commit("pods", resized)
    history.commit("pods", pod("unseen", "u2", node="n1", cpu="2"))
    model = applied(history)

    found = row(model, "nodes", "n1")
    assert (found["req_cpu_m"], found["held_cpu_m"]) == (6000, 1000)
    assert (found["req_mem"], found["held_mem"]) == (2 * (64 << 20), 64 << 20)
    assert (row(model, "pods", "resized")["held_cpu_m"], row(model, "pods", "unseen")["held_cpu_m"]) == (1000, 0)


def assert_same(expected, found):
    assert expected.keys() == found.keys()
    for column, values in expected.items():
        np.testing.assert_array_equal(values, found[column], column)


@settings(max_examples=80, deadline=None)
@given(histories(), st.integers(1, 5))
def test_a_mirror_of_deltas_has_the_columns_of_the_whole(history, every):
    model, mirror = Model(), Mirror()
    for data in model.frames():
        mirror.take(data)
    for number, (line, event) in enumerate(zip(history.lines, history.events, strict=True)):
        if event is None:
            model.move(line.obj["uid"], line.data["to"])
        else:
            model.apply(event.rv, line.mono_ns / 1e9, line.data["group_end"] == line.rv, (change_of(event),))
        if number % every == 0:
            for data in model.delta():
                mirror.take(data)
            if event is not None:
                assert (mirror.rv, mirror.is_in_group) == (event.rv, line.data["group_end"] != line.rv)
            assert mirror.strings == model.strings
            for table in ("nodes", "pods"):
                assert_same(model.columns(table), mirror.tables[table])
    again = Mirror()
    for data in (*model.frames(), *(deltas := model.delta())):
        again.take(data)
    for data in deltas:
        mirror.take(data)
    for table in ("nodes", "pods"):
        assert_same(again.tables[table], mirror.tables[table])


@settings(max_examples=40, deadline=None)
@given(histories(), st.booleans())
def test_the_columns_at_a_version_are_those_of_all_changes_up_to_it(tmp_path_factory, history, with_bodies):
    path = tmp_path_factory.mktemp("r") / "a.keprec"
    writer = Writer(path, Meta())
    for number, line in enumerate(history.lines):
        writer.line(line)
        event = history.events[number]
        if event is not None and (with_bodies or number % 3):
            writer.event(event)
    writer.close(Meta(ended="now"))

    with Recording.open(path) as recording:
        model, seen = Model(), []
        for version in recording.replay(model):
            if not version.group_end:
                continue
            found = recording.model_at(version.rv)
            assert found.frames() == model.frames()
            seen.append((version.rv, found))
        # What was restored goes on as what was folded.
        for rv, found in seen:
            for _ in recording.replay(found, rv):
                pass
            assert found.frames() == model.frames()


@given(st.binary(max_size=80))
def test_bytes_that_are_no_frame_are_refused(data):
    try:
        read_frame(data)
    except FrameError:
        return
    assert data[1] == frames.FRAME_VERSION


def test_a_frame_is_laid_out_as_the_reference_says():
    history = History()
    history.commit("pods", pod("p", "u", node="n1"), group_end=False)
    model = applied(history)
    strings, _, pods = model.frames()

    assert strings[:4] == bytes((frames.DICT, 1, frames.IN_GROUP | frames.REPLACES, 0))
    kind, version, flags, count, rv, t = frames.HEAD.unpack_from(pods)
    assert (kind, version, flags, count, rv, t) == (frames.PODS, 1, 3, 1, 1.0, 0.01)
    length = int.from_bytes(pods[24:28], "little")
    assert (28 + length) % 8 == 0
    header = msgspec.json.decode(pods[28 : 28 + length])
    assert [each[:3] for each in header["columns"]] == [list(spec) for spec in frames.POD_COLUMNS]
    assert all(each[3] % 8 == 0 for each in header["columns"])
    assert header["columns"][0] == ["name", "u32", 1, 0, "u8"]
    assert pods[28 + length] == model.strings.index("p")


@given(st.data())
def test_columns_of_all_rows_take_the_smallest_type_and_come_back_as_they_were(data):
    spec = data.draw(st.sampled_from(frames.POD_COLUMNS))
    rows_of = data.draw(st.integers(0, 5))
    dtype = frames.TYPES[spec.type]
    if dtype.kind == "f":
        value = st.floats(width=64, allow_nan=False) | st.integers(-(2**33), 2**33).map(float)
    else:
        value = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) | st.integers(0, 300)
    value = value | st.just(0)
    values = np.asarray(
        data.draw(st.lists(value, min_size=rows_of, max_size=rows_of)), np.float64 if dtype.kind == "f" else dtype
    )
    columns = {**frames.empty(frames.POD_COLUMNS, rows_of), spec.name: values.astype(dtype)}

    frame = read_frame(frames.table_frame("pods", columns, 1, 0.0))

    for name, expected in columns.items():
        np.testing.assert_array_equal(expected, frame.columns[name], name)
        assert frame.columns[name].dtype == expected.dtype


def test_a_column_that_is_the_same_in_all_rows_is_one_row():
    columns = frames.empty(frames.NODE_COLUMNS, 1000)
    columns["numa"][:] = [16, 16, 0, 0, 0, 0, 0, 0]
    columns["created"][:] = np.arange(1000) + 1_800_000_000.0
    data = frames.table_frame("nodes", columns, 1, 0.0)

    header = read_frame(data).header["columns"]
    assert {each[0]: each[4:] for each in header if each[0] in ("numa", "created")} == {
        "numa": ["same"],
        "created": ["u32"],
    }
    assert len(data) < 4_000 + 3_000
