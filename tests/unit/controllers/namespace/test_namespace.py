from services.api.meta import AnyObject, Key, ObjectMeta
from services.controllers.namespace.controller import CONTROLLER
from services.reconcile.actions import Batch, Delete, Patch, Update

ENDING = {
    "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating"},
}  # fmt: skip


def answers(asked, **content):
    def objects(resource):
        return tuple(
            AnyObject(metadata=ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}", **extra))
            for name, extra in content.get(resource.partition(".")[0], {}).items()
        )

    return {query: objects(query.resource) for query in asked.refresh}


def deleted(result):
    return [a.key.name for b in result.actions if isinstance(b, Batch) for a in b.actions if isinstance(a, Delete)]


def test_a_living_namespace_is_left_alone(world_of):
    world = world_of(CONTROLLER)
    world.put({**ENDING, "metadata": {"name": "shop"}})

    assert world.reconcile("shop", namespace="").refresh == ()


def test_controllers_19_pods_go_before_all_else_and_the_finalizer_last(world_of):
    world = world_of(CONTROLLER)
    world.put(ENDING)
    asked = world.reconcile("shop", namespace="")
    full = answers(asked, pods={"p": {}}, configmaps={"c": {}}, events={"e": {}})
    bare = answers(asked, configmaps={"c": {}}, events={"e": {}})

    first = world.reconcile("shop", namespace="", listed=full)
    then = world.reconcile("shop", namespace="", listed=bare)
    (last,) = world.reconcile("shop", namespace="", listed=answers(asked)).actions

    assert asked.refresh[0].resource == "pods"
    assert all(query.key == Key("shop", "") for query in asked.refresh)
    assert deleted(first) == ["p"]
    assert deleted(then) == ["c", "e"]
    assert isinstance(last, Update)
    assert (last.subresource, last.document["spec"]["finalizers"]) == ("finalize", [])
    assert last.document["metadata"]["resourceVersion"]


def test_what_is_held_by_finalizers_is_named_in_the_conditions_and_waited_for(world_of):
    world = world_of(CONTROLLER)
    world.put(ENDING)
    asked = world.reconcile("shop", namespace="")
    held = {"p": {"finalizers": ("x/hold",), "deletion_timestamp": "t", "deletion_grace_period_seconds": 6}}

    result = world.reconcile("shop", namespace="", listed=answers(asked, pods=held))

    (patch,) = result.actions
    assert isinstance(patch, Patch)
    said = {c["type"]: (c["status"], c["message"]) for c in patch.patch["status"]["conditions"]}
    assert said["NamespaceContentRemaining"][0] == "True"
    assert "x/hold in 1" in said["NamespaceFinalizersRemaining"][1]
    assert result.requeue_after_s == 4.0
