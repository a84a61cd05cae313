"""Attaching and detaching one volume: desired and actual state, Events, and when a detach is safe."""

import pytest

from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.kinds.volumeattachment import ATTACHMENTS
from services.api.meta import Key, ObjectMeta
from services.api.switches import Switches
from services.controllers.attach_detach.controller import CONTROLLER
from services.controllers.attach_detach.state import OUT_OF_SERVICE, multi_attach_text
from services.reconcile.actions import Create, Delete, Patch, Query, RecordEvent

CONTROLLED = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
UNIQUE = "kubernetes.io/csi/disk.example.com^h-pv"
ON_DELETE = "2026-01-01T00:00:00Z"


def a_node(name="n1", *, in_use=False, attached=False, ready=True, taint="", controlled=True):
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}
    status |= {"volumesInUse": [UNIQUE]} if in_use else {}
    status |= {"volumesAttached": [{"name": UNIQUE, "devicePath": ""}]} if attached else {}
    taints = [{"key": taint, "effect": "NoExecute"}] if taint else []
    meta = {"name": name, "annotations": CONTROLLED if controlled else {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": taints}, "status": status}


def a_volume(mode="ReadWriteOnce"):
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {"accessModes": [mode], "csi": {"driver": "disk.example.com", "volumeHandle": "h-pv"},
                 "claimRef": {"namespace": "default", "name": "data"}},
    }  # fmt: skip


def a_claim():
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}  # fmt: skip


def user(name, node, **metadata):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "status": {"phase": "Pending"},
            "spec": {"nodeName": node, "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}}  # fmt: skip


def held(node="n1", *, attached=True, error=None, **metadata):
    status = {"attached": attached, **({"attachError": {"time": error, "message": "no such disk"}} if error else {})}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": f"va-{node}"} | metadata,
            "spec": {"attacher": "disk.example.com", "nodeName": node, "source": {"persistentVolumeName": "pv"}},
            "status": status}  # fmt: skip


@pytest.fixture
def world(world_of):
    made = world_of(CONTROLLER)
    for document in (a_node("n1"), a_node("n2"), a_volume(), a_claim()):
        made.put(document)
    return made


def look(world, **live):
    return world.reconcile("pv", namespace="", live={Query(Node, Key("", name)): each for name, each in live.items()})


def kinds(result):
    return [type(action).__name__ for action in result.actions]


def texts(result):
    return [(a.reason, a.message) for a in result.actions if isinstance(a, RecordEvent)]


def node_of(world, document):
    """Return the Node as a live read would."""
    world.put(document)
    return world.of(Node).get(Key("", document["metadata"]["name"]))


def test_a_pod_on_a_node_leads_to_its_volume_and_to_one_attachment(world):
    assert world.put(user("db", "n1")) == [Key("", "pv")]

    (made,) = look(world).actions

    assert isinstance(made, Create)
    assert (made.resource, made.document["kind"]) == (ATTACHMENTS, "VolumeAttachment")
    assert made.document["metadata"]["name"].startswith("csi-")
    assert made.document["spec"] == {
        "attacher": "disk.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}}  # fmt: skip


def test_a_pod_without_volumes_and_a_pod_that_changes_otherwise_lead_nowhere(world):
    pod = user("db", "n1")
    world.put(pod)
    assert world.put({**pod, "status": {"phase": "Running"}}) == []
    assert world.put({**user("plain", "n1"), "spec": {"nodeName": "n1"}}) == []


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": a_node("n1", controlled=False)},
        {"driver": {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"},
                    "spec": {"attachRequired": False}}},
        {"volume": {**a_volume(), "spec": {"hostPath": {"path": "/"},
                                           "claimRef": {"namespace": "default", "name": "data"}}}},
        {"pod": {**user("db", "n1"), "status": {"phase": "Succeeded"}}},
        {"pod": user("db", "n1", deletionTimestamp=ON_DELETE)},
    ],
)  # fmt: skip
def test_what_the_controller_need_not_attach_is_not_attached(world, change):
    world.put(user("db", "n1"))
    for document in change.values():
        world.put(document)
    assert look(world).actions == ()


