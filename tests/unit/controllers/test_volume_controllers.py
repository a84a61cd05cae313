"""Binding, making, reclaiming and protecting volumes; the claims of ephemeral volumes."""

from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod
from services.api.meta import Key, ObjectMeta
from services.controllers.ephemeral_volume.controller import CONTROLLER as EPHEMERAL_VOLUME
from services.controllers.persistentvolume_binder.controller import CONTROLLER as BINDER
from services.controllers.volume_protection.controller import CONTROLLER as VOLUME_PROTECTION
from services.reconcile.actions import Create, Delete, Patch, Query, RecordEvent

ZONE = "topology.kubernetes.io/zone"
DONE = {"pv.kubernetes.io/bind-completed": "yes"}


def a_class(name="late", mode="WaitForFirstConsumer", provisioner="disk.example.com", **fields):
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": mode, "reclaimPolicy": "Delete", **fields}  # fmt: skip


def a_claim(name="data", storage_class="late", size="1Gi", volume="", phase="Pending", node="", **metadata):
    annotations = {**metadata.pop("annotations", {}), **({"volume.kubernetes.io/selected-node": node} if node else {})}
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": annotations, **metadata},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
                 "storageClassName": storage_class, "volumeName": volume},
        "status": {"phase": phase},
    }  # fmt: skip


def a_volume(name="pv", storage_class="late", size="1Gi", claim="", uid=None, phase="Available", policy="Retain",
             **metadata):  # fmt: skip
    reference = {"namespace": "default", "name": claim, "uid": f"uid-{claim}" if uid is None else uid}
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, **metadata},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": storage_class,
                 "persistentVolumeReclaimPolicy": policy, **({"claimRef": reference} if claim else {})},
        "status": {"phase": phase},
    }  # fmt: skip


def a_node(name="n1", zone="a", **labels):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone, **labels}}}


def written(result):
    """Return what is written where, without events: (resource, name, subresource)."""
    return [(a.resource, a.key.name, a.subresource) for a in result.actions if isinstance(a, Patch)]


def events(result):
    return [a.reason for a in result.actions if isinstance(a, RecordEvent)]


