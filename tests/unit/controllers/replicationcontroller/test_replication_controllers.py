"""ReplicationControllers: the reconcile of ReplicaSets with a selector of labels alone."""

from services.controllers.replicationcontroller.controller import CONTROLLER
from services.reconcile.actions import Batch, Create, Delete, Patch


def a_controller(replicas):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"app": "web"}, "template": template}
    return {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"}, "spec": spec}


def asked(result):
    return [each for batch in result.actions if isinstance(batch, Batch) for each in batch.actions]


def test_missing_pods_are_made_and_those_too_many_are_deleted(world_of):
    world = world_of(CONTROLLER)
    world.put(a_controller(2))
    first = asked(world.reconcile("web"))

    assert [type(each) for each in first] == [Create, Create]
    owner = first[0].document["metadata"]["ownerReferences"][0]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("v1", "ReplicationController", "web")
    for number, each in enumerate(first):
        document = each.document
        world.put({**document, "metadata": {**document["metadata"], "name": f"web-{number}"}})
    result = world.reconcile("web")
    (status,) = [each for each in result.actions if isinstance(each, Patch)]
    assert status.resource == "replicationcontrollers"
    assert status.patch["status"]["replicas"] == 2
    assert "terminatingReplicas" not in status.patch["status"]
    world.put(a_controller(1))
    assert [each.key.name for each in asked(world.reconcile("web")) if isinstance(each, Delete)] == ["web-0"]