def test_the_node_names_what_is_attached_and_the_pods_event_says_so_once(world):
    world.put(user("db", "n1"))
    look(world)
    world.put(held())

    first = look(world)
    assert kinds(first) == ["Patch", "RecordEvent"]
    assert first.actions[0].patch["status"] == {"volumesAttached": [{"name": UNIQUE, "devicePath": ""}]}
    assert texts(first) == [("SuccessfulAttachVolume", 'AttachVolume.Attach succeeded for volume "pv" ')]
    world.put(a_node("n1", attached=True))
    assert look(world).actions == ()


def test_a_restarted_controller_finds_everything_as_it_was(world):
    world.put(a_node("n1", attached=True, in_use=True))
    world.put(user("db", "n1"))
    world.put(held())

    assert look(world).actions == (), "no second attachment, and no Event about the first"


def test_a_volume_of_one_node_waits_and_says_so_once_with_the_pods_that_have_it(world):
    world.put(user("first", "n1"))
    world.put(held())
    world.put(a_node("n1", attached=True, in_use=True))
    world.put(user("second", "n2"))

    result = look(world)

    assert texts(result)[-1] == (
        "FailedAttachVolume", 'Multi-Attach error for volume "pv" Volume is already used by pod(s) first')  # fmt: skip
    assert [a.type for a in result.actions if isinstance(a, RecordEvent)] == ["Warning"]
    assert not any(isinstance(each, Create) for each in result.actions)
    assert look(world).actions == ()

    world.drop("Pod", "second")
    look(world)
    world.put(user("second", "n2"))
    assert len(texts(look(world))) == 1, "it is another pod that waits"


def test_without_a_pod_there_the_volume_is_exclusively_attached(world):
    world.put(held())
    world.put(a_node("n1", attached=True, in_use=True))
    world.put(user("second", "n2"))

    assert texts(look(world)) == [(
        "FailedAttachVolume",
        ('Multi-Attach error for volume "pv" Volume is already exclusively attached to one node and can\'t be attached '
        "to another"),
    )]  # fmt: skip


def test_two_pods_that_come_together_get_one_attachment_and_a_shared_volume_two(world):
    world.put(user("first", "n1"))
    world.put(user("second", "n2"))
    assert kinds(look(world)) == ["Create", "RecordEvent"]

    world.put(a_volume("ReadWriteMany"))
    assert kinds(look(world)) == ["Create", "Create"]


def test_an_attach_error_is_recorded_once_each_time_and_so_is_a_silent_attacher(world):
    world.put(user("db", "n1"))
    look(world)
    world.put(held(attached=False))
    assert look(world).requeue_after_s == 120.0
    timed_out = world.reconcile("pv", namespace="", after_s=120.0)
    assert texts(timed_out) == [(
        "FailedAttachVolume",
        ('AttachVolume.Attach failed for volume "pv" : timed out waiting for external-attacher of disk.example.com CSI '
        "driver to attach volume h-pv"),
    )]  # fmt: skip

    world.put(held(attached=False, error="2026-01-01T00:00:05Z"))
    assert texts(look(world)) == [("FailedAttachVolume", 'AttachVolume.Attach failed for volume "pv" : no such disk')]
    assert look(world).actions == ()
    world.put(held(attached=False, error="2026-01-01T00:00:09Z"))
    assert len(texts(look(world))) == 1


def test_a_volume_in_use_is_not_detached_however_long_its_node_is_ready(world):
    world.put(held())
    world.put(a_node("n1", attached=True, in_use=True))

    assert look(world).requeue_after_s is None
    assert world.reconcile("pv", namespace="", after_s=1000.0).actions == ()


def test_a_detach_first_unreports_then_reads_the_node_live_and_then_deletes_by_uid(world):
    world.put(held())
    assert world.put(a_node("n1", attached=True)) == [Key("", "pv")]

    (unreport,) = look(world).actions
    assert isinstance(unreport, Patch)
    assert unreport.patch["status"] == {"volumesAttached": None}
    node = node_of(world, a_node("n1"))
    assert look(world).refresh == (Query(Node, Key("", "n1")),)
    (delete,) = look(world, n1=node).actions
    assert isinstance(delete, Delete)
    assert (delete.resource, delete.key, delete.uid) == (ATTACHMENTS, Key("", "va-n1"), "uid-va-n1")


