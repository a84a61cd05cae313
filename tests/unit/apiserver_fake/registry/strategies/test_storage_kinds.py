"""Volumes, claims and storage classes: defaults, rules, what may change, and how they are printed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apiserver_fake.registry.authorization.authorizer import admit
from apiserver_fake.registry.strategy import strategy_for
from apiserver_fake.rest import tables
from services.api.errors import Forbidden
from services.api.identity import ADMIN, SCHEDULER, controller_identity, node_identity
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.resources import resources
from services.api.wire import Request

CLASSES = "storageclasses.storage.k8s.io"
CAPACITIES = "csistoragecapacities.storage.k8s.io"
ATTACHMENTS = "volumeattachments.storage.k8s.io"
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
ONE_GIB = {"requests": {"storage": "1Gi"}}


def claim(name: str = "data", **spec: Any) -> dict[str, Any]:
    parts = {"accessModes": ["ReadWriteOnce"], "resources": ONE_GIB, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": parts}


def volume(name: str = "pv", **spec: Any) -> dict[str, Any]:
    parts = {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "csi": {"driver": "d", "volumeHandle": "h"}, **spec,
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": parts}


def storage_class(name: str = "fast", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "disk.example.com", **fields}  # fmt: skip


def attachment(name: str = "csi-1", **spec: Any) -> dict[str, Any]:
    parts = {"attacher": "disk.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}, **spec}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name}, "spec": parts}


def said(world: Any, resource: str, document: dict[str, Any]) -> list[str]:
    causes, _ = world.try_create(resource, document)
    return [f"{cause.path}: {cause.message}" for cause in causes]


def refused_update(world: Any, resource: str, old: dict[str, Any], **spec: Any) -> list[str]:
    causes, _ = world.try_update(resource, old, {**old, "spec": {**old["spec"], **spec}})
    return [f"{cause.path}: {cause.message}" for cause in causes]


def test_a_claim_is_pending_protected_and_gets_the_newest_default_class(world):
    world.put(CLASSES, storage_class("old") | {"metadata": {"name": "old", "annotations": DEFAULT,
                                                             "creationTimestamp": "2026-01-01T00:00:00Z"}})  # fmt: skip
    world.put(CLASSES, storage_class("new") | {"metadata": {"name": "new", "annotations": DEFAULT,
                                                             "creationTimestamp": "2026-01-02T00:00:00Z"}})  # fmt: skip
    made = world.create("persistentvolumeclaims", claim())
    assert (made["spec"]["storageClassName"], made["spec"]["volumeMode"]) == ("new", "Filesystem")
    assert made["status"] == {"phase": "Pending"}
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert world.create("persistentvolumeclaims", claim("no", storageClassName=""))["spec"]["storageClassName"] == ""


def test_a_volume_is_pending_protected_and_retained_unless_it_says_otherwise(world):
    made = world.create("persistentvolumes", volume())
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert made["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("resource", "document", "text"),
    [
        ("persistentvolumeclaims", claim(accessModes=[]), "spec.accessModes: Required value: at least 1 access mode"),
        ("persistentvolumeclaims", claim(accessModes=["ReadWriteOncePod", "ReadOnlyMany"]),
         "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"),
        ("persistentvolumeclaims", claim(accessModes=["Wrong"]), 'spec.accessModes: Unsupported value: "Wrong"'),
        ("persistentvolumeclaims", claim(resources={}), "spec.resources[storage]: Required value"),
        ("persistentvolumes", volume(csi=None), "spec: Required value: must specify a volume type"),
        ("persistentvolumes", volume(hostPath={"path": "/"}),
         "spec.csi: Forbidden: may not specify more than 1 volume type"),
        ("persistentvolumes", volume(capacity={"storage": "0"}),
         'spec.capacity[storage]: Invalid value: "0": must be greater than zero'),
        ("persistentvolumes", volume(csi=None, local={"path": "/"}),
         "spec.nodeAffinity: Required value: Local volume requires node affinity"),
        ("persistentvolumes", volume(nodeAffinity={}),
         "spec.nodeAffinity.required: Required value: must specify required node constraints"),
        (CLASSES, storage_class(provisioner=""), "provisioner: Required value"),
        (CLASSES, storage_class(volumeBindingMode="Soon"), 'volumeBindingMode: Unsupported value: "Soon"'),
        (CLASSES, storage_class(allowedTopologies=[{"matchLabelExpressions": [{"key": "zone"}]}]),
         "allowedTopologies[0].matchLabelExpressions[0].values: Required value"),
        (CAPACITIES, {"metadata": {"name": "c"}, "capacity": "1Gi"}, 'storageClassName: Invalid value: ""'),
        ("csinodes.storage.k8s.io", {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "d"}]}},
         "spec.drivers[0].nodeID: Required value"),
        ("csidrivers.storage.k8s.io", {"metadata": {"name": "d"}, "spec": {"volumeLifecycleModes": ["Odd"]}},
         'spec.volumeLifecycleModes: Unsupported value: "Odd"'),
        (ATTACHMENTS, attachment(attacher=""), "spec.attacher: Required value"),
        (ATTACHMENTS, attachment(attacher="no_driver"), 'spec.attacher: Invalid value: "no_driver"'),
        (ATTACHMENTS, attachment(attacher="d" * 64), "spec.attacher: Too long: may not be more than 63 bytes"),
        (ATTACHMENTS, attachment(nodeName=""), 'spec.nodeName: Invalid value: ""'),
        (ATTACHMENTS, attachment(source={}),
         "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"),
        (ATTACHMENTS, attachment(source={"inlineVolumeSpec": {}, "persistentVolumeName": "pv"}),
         "spec.source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName"),
        (ATTACHMENTS, attachment(source={"persistentVolumeName": ""}),
         "spec.source.persistentVolumeName: Required value: must specify non empty persistentVolumeName"),
        ("pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}],
                                                     "volumes": [{"name": "v", "persistentVolumeClaim": {}}]}},
         "spec.volumes[0].persistentVolumeClaim.claimName: Required value"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_as_upstream_names_it(world, resource, document, text):
    assert any(line.startswith(text) for line in said(world, resource, document)), said(world, resource, document)


def test_a_claim_changes_only_by_being_bound_and_by_growing(world):
    world.put(CLASSES, storage_class("fast", allowVolumeExpansion=True))
    made = world.create("persistentvolumeclaims", claim(storageClassName="fast"))
    bigger = {"requests": {"storage": "2Gi"}}
    assert refused_update(world, "persistentvolumeclaims", made, volumeName="pv") == []
    assert "spec is immutable" in refused_update(world, "persistentvolumeclaims", made, volumeMode="Block")[0]
    assert "spec is immutable" in refused_update(world, "persistentvolumeclaims", made, resources=bigger)[0]
    bound = world.put("persistentvolumeclaims", {**made, "spec": {**made["spec"], "volumeName": "pv"},
                                                 "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})  # fmt: skip
    assert "spec is immutable" in refused_update(world, "persistentvolumeclaims", bound, volumeName="other")[0]
    assert refused_update(world, "persistentvolumeclaims", bound, resources=bigger) == []
    slow = {**bound, "spec": {**bound["spec"], "storageClassName": "none"}}
    with pytest.raises(Forbidden, match="only dynamically provisioned pvc can be resized"):
        strategy_for("persistentvolumeclaims").check_bounds(
            slow,
            {**slow, "spec": {**slow["spec"], "resources": bigger}},
            world.ctx(ADMIN, Request(verb="update", resource="persistentvolumeclaims")),
        )
    smaller = {"requests": {"storage": "1Mi"}}
    assert "can not be less" in refused_update(world, "persistentvolumeclaims", bound, resources=smaller)[0]


def test_an_attachment_begins_unattached_never_changes_and_its_status_is_its_own(world):
    made = world.create(ATTACHMENTS, attachment() | {"status": {"attached": True}})
    assert made["status"] == {"attached": False}, "whoever creates it does not say that it is attached"
    assert refused_update(world, ATTACHMENTS, made, nodeName="n2")[0].endswith("field is immutable")
    error = {"time": "2026-01-01T00:00:00Z", "message": "x" * 1025}
    check = strategy_for(ATTACHMENTS).validate_status
    causes = check(made, {**made, "status": {"attached": False, "attachError": error}}, None)
    assert [f"{cause.path}: {cause.message}" for cause in causes] == [
        "status.attachError.message: Too long: may not be more than 262144 bytes"]  # fmt: skip


def test_a_volume_keeps_its_source_its_mode_and_its_reach(world):
    zone = {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}  # fmt: skip
    made = world.create("persistentvolumes", volume(nodeAffinity=zone))
    assert refused_update(world, "persistentvolumes", made, claimRef={"name": "data"}) == []
    for change in ({"csi": {"driver": "d", "volumeHandle": "other"}}, {"volumeMode": "Block"}, {"nodeAffinity": None}):
        assert refused_update(world, "persistentvolumes", made, **change) != []


def test_a_class_never_changes_who_provisions_and_when(world):
    made = world.create(CLASSES, storage_class())
    for change in ({"provisioner": "other"}, {"parameters": {"a": "b"}}, {"reclaimPolicy": "Retain"},
                   {"volumeBindingMode": "WaitForFirstConsumer"}):  # fmt: skip
        assert world.try_update(CLASSES, made, {**made, **change})[0] != []
    there = [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]
    assert world.try_update(CLASSES, made, {**made, "allowedTopologies": there})[0] == []


def test_a_phase_dates_its_change(world):
    made = world.put("persistentvolumes", {**world.create("persistentvolumes", volume()),
                                           "status": {"phase": "Pending", "lastPhaseTransitionTime": "long ago"}})  # fmt: skip
    binder = controller_identity("persistentvolume-binder")
    for phase, is_new in (("Pending", False), ("Available", True)):
        body = {**made, "status": {**made["status"], "phase": phase}}
        made = world.put("persistentvolumes",
                         world.sub(binder, "persistentvolumes", "pv", "status", body, verb="update", namespace="").document)  # fmt: skip
        assert (made["status"]["lastPhaseTransitionTime"] != "long ago") is is_new


def test_the_scheduler_may_reserve_a_volume_and_choose_a_node_but_not_bind_a_claim(world):
    pv = world.create("persistentvolumes", volume())
    pvc = world.create("persistentvolumeclaims", claim())

    def tries(resource: str, old: dict[str, Any], **spec: Any) -> None:
        new = {**old, "spec": {**old["spec"], **spec}, "metadata": {**old["metadata"], "annotations": {"a": "b"}}}
        request = Request(verb="patch", resource=resource, name=old["metadata"]["name"])
        admit(SCHEDULER, request, old, new, world.ctx(SCHEDULER, request))

    tries("persistentvolumes", pv, claimRef={"name": "data"})
    tries("persistentvolumeclaims", pvc)
    with pytest.raises(Forbidden, match=r"may not change spec\.volumeName"):
        tries("persistentvolumeclaims", pvc, volumeName="pv")
    with pytest.raises(Forbidden, match=r"may not change spec\.capacity"):
        tries("persistentvolumes", pv, capacity={"storage": "2Gi"})


def test_a_node_may_write_its_own_csinode_alone(world):
    def tries(name: str, owner: str) -> None:
        request = Request(verb="create", resource="csinodes.storage.k8s.io", name=name)
        uid = world.get("nodes", owner, "")["metadata"]["uid"]
        owners = [{"apiVersion": "v1", "kind": "Node", "name": owner, "uid": uid}]
        new = {"metadata": {"name": name, "ownerReferences": owners}, "spec": {"drivers": []}}
        admit(node_identity("n1"), request, None, new, world.ctx(node_identity("n1"), request))

    tries("n1", "n1")
    for name, owner in (("n2", "n1"), ("n1", "n2")):
        with pytest.raises(Forbidden):
            tries(name, owner)


def test_kubectl_get_shows_a_bound_pair(world):
    pv = volume(claimRef={"namespace": "default", "name": "data"}, storageClassName="fast",
                accessModes=["ReadOnlyMany", "ReadWriteOnce"])  # fmt: skip
    pvc = claim(volumeName="pv", storageClassName="fast")
    pvc["status"] = {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]}
    pv["status"] = {"phase": "Bound"}

    def cells(resource: str, document: dict[str, Any]) -> list[Any]:
        found: list[Any] = tables.table(resources()[resource], [document], {}, 0.0)["rows"][0]["cells"]
        return found

    assert cells("persistentvolumes", pv)[:8] == [
        "pv", "1Gi", "RWO,ROX", "", "Bound", "default/data", "fast", "<unset>"]  # fmt: skip
    assert cells("persistentvolumeclaims", pvc)[:7] == ["data", "Bound", "pv", "2Gi", "RWO", "fast", "<unset>"]
    assert cells(CLASSES, storage_class() | {"metadata": {"name": "fast", "annotations": DEFAULT}})[0] == (
        "fast (default)"
    )


def test_views_read_what_the_server_stores(world):
    pvc = msgspec.convert(world.create("persistentvolumeclaims", claim(storageClassName="fast")), PersistentVolumeClaim)
    pv = msgspec.convert(world.create("persistentvolumes", volume(storageClassName="fast")), PersistentVolume)
    assert (pvc.storage_class, pvc.requested_bytes, pvc.is_fully_bound) == ("fast", 2**30, False)
    assert (pv.storage_class, pv.spec.csi.driver if pv.spec.csi else "") == ("fast", "d")