def test_an_immediate_claim_is_bound_to_the_smallest_volume_in_four_writes(world_of):
    world = world_of(BINDER)
    world.put(a_class("now", mode="Immediate"))
    for name, size in (("large", "5Gi"), ("small", "2Gi"), ("tiny", "512Mi")):
        world.put(a_volume(name, "now", size))
    assert Key("default", "claim/data") in world.put(a_claim(storage_class="now"))

    result = world.reconcile("claim/data")

    assert written(result) == [
        ("persistentvolumes", "small", ""), ("persistentvolumes", "small", "status"),
        ("persistentvolumeclaims", "data", ""), ("persistentvolumeclaims", "data", "status")]  # fmt: skip
    assert result.actions[0].patch["spec"]["claimRef"]["uid"] == "uid-data"
    assert result.actions[0].patch["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert result.actions[2].patch["spec"] == {"volumeName": "small"}
    assert result.actions[3].patch["status"] == {
        "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}  # fmt: skip


def test_an_interrupted_binding_goes_on_where_it_stopped(world_of):
    world = world_of(BINDER)
    world.put(a_class())
    world.put(a_volume(claim="data", phase="Bound"))
    world.put(a_claim())

    assert written(world.reconcile("claim/data")) == [
        ("persistentvolumeclaims", "data", ""), ("persistentvolumeclaims", "data", "status")]  # fmt: skip


def test_a_claim_that_waits_is_not_given_a_volume_until_the_scheduler_reserves_one(world_of):
    world = world_of(BINDER)
    world.put(a_class())
    world.put(a_volume())
    world.put(a_claim())
    first = world.reconcile("claim/data")
    assert (written(first), events(first)) == ([], ["WaitForFirstConsumer"])
    assert world.reconcile("claim/data").actions == (), "said once"

    assert Key("default", "claim/data") in world.put(a_volume(claim="data"))
    assert ("persistentvolumeclaims", "data", "") in written(world.reconcile("claim/data"))


def test_a_volume_is_made_near_the_chosen_node_and_takes_its_time(world_of):
    world = world_of(BINDER, volumes__provision_s=3.0)
    world.put(a_class())
    world.put(a_node("n1", "a"))
    world.put(a_claim(node="n1"))

    begun = world.reconcile("claim/data")
    assert (begun.requeue_after_s, events(begun)) == (3.0, ["Provisioning"])
    assert world.reconcile("claim/data", after_s=1.0).requeue_after_s == 2.0
    made = next(a for a in world.reconcile("claim/data", after_s=2.0).actions if isinstance(a, Create)).document

    assert made["metadata"]["name"] == "pvc-uid-data"
    assert made["spec"]["claimRef"]["uid"] == "uid-data"
    assert made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]  # fmt: skip


def test_a_provisioner_whose_name_no_csi_driver_may_have_makes_a_directory_of_a_host(world_of):
    world = world_of(BINDER, volumes__provision_s=0.0)
    world.put(a_class(provisioner="rancher.io/local-path"))
    world.put(a_node("n1", "a"))
    world.put(a_claim(node="n1"))

    made = next(a for a in world.reconcile("claim/data").actions if isinstance(a, Create)).document

    assert "csi" not in made["spec"]
    assert made["spec"]["hostPath"] == {
        "path": "/var/lib/keplab/volumes/pvc-uid-data", "type": "DirectoryOrCreate"}  # fmt: skip


def test_a_driver_that_registered_its_own_topology_is_followed(world_of):
    world = world_of(BINDER, volumes__provision_s=0.0)
    world.put(a_class())
    world.put(a_node("n1", "a", rack="r7"))
    world.put({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
               "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "x", "topologyKeys": ["rack"]}]}})  # fmt: skip
    world.put(a_claim(node="n1"))

    made = next(a for a in world.reconcile("claim/data").actions if isinstance(a, Create)).document

    (term,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert [(each["key"], each["values"]) for each in term["matchExpressions"]] == [("rack", ["r7"])]


def test_without_a_chosen_node_the_claims_name_decides_among_the_zones(world_of):
    world = world_of(BINDER, volumes__provision_s=0.0)
    world.put(a_class("now", mode="Immediate"))
    for i, zone in enumerate("ab"):
        world.put(a_node(f"n{i}", zone))
    zones = set()
    for i in range(8):
        world.put(a_claim(f"d{i}", "now"))
        made = next(a for a in world.reconcile(f"claim/d{i}").actions if isinstance(a, Create)).document
        zones.add(made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0])
    assert zones == {"a", "b"}


def test_a_node_that_is_gone_is_taken_off_the_claim_after_a_live_look(world_of):
    world = world_of(BINDER)
    world.put(a_class())
    world.put(a_node("n1"))
    world.put(a_claim(node="n1"))
    assert Key("default", "claim/data") in world.drop("Node", "n1")
    query = Query(Node, Key("", "n1"))

    assert world.reconcile("claim/data").refresh == (query,)
    result = world.reconcile("claim/data", live={query: None})

    assert result.actions[0].patch == {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": None}}}
    assert events(result) == ["ProvisioningFailed"]


def test_a_bound_claim_whose_volume_is_gone_is_lost_after_a_live_look(world_of):
    world = world_of(BINDER)
    world.put(a_class())
    world.put(a_claim(volume="pv", phase="Bound", annotations=DONE))
    query = Query(PersistentVolume, Key("", "pv"))

    assert world.reconcile("claim/data").refresh == (query,)
    assert world.reconcile("claim/data", live={query: PersistentVolume()}).actions == ()
    result = world.reconcile("claim/data", live={query: None})

    assert (result.actions[0].patch, events(result)) == ({"status": {"phase": "Lost"}}, ["ClaimLost"])


def test_a_volume_without_a_claim_becomes_available_and_so_does_a_reserved_one(world_of):
    world = world_of(BINDER)
    world.put(a_volume("free", phase="Pending"))
    world.put(a_volume("mine", claim="data", uid="", phase="Pending"))
    for name in ("free", "mine"):
        (patch,) = world.reconcile(f"volume/{name}", namespace="").actions
        assert patch.patch["status"]["phase"] == "Available"


def test_a_volume_whose_claim_is_gone_is_released_and_deleted_if_its_policy_says_so(world_of):
    query = Query(PersistentVolumeClaim, Key("default", "data"))
    for policy, deleted in (("Retain", []), ("Delete", ["pv"])):
        world = world_of(BINDER)
        world.put(a_volume(claim="data", phase="Bound", policy=policy))
        asked = world.reconcile("volume/pv", namespace="")
        assert asked.refresh == (query,)
        result = world.reconcile("volume/pv", namespace="", live={query: None})
        assert result.actions[0].patch["status"]["phase"] == "Released"
        assert [a.key.name for a in result.actions if isinstance(a, Delete)] == deleted
        alive = PersistentVolumeClaim(metadata=ObjectMeta(name="data", namespace="default", uid="uid-data"))
        assert world.reconcile("volume/pv", namespace="", live={query: alive}).actions == ()


def test_a_volume_deleted_before_its_claim_is_released_when_the_claim_is_gone_and_not_deleted_twice(world_of):
    query = Query(PersistentVolumeClaim, Key("default", "data"))
    for policy in ("Retain", "Delete", "Recycle"):
        world = world_of(BINDER)
        world.put(a_volume(claim="data", phase="Bound", policy=policy, deletionTimestamp="2026-01-01T00:00:00Z"))

        (patch,) = world.reconcile("volume/pv", namespace="", live={query: None}).actions

        assert (patch.subresource, patch.patch["status"]["phase"]) == ("status", "Released")


def test_of_two_volumes_for_one_claim_the_other_is_unbound(world_of):
    world = world_of(BINDER)
    world.put(a_claim(volume="other", phase="Bound", annotations=DONE))
    world.put(a_volume("found", claim="data", annotations={"pv.kubernetes.io/bound-by-controller": "yes"}))
    world.put(a_volume("made", claim="data", policy="Delete",
                       annotations={"pv.kubernetes.io/provisioned-by": "disk.example.com"}))  # fmt: skip

    found, made = (world.reconcile(f"volume/{name}", namespace="").actions for name in ("found", "made"))

    assert found[0].patch["spec"] == {"claimRef": None}
    assert isinstance(made[-1], Delete)


def test_a_claim_is_held_while_a_pod_that_has_not_ended_uses_it(world_of, a_pod):
    world = world_of(VOLUME_PROTECTION)
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection", "a/b"]}
    spec = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    world.put(a_claim(**ending))
    world.put(a_pod("user", spec=spec))
    query = Query(Pod, Key("default", ""))
    assert world.reconcile("claim/data").actions == ()

    assert world.put(a_pod("user", phase="Succeeded", spec=spec)) == [Key("default", "claim/data")]
    assert world.reconcile("claim/data").refresh == (query,)
    (patch,) = world.reconcile("claim/data", listed={query: ()}).actions

    assert patch.patch == {"metadata": {"finalizers": ["a/b"]}}


def test_a_volume_is_held_while_it_is_bound(world_of):
    world = world_of(VOLUME_PROTECTION)
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pv-protection"]}
    world.put(a_volume(phase="Bound", claim="data", **ending))
    assert world.reconcile("volume/pv", namespace="").actions == ()
    world.put(a_volume(phase="Released", claim="data", **ending))
    (patch,) = world.reconcile("volume/pv", namespace="").actions
    assert patch.patch == {"metadata": {"finalizers": None}}


def test_an_ephemeral_volume_gets_a_claim_of_its_pods_own_and_no_other(world_of, a_pod):
    world = world_of(EPHEMERAL_VOLUME)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "x"}}
    volumes = [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "e", "emptyDir": {}}]
    assert world.put(a_pod("p", phase="Pending", spec={"volumes": volumes})) == [Key("default", "p")]

    (made,) = world.reconcile("p").actions
    assert (made.document["metadata"]["name"], made.document["spec"]) == ("p-tmp", template["spec"])
    assert made.document["metadata"]["ownerReferences"][0]["uid"] == "uid-p"
    world.put(a_claim("p-tmp"))
    assert events(world.reconcile("p")) == ["FailedBinding"]
    world.put(made.document)
    assert world.reconcile("p").actions == ()
