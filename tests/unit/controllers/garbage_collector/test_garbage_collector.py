from services.api.meta import AnyObject, Key, ObjectMeta
from services.controllers.garbage_collector.controller import CONTROLLER
from services.reconcile.actions import OWN_WRITE, Delete, Patch, Query, RecordEvent
from services.reconcile.controller import Change


def owned_by(*names, blocks=True):
    return [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": n, "uid": f"uid-{n}", "blockOwnerDeletion": blocks}
        for n in names
    ]


def a_pod(name, *owners, **metadata):
    metadata = {"name": name, "ownerReferences": owned_by(*owners), **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def a_set(name, **metadata):
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, **metadata}}


def query(name):
    return Query(AnyObject, Key("default", name), "replicasets.apps")


def test_a_dependent_of_a_living_owner_is_left_alone(world_of):
    world = world_of(CONTROLLER)
    world.put(a_set("rs"))
    assert world.put(a_pod("p", "rs")) == [Key("default", "pods/p")]

    assert world.reconcile("pods/p").actions == ()


def test_an_owner_the_cache_lacks_is_read_live_and_its_absence_deletes_with_uid_and_version(world_of):
    world = world_of(CONTROLLER)
    world.put(a_pod("p", "rs"))

    assert world.reconcile("pods/p").refresh == (query("rs"),)
    (delete,) = world.reconcile("pods/p", live={query("rs"): None}).actions

    assert isinstance(delete, Delete)
    assert (delete.uid, delete.resource_version, delete.propagation) == ("uid-p", "1", "Background")


def test_a_cache_that_lags_behind_a_living_owner_deletes_nothing(world_of):
    world = world_of(CONTROLLER)
    world.put(a_pod("p", "rs"))
    living = AnyObject(kind="ReplicaSet", metadata=ObjectMeta(name="rs", namespace="default", uid="uid-rs"))

    assert world.reconcile("pods/p", live={query("rs"): living}).actions == ()


def test_an_owner_recreated_under_the_name_is_another_owner(world_of):
    world = world_of(CONTROLLER)
    world.put(a_set("rs"))
    world.put(a_pod("p", "rs"))

    assert world.drop("ReplicaSet", "rs", api_version="apps/v1") == [Key("default", "pods/p")]
    world.put(a_set("rs", uid="second"))

    assert isinstance(world.reconcile("pods/p").actions[0], Delete)


def test_one_living_owner_keeps_it_and_the_absent_ones_reference_is_dropped(world_of):
    world = world_of(CONTROLLER)
    world.put(a_set("a"))
    world.put(a_pod("p", "a", "b"))

    (patch,) = world.reconcile("pods/p", live={query("b"): None}).actions

    assert isinstance(patch, Patch)
    assert [r["name"] for r in patch.patch["metadata"]["ownerReferences"]] == ["a"]


def test_controllers_14_foreground_the_owner_waits_until_blocking_dependents_are_gone(world_of):
    world = world_of(CONTROLLER)
    world.put(a_set("rs"))
    world.put(a_pod("p", "rs"))
    marked = a_set("rs", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["foregroundDeletion"])

    assert world.put(marked) == [Key("default", "replicasets.apps/rs"), Key("default", "pods/p")]
    waiting = world.reconcile("replicasets.apps/rs")
    (delete,) = world.reconcile("pods/p").actions
    assert world.drop("Pod", "p") == [Key("default", "replicasets.apps/rs")]
    (freed,) = world.reconcile("replicasets.apps/rs").actions

    assert waiting.actions == ()
    assert delete.uid == "uid-p"
    assert freed.patch == {"metadata": {"finalizers": []}}


def test_controllers_14_orphan_dependents_lose_the_reference_before_the_finalizer_goes(world_of):
    world = world_of(CONTROLLER)
    world.put(a_set("rs", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["orphan"]))
    world.put(a_pod("p", "rs"))

    orphaned, freed = world.reconcile("replicasets.apps/rs").actions

    assert (orphaned.resource, orphaned.patch) == ("pods", {"metadata": {"ownerReferences": []}})
    assert freed.patch == {"metadata": {"finalizers": []}}


def test_what_waits_for_an_owner_that_waits_for_it_blocks_its_owners_no_longer_and_goes_on_that_version(world_of):
    world = world_of(CONTROLLER)
    waiting = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
    world.put(a_set("first", ownerReferences=owned_by("second"), **waiting))
    world.put(a_set("second", ownerReferences=owned_by("first")))

    patch, delete = world.reconcile("replicasets.apps/second").actions

    assert [r["blockOwnerDeletion"] for r in patch.patch["metadata"]["ownerReferences"]] == [False]
    assert patch.resource_version == "2"
    assert (delete.propagation, delete.resource_version) == ("Foreground", OWN_WRITE)


def test_what_waits_for_no_one_that_waits_for_it_still_blocks_its_owners(world_of):
    world = world_of(CONTROLLER)
    world.put(a_set("rs", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["foregroundDeletion"]))
    world.put(a_pod("p", "rs"))
    owner = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "blockOwnerDeletion": True}]
    world.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "ownerReferences": owner}})

    (delete,) = world.reconcile("pods/p").actions

    assert (delete.propagation, delete.resource_version) == ("Foreground", "2")


def test_an_owner_in_another_namespace_counts_as_absent_and_an_event_says_so(world_of):
    world = world_of(CONTROLLER)
    world.put(a_set("rs", namespace="other"))
    world.put(a_pod("p", "rs"))

    event, delete = world.reconcile("pods/p", live={query("rs"): None}).actions

    assert isinstance(event, RecordEvent)
    assert event.reason == "OwnerRefInvalidNamespace"
    assert isinstance(delete, Delete)


def of_defined_kind(world, uid="uid-c"):
    """A pod that a CronTab owns, whose kind nothing serves any more."""
    owner = {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "name": "c", "uid": uid}
    world.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "ownerReferences": [owner]}})


def test_an_owner_of_a_kind_that_is_not_served_is_no_reason_to_delete(world_of):
    world = world_of(CONTROLLER)
    of_defined_kind(world)

    assert world.reconcile("pods/p").actions == ()


def test_an_owner_that_was_seen_to_go_before_its_kind_went_deletes(world_of):
    world = world_of(CONTROLLER)
    of_defined_kind(world)
    metadata = ObjectMeta(name="c", namespace="default", uid="uid-c")
    gone = AnyObject(api_version="stable.example.com/v1", kind="CronTab", metadata=metadata)
    (watch,) = world.controller.watches
    assert watch.keys(Change(gone, None), world) == [Key("default", "pods/p")]

    (delete,) = world.reconcile("pods/p").actions
    assert isinstance(delete, Delete)


def test_nothing_is_decided_while_a_kind_that_was_just_defined_is_not_known(world_of):
    world = world_of(CONTROLLER)
    world.put(a_pod("p", "rs"))
    world.are_complete = False

    found = world.reconcile("pods/p", live={query("rs"): None})
    assert (found.actions, found.requeue_after_s) == ((), 0.5)
