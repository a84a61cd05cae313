"""Objects as Kubernetes' protobuf, for clients that take nothing else."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_fake.rest import media_types, protobuf

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "n",
        "labels": {"a": "b", "c": ""},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "generation": 3,
        "managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                "readinessProbe": {"httpGet": {"port": "http", "path": "/"}, "periodSeconds": 5},
                "livenessProbe": {"httpGet": {"port": 8080, "path": "/"}},
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "x", "optional": False}}],
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists", "tolerationSeconds": -1}],
    },
}


def test_what_is_written_is_read_back_as_it_was():
    read = protobuf.decode(protobuf.encode(POD))

    read["spec"]["containers"][0].pop("resources", None), read["metadata"].pop("managedFields")
    wanted = msgspec.json.decode(msgspec.json.encode(POD))
    wanted["spec"]["containers"][0].pop("resources"), wanted["metadata"].pop("managedFields")
    assert {**wanted["metadata"]}.items() <= read["metadata"].items()
    assert read["spec"]["volumes"] == wanted["spec"]["volumes"]
    assert read["spec"]["tolerations"] == wanted["spec"]["tolerations"]
    assert read["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"] == 8080
    assert read["spec"]["containers"][0]["readinessProbe"]["httpGet"]["port"] == "http"
    assert read["spec"]["terminationGracePeriodSeconds"] == 0
    assert protobuf.decode(protobuf.encode(POD))["spec"]["containers"][0]["resources"]["requests"]["memory"] == "1Gi"


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=4), st.integers(0, 2**62))
def test_any_labels_and_generation_survive(labels, generation):
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "labels": labels, "generation": generation},
        "data": labels,
    }

    read = protobuf.decode(protobuf.encode(document))

    assert read["metadata"].get("labels", {}) == labels
    assert read.get("data", {}) == labels
    assert read["metadata"].get("generation", 0) == generation


def test_a_list_has_its_metadata_and_its_items():
    found = protobuf.encode(
        {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [POD, POD]}
    )

    assert found.startswith(b"k8s\x00\n\r\n\x02v1\x12\x07PodList")
    assert found.count(b"100m") == 2


def test_a_status_names_its_causes():
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": 410,
        "reason": "Expired",
    }

    assert b"Expired" in protobuf.encode(status)


def test_an_event_of_a_watch_says_its_length():
    found = protobuf.frame("ADDED", POD)

    (length,) = struct.unpack(">I", found[:4])
    assert length == len(found) - 4
    assert found[4:].startswith(b"\n\x05ADDED\x12")
    assert protobuf.encode(POD) in found


def test_a_kind_without_a_message_is_not_acceptable():
    with pytest.raises(media_types.NotAcceptable, match="Widget is not written as protobuf"):
        protobuf.encode({"apiVersion": "example.com/v1", "kind": "Widget"})


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("application/vnd.kubernetes.protobuf", media_types.PROTOBUF),
        ("application/vnd.kubernetes.protobuf, */*", media_types.JSON),
        ("application/vnd.kubernetes.protobuf,application/json", media_types.JSON),
    ],
)
def test_protobuf_is_for_those_who_take_nothing_else(accept, media_type):
    assert media_types.negotiate(accept).media_type == media_type
