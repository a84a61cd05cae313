"""Who of a claim's list still counts, by the designs of KEP-5194 (kep-5194 5) and by KEP-5729."""

import pytest

from claim_controller.resourceclaim.controller import CONTROLLER
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import FINALIZER
from services.api.meta import AnyObject, Key, ObjectMeta
from services.reconcile.actions import Patch, Query, RecordEvent
from tests.unit.claim_controller.conftest import a_claim, a_pod

JOB = ("batch", "jobs", "work")
OWNER = Query(AnyObject, Key("default", "work"), "jobs.batch", may_be_refused=True)
PODS = Query(Pod, Key("default", ""))
KEP = {"reserved_for__mode": "kep5194"}
FALLBACK = {**KEP, "owner_deletion": "rc_fallback", "rc__owner_check_interval": 10.0}


def there(uid="uid-work"):
    return AnyObject(api_version="batch/v1", kind="Job", metadata=ObjectMeta(name="work", namespace="default", uid=uid))


def written(result):
    """The status that a result writes, None when it writes none."""
    patches = [each.patch["status"] for each in result.actions if isinstance(each, Patch)]
    return patches[0] if patches else None


def pods(world):
    return {PODS: tuple(world.of(Pod).all())}


def test_a_job_that_is_gone_is_released_once_no_pod_that_may_run_names_the_claim(world_of):
    world = world_of(CONTROLLER, **FALLBACK)
    world.put(a_claim(consumers=[JOB]))
    world.put(a_pod("p"))

    first = world.sync("claim", "c")
    second = world.sync("claim", "c", live={OWNER: None})
    blocked = world.sync("claim", "c", live={OWNER: None}, listed=pods(world))
    world.put(a_pod("p", phase="Succeeded"))
    freed = world.sync("claim", "c", live={OWNER: None}, listed=pods(world))

    assert (first.refresh, second.refresh) == ((OWNER,), (PODS,))
    assert (written(blocked), blocked.requeue_after_s) == (None, 10.0)
    assert written(freed) == {"reservedFor": None, "allocation": None, "devices": None}
    assert world.controller.metrics()['claim_release_total{by="rc",result="released"}'] == 1


def test_a_claim_that_is_its_own_consumer_goes_with_the_last_pod_that_may_run(world_of):
    """Without a lookup of anything, and pods without a node count: a scheduler may be about to bind them."""
    world = world_of(CONTROLLER, **KEP)
    world.put(a_claim(consumers=[("resource.k8s.io", "resourceclaims", "c")]))
    world.put(a_pod("waits", node="", phase="Pending"))

    blocked = world.sync("claim", "c")
    not_seen_yet = pods(world)
    world.put(a_pod("waits", phase="Failed"))
    first = world.sync("claim", "c")
    other = world.sync("claim", "c", listed=not_seen_yet)
    freed = world.sync("claim", "c", listed=pods(world))

    assert (blocked.refresh, written(blocked)) == ((), None)
    assert (first.refresh, written(other)) == ((PODS,), None)
    assert written(freed) == {"reservedFor": None, "allocation": None, "devices": None}


def test_without_the_mode_a_claim_s_own_entry_is_as_unknown_as_any_other(world_of):
    world = world_of(CONTROLLER, reserved_for__mode="pods")
    world.put(a_claim(consumers=[("resource.k8s.io", "resourceclaims", "c")]))

    assert written(world.sync("claim", "c", listed={PODS: ()})) is None


def test_kep_5194_16_a_job_of_the_same_name_is_another_job(world_of):
    world = world_of(CONTROLLER, **FALLBACK)
    world.put(a_claim(consumers=[JOB]))

    kept = world.sync("claim", "c", live={OWNER: there()})
    replaced = world.sync("claim", "c", live={OWNER: there("another")}, listed={PODS: ()})

    assert written(kept) is None
    assert written(replaced)["reservedFor"] is None


@pytest.mark.parametrize(
    ("switches", "is_freed"),
    [
        ({"release__design": "rc_never"}, True),
        ({"release__design": "rc_builtin"}, True),
        ({"release__design": "owner", "owner_deletion": "rc_fallback"}, True),
        ({"release__design": "owner", "owner_deletion": "finalizer"}, False),
        ({"release__design": "owner", "owner_deletion": "leak"}, False),
    ],
)
def test_who_takes_off_a_job_that_is_gone_is_a_matter_of_the_design(world_of, switches, is_freed):
    world = world_of(CONTROLLER, **KEP, **switches)
    world.put(a_claim(consumers=[JOB]))

    result = world.sync("claim", "c", live={OWNER: None}, listed={PODS: ()})

    assert (written(result) is not None) is is_freed
    assert world.controller.metrics()["claim_orphaned"] == (not is_freed)


GROUPS = {"reserved_for__mode": "kep5729"}


def a_group(name):
    return ("scheduling.k8s.io", "podgroups", name)


def of_group(name):
    return Query(AnyObject, Key("default", name), "podgroups.scheduling.k8s.io", may_be_refused=True)