def test_a_kubelet_that_was_faster_keeps_the_volume_and_the_node_names_it_again(world, world_of):
    world.put(held())
    world.put(a_node("n1", attached=True))
    look(world)
    other = world_of(CONTROLLER)
    live = node_of(other, a_node("n1", in_use=True))
    world.put(a_node("n1"))

    (again,) = look(world, n1=live).actions

    assert again.patch["status"] == {"volumesAttached": [{"name": UNIQUE, "devicePath": ""}]}


def test_a_node_that_is_not_ready_is_waited_for_six_minutes(world):
    world.put(held())
    world.put(a_node("n1", attached=True, in_use=True, ready=False))

    assert look(world).requeue_after_s == 360.0
    assert world.reconcile("pv", namespace="", after_s=359.0).requeue_after_s == pytest.approx(1.0)
    assert kinds(world.reconcile("pv", namespace="", after_s=1.0)) == ["Patch", "Delete"]
    assert (
        world.controller.metrics()['attach_detach_controller_attachdetach_controller_forced_detaches{reason="timeout"}']
        == 1
    )


def test_a_node_out_of_service_is_not_waited_for(world):
    world.put(held())
    world.put(a_node("n1", attached=True, in_use=True, ready=False, taint="node.kubernetes.io/out-of-service"))

    assert kinds(look(world)) == ["Patch", "Delete"]


def test_a_node_that_is_gone_is_waited_for_unless_nothing_was_in_use_there(world):
    world.put(held())
    world.put(a_node("n1", in_use=True))
    assert world.drop("Node", "n1") == [Key("", "pv")]
    assert look(world).requeue_after_s == 360.0

    world.put(a_node("n1"))
    world.drop("Node", "n1")
    assert look(world, n1=None).actions[0].resource == ATTACHMENTS


def test_a_pod_that_is_back_ends_the_wait(world):
    world.put(held())
    world.put(a_node("n1", attached=True, in_use=True, ready=False))
    look(world)
    world.reconcile("pv", namespace="", after_s=300.0)
    world.put(user("db", "n1"))
    look(world)
    world.drop("Pod", "db")

    assert look(world).requeue_after_s == 360.0


def second(node="n1", **how):
    """The attachment of another volume to the same node."""
    return {**held(node, name="va-other", **how),
            "spec": {"attacher": "disk.example.com", "nodeName": node, "source": {"persistentVolumeName": "other"}}}  # fmt: skip


def a_second_volume():
    volume = a_volume()
    spec = {**volume["spec"], "csi": {"driver": "disk.example.com", "volumeHandle": "h-other"}}
    return {**volume, "metadata": {"name": "other"}, "spec": {**spec, "claimRef": {"namespace": "x", "name": "y"}}}


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (second(), ["h-other", "h-pv"]),
        (second(attached=False), ["h-pv"]),
        (second(deletionTimestamp=ON_DELETE), ["h-pv"]),
    ],
)
def test_a_node_names_what_is_attached_and_neither_what_is_being_attached_nor_detached(world, other, names):
    for document in (a_second_volume(), other, user("db", "n1"), held()):
        world.put(document)

    reported = look(world).actions[0].patch["status"]["volumesAttached"]

    assert [each["name"].rpartition("^")[2] for each in reported] == names


def test_only_what_a_node_says_of_its_volumes_leads_to_them(world):
    world.put(held())
    beat = a_node("n1")
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = ON_DELETE

    assert world.put(beat) == []
    for said in ({"in_use": True}, {"attached": True}, {"ready": False}, {"taint": OUT_OF_SERVICE}):
        assert world.put(a_node("n1", **said)) == [Key("", "pv")]


def test_a_node_that_comes_under_the_controller_leads_to_the_volumes_of_its_pods(world):
    world.put(a_node("n1", controlled=False))
    world.put(user("db", "n1"))
    world.put(user("elsewhere", "n2"))
    world.put({**user("plain", "n1"), "spec": {"nodeName": "n1"}})

    assert world.put(a_node("n1")) == [Key("", "pv")]
    assert world.put(a_node("n1", ready=False)) == [], "it was under the controller before"
    assert world.put(a_node("n1", controlled=False)) == []
    world.drop("Pod", "db")
    assert world.put(a_node("n1")) == [], "no pod of another node"


