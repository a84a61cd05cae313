"""The quota controller: when it counts anew, what it counts, and that a charge in between is not lost."""

import pytest

from services.api.kinds.pod import Pod
from services.api.meta import AnyObject, Key
from services.api.resources import resources
from services.controllers.resourcequota.controller import CONTROLLER
from services.reconcile.actions import NOTHING

KEY = Key("default", "q")


@pytest.fixture
def world(world_of):
    return world_of(CONTROLLER)


def a_quota(hard, status=None, **spec):
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard, **spec},
            "status": status or {}}  # fmt: skip


def counted(hard, used, **spec):
    return a_quota(hard, {"hard": hard, "used": used}, **spec)


def sized(a_pod, name, cpu, has=None, **more):
    """A pod that requests `cpu` and was allocated `has`."""
    size = {"requests": {"cpu": has or cpu}}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    reported = [{"name": "c", "allocatedResources": {"cpu": has or cpu}, "resources": size}]
    return a_pod(name, spec={"containers": [container]}, status={"containerStatuses": reported}, **more)


def settle(world, name="q"):
    """Reconcile with the live reads that are asked for, answered from what the world holds."""
    result = world.reconcile(name)
    if not result.refresh:
        return result
    listed = {}
    for query in result.refresh:
        views = world.stores[query.resource].all(query.key.namespace)
        if query.view is AnyObject:
            views = [AnyObject(kind=resources()[query.resource].kind, metadata=view.metadata) for view in views]
        listed[query] = tuple(views)
    return world.reconcile(name, listed=listed)


def test_the_status_of_a_new_quota_has_what_is_enforced_and_used(world, a_pod):
    assert world.put(a_quota({"requests.cpu": "2", "pods": "10", "count/pods": "20"})) == [KEY]
    world.put(sized(a_pod, "a", "500m"))
    world.put(sized(a_pod, "b", "250m"))
    world.put(sized(a_pod, "done", "1", phase="Succeeded"))

    [patch] = settle(world).actions

    assert patch.patch["status"] == {
        "hard": {"requests.cpu": "2", "pods": "10", "count/pods": "20"},
        "used": {"count/pods": "3", "pods": "2", "requests.cpu": "750m"},
    }
    assert (patch.subresource, patch.resource_version, patch.uid) == ("status", "1", "uid-q")


def test_what_is_right_is_not_written_again(world, a_pod):
    world.put(counted({"requests.cpu": "2"}, {"requests.cpu": "0.5"}))
    world.put(sized(a_pod, "a", "500m"))

    assert settle(world) == NOTHING


def test_names_that_the_quota_gave_up_are_taken_away(world):
    world.put(a_quota({"pods": "1"}, {"hard": {"pods": "1", "cpu": "1"}, "used": {"pods": "0", "cpu": "0"}}))

    [patch] = settle(world).actions

    assert patch.patch["status"] == {"hard": {"cpu": None, "pods": "1"}, "used": {"cpu": None, "pods": "0"}}


def test_a_charge_is_no_reason_to_count_and_another_limit_is(world):
    world.put(counted({"pods": "5"}, {"pods": "0"}))

    assert world.put(counted({"pods": "5"}, {"pods": "1"})) == []
    assert world.put(a_quota({"pods": "6"}, {"hard": {"pods": "5"}, "used": {"pods": "1"}})) == [KEY]


def test_a_pod_is_counted_anew_when_it_ends_goes_or_has_another_size(world, a_pod):
    world.put(counted({"requests.cpu": "5"}, {"requests.cpu": "0"}))

    assert world.put(sized(a_pod, "a", "800m")) == [], "its creation was charged"
    assert world.put(sized(a_pod, "a", "300m", "800m")) == [], "it has what it had"
    assert world.put(sized(a_pod, "a", "300m")) == [KEY]
    assert world.put(sized(a_pod, "a", "300m", phase="Failed")) == [KEY]
    assert world.drop("Pod", "a") == [KEY]


def test_the_larger_of_desired_and_allocated_counts_kep_1287_17(world, a_pod):
    world.put(counted({"requests.cpu": "1"}, {"requests.cpu": "800m"}))
    world.put(sized(a_pod, "a", "300m", "800m"))
    assert settle(world) == NOTHING

    world.put(sized(a_pod, "a", "300m"))
    [patch] = settle(world).actions

    assert patch.patch["status"]["used"] == {"requests.cpu": "300m"}


def test_pods_of_a_namespace_without_a_quota_lead_nowhere(world, a_pod):
    world.put(counted({"pods": "5"}, {"pods": "0"}))
    world.put(a_pod("elsewhere", namespace="other"))

    assert world.drop("Pod", "elsewhere", namespace="other") == []


def test_other_kinds_are_counted_by_number_and_storage_by_size(world):
    world.put(counted({"count/configmaps": "5", "requests.storage": "9Gi"}, {"count/configmaps": "9"}))
    world.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    spec = {"resources": {"requests": {"storage": "2Gi"}}}
    world.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"}, "spec": spec})

    [patch] = settle(world).actions

    assert patch.patch["status"]["used"] == {"count/configmaps": "1", "requests.storage": "2Gi"}
    assert world.drop("ConfigMap", "c") == [KEY]


def test_scopes_select_pods_and_nothing_else(world, a_pod):
    world.put(a_quota({"pods": "5"}, scopes=["BestEffort"]))
    world.put(a_pod("free", spec={"containers": [{"name": "c", "image": "i"}]}))
    world.put(sized(a_pod, "a", "1"))

    [patch] = settle(world).actions

    assert patch.patch["status"]["used"] == {"pods": "1"}


def test_a_pod_whose_time_to_end_has_run_out_is_found_by_the_scan(world, a_pod):
    world.put(counted({"pods": "5"}, {"pods": "1"}))
    world.put(a_pod("a", deletionTimestamp=world.stamp(), deletionGracePeriodSeconds=30))
    assert settle(world, "") == NOTHING

    world.now_s += 31
    [patch] = settle(world, "").actions

    assert patch.patch["status"]["used"] == {"pods": "0"}


def test_counting_reads_live(world):
    world.put(a_quota({"pods": "5", "count/nonsense.example.com": "1"}))

    [query] = world.reconcile("q").refresh

    assert (query.view, query.key) == (Pod, Key("default", ""))