def there_as(name):
    return AnyObject(kind="PodGroup", metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"))


@pytest.mark.parametrize("others", [["lone"], [a_group("g2")]])
def test_the_entry_of_a_deleted_group_goes_while_others_use_the_claim(world_of, others):
    world = world_of(CONTROLLER, **GROUPS)
    world.put(a_claim(consumers=[a_group("g1"), *others]))
    world.put(a_pod("lone"))

    kept = world.sync("claim", "c", live={of_group("g1"): there_as("g1"), of_group("g2"): there_as("g2")})
    freed = world.sync("claim", "c", live={of_group("g1"): None, of_group("g2"): there_as("g2")})

    assert written(kept) is None
    assert [each["uid"] for each in written(freed)["reservedFor"]] != []
    assert "uid-g1" not in [each["uid"] for each in written(freed)["reservedFor"]]
    assert "allocation" not in written(freed)


def test_a_group_of_the_same_name_is_another_group(world_of):
    world = world_of(CONTROLLER, **GROUPS)
    world.put(a_claim(consumers=[a_group("g1")]))

    result = world.sync("claim", "c", live={of_group("g1"): there("another")})

    assert written(result) == {"reservedFor": None, "allocation": None, "devices": None}


@pytest.mark.parametrize(
    ("more", "is_freed"),
    [
        ({"ownerReferences": [{"kind": "Job", "name": "other", "uid": "uid-other", "controller": True}]}, True),
        ({"ownerReferences": [{"kind": "ReplicaSet", "name": "web-7f", "uid": "u", "controller": True}],
          "labels": {"pod-template-hash": "7f"}}, True),
        ({"ownerReferences": [{"kind": "ReplicaSet", "name": "web2-7f", "uid": "u", "controller": True}],
          "labels": {"pod-template-hash": "7f"}}, False),
        ({"ownerReferences": [{"kind": "Job", "name": "work", "uid": "uid-work", "controller": True}]}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_pods_that_another_entry_speaks_for_keep_no_workload_that_is_gone(world_of, more, is_freed):
    world = world_of(CONTROLLER, **FALLBACK)
    other, web = ("batch", "jobs", "other"), ("apps", "deployments", "web")
    world.put(a_claim(consumers=[JOB, other, web]))
    world.put(a_pod("p", **more))
    found = {
        Query(AnyObject, Key("default", name), f"{kind}.{group}", may_be_refused=True): AnyObject(
            metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
        )
        for group, kind, name in (other, web)
    }

    result = world.sync("claim", "c", live={OWNER: None, **found}, listed=pods(world))

    left = ["other", "web"] if is_freed else None
    assert left == (None if written(result) is None else [each["name"] for each in written(result)["reservedFor"]])


def test_a_check_that_is_forbidden_is_an_event_and_the_entry_stays(world_of):
    world = world_of(CONTROLLER, **FALLBACK)
    world.put(a_claim(consumers=[JOB]))

    result = world.sync("claim", "c", refused={OWNER: "not allowed"})

    (event,) = [each for each in result.actions if isinstance(each, RecordEvent)]
    assert (event.reason, event.type) == ("ReservedForOwnerCheckForbidden", "Warning")
    assert event.message == 'cannot check whether jobs.batch "work" still exists: not allowed'
    assert (written(result), result.requeue_after_s) == (None, 10.0)


def test_a_kind_that_is_not_served_is_never_taken_to_be_gone(world_of):
    world = world_of(CONTROLLER, **FALLBACK)
    world.put(a_claim(consumers=[("example.com", "trainjobs", "t")]))

    result = world.sync("claim", "c")

    assert (result.refresh, written(result)) == ((), None)


def test_kep_5194_8_of_a_mixed_list_the_pods_go_first_and_then_the_workload(world_of):
    world = world_of(CONTROLLER, **FALLBACK)
    world.put(a_claim(consumers=[JOB, "p4", "p5"]))
    for name in ("p4", "p5"):
        world.put(a_pod(name))
    world.put(a_pod("p4", phase="Succeeded"))

    one = world.sync("claim", "c", live={OWNER: None}, listed={PODS: ()})
    world.put(a_claim(consumers=[JOB, "p5"]))
    world.put(a_pod("p5", phase="Succeeded"))
    two = world.sync("claim", "c", live={OWNER: there()})
    world.put(a_claim(consumers=[JOB]))
    three = world.sync("claim", "c", live={OWNER: None}, listed={PODS: ()})

    assert [each["name"] for each in written(one)["reservedFor"]] == ["work", "p5"]
    assert [each["name"] for each in written(two)["reservedFor"]] == ["work"]
    assert written(three)["reservedFor"] is None
    assert ["allocation" in written(each) for each in (one, two, three)] == [False, False, True]


@pytest.mark.parametrize(
    ("switches", "is_error"),
    [
        ({}, False),
        ({"emulate__version": "1.35"}, True),
        ({"emulate__version": "1.34", "reserved_for__mode": "kep5729"}, True),
        ({"rc__unknown_entry": "error"}, True),
        ({"rc__unknown_entry": "skip"}, False),
        (KEP, False),
        ({**KEP, "rc__unknown_entry": "error"}, False),
        ({"reserved_for__mode": "kep5729"}, False),
        ({"rc__unknown_entry": "by_mode"}, True),
        ({**KEP, "release__design": "podgroup", "rc__unknown_entry": "error"}, True),
    ],
)
def test_kep_5194_9_an_entry_that_is_not_known_keeps_the_entries_of_pods_unless_it_is_skipped(
    world_of, switches, is_error
):
    world = world_of(CONTROLLER, **switches)
    world.put(a_claim(consumers=[JOB, "p"]))
    world.put(a_pod("p", phase="Succeeded"))

    result = world.sync("claim", "c", live={OWNER: there()})

    assert result.error == ("unsupported ReservedFor entry: {batch jobs work uid-work}" if is_error else "")
    assert (written(result) is None) is is_error


@pytest.mark.parametrize(
    ("value", "spec", "is_freed"),
    [
        ("transition_only", {"reservedFor": {"resource": "jobs", "name": "work", "uid": "u"}}, False),
        ("spec_reservedFor", {"reservedFor": {"resource": "jobs", "name": "work", "uid": "u"}}, True),
        ("spec_reservedFor", {}, False),
        ("any", {}, True),
    ],
)
def test_kep_5194_3_a_list_that_its_owner_emptied_frees_the_devices_by_the_switch(world_of, value, spec, is_freed):
    world = world_of(CONTROLLER, **KEP, rc__dealloc_when_empty=value)
    world.put(a_claim(spec=spec))

    result = world.sync("claim", "c")

    assert written(result) == ({"reservedFor": None, "allocation": None, "devices": None} if is_freed else None)


@pytest.mark.parametrize(("deleted", "left"), [({}, None), ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, [])])
def test_kep_5194_14_a_finalizer_without_an_allocation_goes_with_the_claim_alone(world_of, deleted, left):
    """The API server was away between the scheduler's two writes, or this controller between its own two."""
    world = world_of(CONTROLLER)
    world.put(a_claim(allocated=False, finalizers=[FINALIZER], **deleted))

    result = world.sync("claim", "c")

    assert [action.patch["metadata"]["finalizers"] or [] for action in result.actions] == (
        [] if left is None else [left]
    )


def test_a_pod_that_was_seen_to_be_deleted_needs_no_live_read(world_of):
    world = world_of(CONTROLLER)
    world.put(a_claim(consumers=["seen", "unseen"]))
    world.put(a_pod("seen"))
    world.drop("Pod", "seen")

    asked = world.sync("claim", "c")

    assert asked.refresh == (Query(Pod, Key("default", "unseen")),)


def test_a_deleted_job_leads_to_the_claims_that_were_reserved_for_it(world_of):
    world = world_of(CONTROLLER, **KEP, release__design="rc_builtin")
    world.put(a_claim(consumers=[JOB]))
    world.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}})

    assert world.drop("Job", "work", api_version="batch/v1") == [Key("default", "claim/c")]


