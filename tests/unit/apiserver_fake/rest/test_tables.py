import pytest

from apiserver_fake.rest import tables
from services.api.errors import BadRequest
from services.api.resources import resources

NOW = 1_800_000_000.0
CREATED = "2027-01-15T07:58:00Z"
COLUMNS = {
    "pods": "Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*",
    "nodes": "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, "
    "Container-Runtime*",
    "namespaces": "Name, Status, Age",
    "services": "Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector*",
    "configmaps": "Name, Data, Age",
    "secrets": "Name, Type, Data, Age",
    "events": "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*",
    "resourcequotas": "Name, Request, Limit, Age",
    "deployments.apps": "Name, Ready, Up-to-date, Available, Age, Containers*, Images*, Selector*",
    "replicasets.apps": "Name, Desired, Current, Ready, Age, Containers*, Images*, Selector*",
    "daemonsets.apps": "Name, Desired, Current, Ready, Up-to-date, Available, Node Selector, Age, Containers*, Images*, "
    "Selector*",
    "statefulsets.apps": "Name, Ready, Age, Containers*, Images*",
    "controllerrevisions.apps": "Name, Controller, Revision, Age",
    "poddisruptionbudgets.policy": "Name, Min Available, Max Unavailable, Allowed Disruptions, Age",
    "priorityclasses.scheduling.k8s.io": "Name, Value, Global-Default, Age, PreemptionPolicy",
    "leases.coordination.k8s.io": "Name, Holder, Age",
    "persistentvolumes": "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, "
    "VolumeAttributesClass, Reason, Age, VolumeMode*",
    "persistentvolumeclaims": "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, "
    "Age, VolumeMode*",
    "storageclasses.storage.k8s.io": "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
    "csinodes.storage.k8s.io": "Name, Drivers, Age",
    "csidrivers.storage.k8s.io": "Name, AttachRequired, PodInfoOnMount, StorageCapacity, TokenRequests, "
    "RequiresRepublish, Modes, Age",
    "csistoragecapacities.storage.k8s.io": "Name, StorageClassName, Capacity",
    "volumeattachments.storage.k8s.io": "Name, Attacher, PV, Node, Attached, Age",
}


def a_document(name="a", **fields):
    return {"metadata": {"name": name, "creationTimestamp": CREATED, "resourceVersion": "7"}, **fields}


@pytest.mark.parametrize("name", COLUMNS)
def test_kubectl_requests_4_columns_are_those_of_the_real_server(name):
    found = tables.table(resources()[name], [], {}, NOW)["columnDefinitions"]

    assert ", ".join(c["name"] + "*" * c["priority"] for c in found) == COLUMNS[name]


@pytest.mark.parametrize("resource", resources().values(), ids=lambda r: r.name)
def test_every_kind_has_a_cell_for_each_column_even_of_an_empty_object(resource):
    found = tables.table(resource, [a_document()], {}, NOW)

    assert len(found["rows"][0]["cells"]) == len(found["columnDefinitions"])


def test_an_object_of_an_odd_shape_still_gets_a_row():
    found = tables.table(resources()["pods"], [a_document("odd", spec=3, status=[])], {}, NOW)

    assert found["rows"][0]["cells"] == ["odd"] + ["<unknown>"] * 8


def test_a_list_keeps_its_continuation():
    body = {
        "kind": "PodList",
        "metadata": {"resourceVersion": "9", "continue": "c", "remainingItemCount": 2},
        "items": [],
    }

    found = tables.table_of(resources()["pods"], body, NOW)

    assert found["metadata"] == body["metadata"]
    assert found["rows"] == []


def test_rows_carry_metadata_the_whole_object_or_nothing_as_asked():
    resource, body = resources()["configmaps"], a_document(kind="ConfigMap", data={"x": "y"})

    default = tables.table_of(resource, body, NOW)["rows"][0]
    whole = tables.table_of(resource, body, NOW, include="Object")["rows"][0]
    without = tables.table_of(resource, body, NOW, include="None")["rows"][0]

    assert default["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": body["metadata"],
    }
    assert whole["object"] == body
    assert "object" not in without


def test_an_unknown_include_policy_is_a_bad_request():
    with pytest.raises(BadRequest):
        tables.check_include("Everything")


def test_a_later_event_of_a_watch_has_no_columns():
    found = tables.table(resources()["pods"], [a_document()], {}, NOW, with_columns=False)

    assert found["columnDefinitions"] is None


def test_ages_count_from_the_servers_wall_clock():
    found = tables.table(resources()["namespaces"], [a_document(status={"phase": "Active"})], {}, NOW)

    assert found["rows"][0]["cells"] == ["a", "Active", "2m"]


def test_a_scale_has_columns_of_its_own():
    scale = a_document(kind="Scale", spec={"replicas": 3}, status={"replicas": 2})

    found = tables.table_of(resources()["deployments.apps"], scale, NOW)

    assert [c["name"] for c in found["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert found["rows"][0]["cells"][:3] == ["a", 3, 2]


def test_a_quota_shows_what_is_used_of_requests_and_of_limits():
    hard = {"requests.cpu": "2", "pods": "10", "limits.memory": "4Gi"}
    quota = a_document(status={"hard": hard, "used": {"requests.cpu": "500m", "limits.memory": "1Gi"}})

    found = tables.table_of(resources()["resourcequotas"], quota, NOW)

    assert found["rows"][0]["cells"] == ["a", "pods: 0/10, requests.cpu: 500m/2", "limits.memory: 1Gi/4Gi", "2m"]
