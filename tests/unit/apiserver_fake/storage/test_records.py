"""A record that is made from a part of its document is the one that the whole document makes."""

import msgspec
import pytest

from apiserver_fake.storage.records import head_of, record_of
from services.api.resources import resources

PODS = resources()["pods"]
FULL = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "namespace": "default",
        "name": "web",
        "uid": "u1",
        "labels": {"app": "web"},
        "managedFields": [{"manager": "kubectl"}],
        "ownerReferences": [{"uid": "rs-1", "kind": "ReplicaSet"}, {"kind": "without"}],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "nodeName": "n1",
        "schedulerName": "default-scheduler",
        "restartPolicy": "Never",
        "serviceAccountName": "builder",
        "hostNetwork": True,
        "containers": [{"name": "main", "image": "i"}],
    },
    "status": {"phase": "Running", "podIP": "10.0.0.1", "nominatedNodeName": "n2", "conditions": []},
}


def both(document):
    """Return the record of a document's head and that of the whole."""
    body = msgspec.json.encode(document)
    return record_of(PODS, head_of("pods", body), 7, body), record_of(PODS, msgspec.json.decode(body), 7, body)


def test_every_selectable_field_of_a_pod_is_in_its_head():
    head, whole = both(FULL)

    assert head == whole
    assert "" not in head.fields.values()
    assert set(head.fields) == set(PODS.selectable_fields)
    assert "spec" in head_of("pods", head.body)
    assert "containers" not in head_of("pods", head.body)["spec"]


@pytest.mark.parametrize("place", ["spec", "status", "labels", "ownerReferences", "deletionTimestamp", "uid"])
@pytest.mark.parametrize("value", [None, "absent", [], 5, {"nodeName": 3, "hostNetwork": "yes", "phase": ["x"]}])
def test_a_value_of_a_wrong_shape_makes_the_same_record_or_the_same_error(place, value):
    document = {**FULL, "metadata": dict(FULL["metadata"])}
    part = document if place in document else document["metadata"]
    del part[place]
    if value != "absent":
        part[place] = value

    def outcome(read):
        body = msgspec.json.encode(document)
        try:
            return record_of(PODS, read(body), 7, body)
        except (TypeError, AttributeError) as error:
            return type(error)

    assert outcome(lambda body: head_of("pods", body)) == outcome(msgspec.json.decode)


def test_another_kind_is_read_as_a_whole():
    assert head_of("configmaps", b'{"data":{"a":"b"}}') == {"data": {"a": "b"}}