def test_claims_volumes_attachments_and_drivers_lead_to_the_volumes_they_are_of(world):
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"}}

    assert world.put({**a_claim(), "status": {"phase": "Lost"}}) == []
    moved = {**a_claim(), "spec": {"volumeName": "other"}}
    assert world.put(moved) == [Key("", "pv"), Key("", "other")]
    assert world.drop("PersistentVolumeClaim", "data") == [Key("", "other")]
    assert world.put({**a_volume(), "status": {"phase": "Released"}}) == []
    assert world.put(a_volume("ReadWriteMany")) == [Key("", "pv")]
    assert world.put(held()) == [Key("", "pv")]
    assert world.put(driver) == [Key("", "pv")]
    assert world.put({**driver, "metadata": {"name": "another.example.com"}}) == []


def test_a_volume_that_is_being_detached_where_it_is_wanted_again_is_attached_once_that_is_over(world):
    world.put(user("db", "n1"))
    world.put(held(deletionTimestamp=ON_DELETE))
    assert look(world).actions == ()

    world.drop("VolumeAttachment", "va-n1", api_version="storage.k8s.io/v1")
    assert kinds(look(world)) == ["Create"]


def test_detaches_that_had_to_be_are_counted_by_why_and_those_of_unused_volumes_are_not(world):
    world.put(held())
    world.put(a_node("n1", attached=True, ready=False, taint=OUT_OF_SERVICE))
    assert kinds(look(world)) == ["Patch", "Delete"]
    counted = world.controller.metrics()
    assert list(counted.values()) == [0, 0]

    world.put(a_node("n1", attached=True, in_use=True, ready=False, taint=OUT_OF_SERVICE))
    look(world)
    assert world.controller.metrics() == {
        'attach_detach_controller_attachdetach_controller_forced_detaches{reason="timeout"}': 0,
        'attach_detach_controller_attachdetach_controller_forced_detaches{reason="out-of-service"}': 1,
    }


@pytest.mark.parametrize(
    ("users", "text"),
    [
        ((), "Volume is already exclusively attached to one node and can't be attached to another"),
        (("default", "default"), "Volume is already used by pod(s) p0, p1"),
        (("far", "far"), "Volume is already used by 2 pod(s) in different namespaces"),
        (("default", "far"), "Volume is already used by pod(s) p0 and 1 pod(s) in different namespaces"),
    ],
)
def test_pods_that_have_the_volume_are_named_and_those_of_other_namespaces_counted(users, text):
    others = [Pod(metadata=ObjectMeta(name=f"p{i}", namespace=each)) for i, each in enumerate(users)]

    assert multi_attach_text(Pod(metadata=ObjectMeta(name="new", namespace="default")), others) == text


def test_a_deleted_pod_holds_its_volumes_until_no_container_runs(world):
    running = {**user("db", "n1", deletionTimestamp=ON_DELETE),
               "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]}}  # fmt: skip
    world.put(running)
    assert kinds(look(world)) == ["Create"]

    ended = {"name": "c", "state": {"terminated": {"exitCode": 0}}}
    assert world.put({**running, "status": {"phase": "Running", "containerStatuses": [ended]}}) == [Key("", "pv")]
    assert look(world).actions == ()


@pytest.mark.parametrize(
    "change",
    [
        {"claim": {**a_claim(), "spec": {"volumeName": "other"}}},
        {"volume": {**a_volume(), "spec": {"csi": {"driver": "disk.example.com", "volumeHandle": "h-pv"}}}},
    ],
)
def test_a_volume_is_wanted_only_where_claim_and_volume_name_each_other(world, change):
    world.put(user("db", "n1"))
    for document in change.values():
        world.put(document)

    assert look(world).actions == ()


def test_where_kubelets_attach_volumes_themselves_there_is_no_such_controller():
    switch = "kubelet.enable_controller_attach_detach"
    assert [CONTROLLER.is_wanted(Switches({switch: given})) for given in (True, False)] == [True, False]