def test_metrics_count_claims_and_consumers_by_upstreams_labels(world_of):
    world = world_of(CONTROLLER)
    world.put(a_claim("a", consumers=["p", JOB]))
    world.put(a_claim("b", allocated=False, annotations={"resource.kubernetes.io/pod-claim-name": "dev"}))
    world.put(a_claim("a", allocated=False))

    found = world.controller.metrics()

    name = "resourceclaim_controller_resource_claims"
    assert found[f'{name}{{allocated="false",admin_access="false",source=""}}'] == 1
    assert found[f'{name}{{allocated="false",admin_access="false",source="resource_claim_template"}}'] == 1
    assert found[f'{name}{{allocated="true",admin_access="false",source=""}}'] == 0
    assert found['claim_reservedfor_entries{kind="pod"}'] == 0


@pytest.mark.parametrize(
    ("requests", "access"),
    [
        ([], "false"),
        ([{"name": "r", "exactly": {"deviceClassName": "gpu"}}], "false"),
        ([{"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}], "true"),
        ([{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]}], "false"),
        ([{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]},
          {"name": "q", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}], "true"),
    ],
)  # fmt: skip
def test_a_claim_that_asks_for_admin_access_anywhere_is_counted_as_such(world_of, requests, access):
    world = world_of(CONTROLLER)

    world.put(a_claim(spec={"devices": {"requests": requests}}))

    labels = f'allocated="true",admin_access="{access}",source=""'
    assert world.controller.metrics()[f"resourceclaim_controller_resource_claims{{{labels}}}"] == 1


def test_a_claim_made_for_an_extended_resource_has_that_as_its_source(world_of):
    world = world_of(CONTROLLER)

    world.put(a_claim(annotations={"resource.kubernetes.io/extended-resource-claim": "true"}))

    labels = 'allocated="true",admin_access="false",source="extended_resource"'
    assert world.controller.metrics()[f"resourceclaim_controller_resource_claims{{{labels}}}"] == 1
