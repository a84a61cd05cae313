"""When a workload's controller gives claims back, and what keeps it from that (KEP-5194; controllers 1.5 and 1.6)."""

from __future__ import annotations

import pytest

from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim
from services.api.meta import Key
from services.controllers.deployment.controller import CONTROLLER as DEPLOYMENT
from services.controllers.job.controller import CONTROLLER as JOB
from services.controllers.replicaset.controller import CONTROLLER as REPLICASET
from services.reconcile.actions import Batch, Delete, Patch, Query, RecordEvent
from services.reconcile.claim_release import RELEASE_FINALIZER

NAMESPACE = Key("default", "")
ON = {"reserved_for__mode": "kep5194"}


def reference(resource="replicasets", group="apps", name="web", uid="uid-web"):
    return {"apiGroup": group, "resource": resource, "name": name, "uid": uid}


def a_claim(owner, *entries, name="gpu", is_for=True):
    status = {"allocation": {"reservedForAnyPod": True}, "reservedFor": list(entries)} if entries else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"reservedFor": owner} if is_for else {},
        "status": status,
    }


@pytest.fixture
def a_user(a_pod):
    """A pod that uses the claim."""

    def build(name, **more):
        return a_pod(name, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}, **more)

    return build


@pytest.fixture
def sets(world_of):
    return world_of(REPLICASET, **ON)


def listed(world, *views):
    """Answer live lists by what the caches hold."""
    return {Query(view, NAMESPACE): tuple(world.of(view).all("default")) for view in (Pod, ResourceClaim, *views)}


def reconcile(world, name="web", *views):
    return world.reconcile(name, listed=listed(world, *views))


def released(result):
    """Return the writes of claims."""
    units = [each for action in result.actions for each in (action.actions if isinstance(action, Batch) else (action,))]
    return [each for each in units if isinstance(each, Patch) and each.resource == CLAIMS]


def events(result):
    units = [each for action in result.actions for each in (action.actions if isinstance(action, Batch) else (action,))]
    return [(e.reason, e.message) for e in units if isinstance(e, RecordEvent) and e.reason.startswith("Claim")]


def finalizers(result):
    return [
        action.patch["metadata"]["finalizers"]
        for action in result.actions
        if isinstance(action, Patch) and "finalizers" in action.patch.get("metadata", {})
    ]


def empty(a_set, **more):
    return a_set(0, status={"observedGeneration": 1}, **{"finalizers": [RELEASE_FINALIZER], **more})


def test_a_workload_without_replicas_gives_its_claim_back_on_the_version_that_was_read(sets, a_set):
    sets.put(empty(a_set))
    sets.put(a_claim(reference(), reference()))
    asked = sets.reconcile("web")

    result = reconcile(sets)

    assert asked.refresh == (Query(Pod, NAMESPACE), Query(ResourceClaim, NAMESPACE))
    (patch,) = released(result)
    assert (patch.patch, patch.subresource) == ({"status": {"reservedFor": None}}, "status")
    assert patch.resource_version == "2"
    assert events(result) == [("ClaimReleased", "released claim default/gpu")]


def test_the_owner_may_clear_the_allocation_in_the_same_write(world_of, a_set):
    world = world_of(REPLICASET, release__clear_allocation_by="owner", **ON)
    world.put(empty(a_set))
    world.put(a_claim(reference(), reference()))

    (patch,) = released(reconcile(world))

    assert patch.patch == {"status": {"reservedFor": None, "allocation": None, "devices": None}}


def test_a_claim_stays_while_any_pod_uses_it_whosever_it_is(sets, a_set, a_user):
    sets.put(empty(a_set))
    sets.put(a_claim(reference(), reference()))
    sets.put(a_user("foreign", labels={"app": "other"}))

    first, second = reconcile(sets), reconcile(sets)
    keys = sets.put(a_user("foreign", phase="Succeeded", labels={"app": "other"}))

    assert released(first) == []
    assert events(first) == [("ClaimReleaseBlocked", "claim default/gpu is in use by pod default/foreign")]
    assert events(second) == [], "each reason is one event"
    assert keys == [Key("default", "web")], "its end has the workload looked at"
    assert len(released(reconcile(sets))) == 1


def test_a_claim_of_two_owners_is_given_back_by_each_for_its_own_pods(sets, a_set, a_user):
    job = reference("jobs", "batch", "work", "uid-work")
    of_the_job = [{"apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "uid-work", "controller": True}]
    sets.put(empty(a_set))
    sets.put(a_claim(reference(), reference(), job))
    sets.put(a_user("worker", ownerReferences=of_the_job))

    (patch,) = released(reconcile(sets))
    sets.put(a_claim(reference(), reference()))

    assert [each["name"] for each in patch.patch["status"]["reservedFor"]] == ["work"]
    assert released(reconcile(sets)) == [], "nobody else speaks for the Job's pod"


def test_a_live_list_counts_not_the_cache(sets, a_set, a_user, world_of):
    sets.put(empty(a_set))
    sets.put(a_claim(reference(), reference()))
    ahead = world_of(REPLICASET)
    ahead.put(a_user("new", phase="Pending"))

    live = listed(sets) | {Query(Pod, NAMESPACE): tuple(ahead.of(Pod).all("default"))}

    assert released(sets.reconcile("web", listed=live)) == []


def test_a_claim_stays_while_pods_are_listed_with_it(sets, a_set):
    sets.put(empty(a_set))
    sets.put(a_claim(reference(), reference(), {"resource": "pods", "name": "p4", "uid": "u4"}))

    assert released(reconcile(sets)) == []


def test_other_consumers_stay_when_the_workload_goes(sets, a_set):
    sets.put(empty(a_set))
    other = reference("jobs", "batch", "train", "uid-train")
    sets.put(a_claim(reference(), reference(), other))

    (patch,) = released(reconcile(sets))

    assert [each["uid"] for each in patch.patch["status"]["reservedFor"]] == ["uid-train"]


def test_nothing_goes_while_own_creations_are_awaited(sets, a_set):
    sets.put(a_set(2, finalizers=[RELEASE_FINALIZER]))
    sets.put(a_claim(reference(), reference()))
    sets.reconcile("web")  # asks for two pods
    sets.put(empty(a_set))

    result = sets.reconcile("web")

    assert (result.refresh, released(result)) == ((), [])


@pytest.mark.parametrize(
    ("switches", "status"),
    [({"release__on_scale_to_zero": False}, 1), ({"release__design": "rc_never"}, 1), ({}, 0),
     ({"release__owner_types": "jobs.batch+deployments.apps"}, 1), ({"reserved_for__mode": "pods"}, 1)],
)  # fmt: skip
def test_a_claim_stays_where_it_is_not_the_owners_duty(world_of, a_set, switches, status):
    world = world_of(REPLICASET, **{**ON, **switches})
    world.put(a_set(0, status={"observedGeneration": status}, finalizers=[RELEASE_FINALIZER]))
    world.put(a_claim(reference(), reference()))

    assert world.reconcile("web").refresh == ()


@pytest.mark.parametrize(
    ("deletion", "wanted"), [("finalizer", [[RELEASE_FINALIZER]]), ("rc_fallback", []), ("leak", [])]
)
def test_a_workload_with_a_claim_is_kept_until_it_is_released(world_of, a_set, deletion, wanted):
    world = world_of(REPLICASET, owner_deletion=deletion, **ON)
    world.put(a_set(0))
    before = finalizers(world.reconcile("web"))
    world.put(a_claim(reference()))

    assert before == []
    assert finalizers(world.reconcile("web")) == wanted


def test_a_deleted_workload_deletes_its_pods_releases_and_goes(sets, a_set, a_user):
    going = a_set(1, finalizers=[RELEASE_FINALIZER], deletionTimestamp=sets.stamp())
    sets.put(going)
    sets.put(a_claim(reference(), reference()))
    sets.put(a_user("web-1", owner="web"))
    first = reconcile(sets)
    sets.drop("Pod", "web-1")
    second = reconcile(sets)
    sets.put(a_claim(reference()))
    third = reconcile(sets)

    assert [a.key.name for a in first.actions if isinstance(a, Delete)] == ["web-1"]
    assert (released(first), events(first), finalizers(first)) == ([], [], [])
    assert len(released(second)) == 1
    assert finalizers(second) == []
    assert (released(third), finalizers(third)) == ([], [None])


@pytest.mark.parametrize("policy", ["foregroundDeletion", "orphan"])
def test_pods_are_the_collectors_where_it_acts_before_the_workload_goes(sets, a_set, a_user, policy):
    sets.put(a_set(1, finalizers=[RELEASE_FINALIZER, policy], deletionTimestamp=sets.stamp()))
    sets.put(a_claim(reference(), reference()))
    sets.put(a_user("web-1", owner="web"))

    assert [a for a in reconcile(sets).actions if isinstance(a, Delete)] == []


def test_a_workload_of_the_same_name_leaves_the_claim_of_its_forerunner_alone(sets, a_set):
    sets.put(empty(a_set, uid="uid-second"))
    sets.put(a_claim(reference(), reference()))

    assert sets.reconcile("web").refresh == ()


def test_a_refusal_becomes_an_event_and_is_tried_again(sets, a_set):
    sets.put(empty(a_set))
    sets.put(a_claim(reference(), reference()))
    result = reconcile(sets)
    (patch,) = released(result)
    sets.controller.failed(Key("default", "web"), patch, "Forbidden: no")

    again = reconcile(sets)

    assert result.requeue_after_s == 10.0
    assert events(again)[0] == ("ClaimReleaseBlocked", "claim default/gpu cannot be released: no")
    assert len(released(again)) == 1


def a_job(*, is_over=False, terminating=0, suspend=False):
    conditions = [{"type": "Complete", "status": "True"}] if is_over else []
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "web", "generation": 1, "finalizers": [RELEASE_FINALIZER]},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "suspend": suspend, "parallelism": 0},
        "status": {"conditions": conditions, "terminating": terminating},
    }


@pytest.mark.parametrize(
    ("job", "on_suspend", "is_due"),
    [(a_job(), False, False), (a_job(is_over=True), False, True), (a_job(is_over=True, terminating=1), False, False),
     (a_job(suspend=True), False, False), (a_job(suspend=True), True, True)],
)  # fmt: skip
def test_a_job_is_done_with_its_claim_when_it_has_ended_or_as_configured_sleeps(world_of, job, on_suspend, is_due):
    world = world_of(JOB, release__on_suspend=on_suspend, **ON)
    world.put(job)
    world.put(a_claim(reference("jobs", "batch"), reference("jobs", "batch")))

    assert len(released(reconcile(world))) == is_due


def a_deployment(replicas=0, **metadata):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "generation": 1, "finalizers": [RELEASE_FINALIZER], **metadata},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                 "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}}},
        "status": {"observedGeneration": 1},
    }  # fmt: skip


def owned_by_deployment(a_set, replicas, name):
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}
    labels = {"app": "web", "pod-template-hash": name}
    return a_set(replicas, name=name, status={"observedGeneration": 1}, labels=labels, ownerReferences=[owner])


@pytest.mark.parametrize(("old_replicas", "is_due"), [(1, False), (0, True)])
def test_a_deployment_waits_for_all_of_its_replica_sets(world_of, a_set, old_replicas, is_due):
    world = world_of(DEPLOYMENT, **ON)
    world.put(a_deployment())
    world.put(owned_by_deployment(a_set, old_replicas, "old"))
    world.put(owned_by_deployment(a_set, 0, "new"))
    world.put(a_claim(reference("deployments"), reference("deployments")))

    assert len(released(reconcile(world, "web", ReplicaSet))) == is_due


def test_a_deleted_deployment_deletes_its_replica_sets(world_of, a_set, a_user):
    world = world_of(DEPLOYMENT, **ON)
    world.put(a_deployment(1, deletionTimestamp=world.stamp()))
    world.put(owned_by_deployment(a_set, 1, "new"))
    world.put(a_claim(reference("deployments"), reference("deployments")))
    world.put(a_user("web-1", owner="new"))

    result = reconcile(world, "web", ReplicaSet)

    assert [(a.resource, a.key.name) for a in result.actions if isinstance(a, Delete)] == [("replicasets.apps", "new")]
