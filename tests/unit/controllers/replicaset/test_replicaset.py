from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import Key
from services.controllers.replicaset.controller import CONTROLLER
from services.controllers.shared_pods import in_deletion_order
from services.reconcile.actions import Batch, Create, Delete, Patch, Query, RecordEvent

WEB = Key("default", "web")


def batch(result):
    return next((a.actions for a in result.actions if isinstance(a, Batch)), ())


def creates(result):
    return [a for a in batch(result) if isinstance(a, Create)]


def deletes(result):
    return [a.key.name for a in batch(result) if isinstance(a, Delete)]


def test_controllers_1_hundred_creations_are_one_slow_start_batch_and_failures_lower_the_expectations(world_of, a_set):
    world = world_of(CONTROLLER)
    world.put(a_set(100))

    first = world.reconcile("web")
    assert len(creates(first)) == 100
    assert creates(world.reconcile("web")) == []  # ten pods seen, ninety refused or not performed
    for action in batch(first)[10:]:
        world.controller.failed(WEB, action, "Forbidden: exceeded quota")
    for i in range(10):
        world.put({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": f"p{i}", "labels": {"app": "web"}, "ownerReferences": batch(first)[0].document["metadata"][
                "ownerReferences"]}})  # fmt: skip
    again = world.reconcile("web")

    assert len(creates(again)) == 90
    failure = next(a for a in again.actions if isinstance(a, Patch)).patch["status"]["conditions"][0]
    assert (failure["type"], failure["reason"]) == ("ReplicaFailure", "FailedCreate")
    assert "exceeded quota" in failure["message"]
    events = [a.reason for a in again.actions if isinstance(a, RecordEvent)]
    assert events.count("SuccessfulCreate") == 10
    assert events.count("FailedCreate") == 1


def test_a_pod_is_the_template_with_its_unknown_fields_and_a_controller_reference(world_of, a_set):
    world = world_of(CONTROLLER)
    world.put(a_set(1))

    document = creates(world.reconcile("web"))[0].document

    assert document["spec"] == {"x-unknown": 1}
    assert document["metadata"]["generateName"] == "web-"
    assert document["metadata"]["ownerReferences"][0]["uid"] == "uid-web"


def test_controllers_3_a_creation_never_seen_is_given_up_after_three_hundred_seconds(world_of, a_set):
    world = world_of(CONTROLLER)
    world.put(a_set(1))
    world.reconcile("web")

    early = world.reconcile("web", after_s=299.0)
    late = world.reconcile("web", after_s=2.0)

    assert creates(early) == []
    assert len(creates(late)) == 1


def test_an_unbind_is_no_deletion_and_calls_for_no_other_pod(world_of, a_set, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_set(1))
    world.put(a_pod("p", owner="web", node="n1", phase="Pending"))

    world.put(a_pod("p", owner="web", phase="Pending", status={"unbindCount": 1}))

    assert batch(world.reconcile("web")) == ()


def test_controllers_4_an_orphan_is_adopted_only_after_a_live_look_at_the_owner(world_of, a_set, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_set(1))
    assert world.put(a_pod("orphan")) == [WEB]
    query = Query(ReplicaSet, WEB)

    asked = world.reconcile("web")
    adopted = world.reconcile("web", live={query: world.of(ReplicaSet).get(WEB)})
    refused = world_of(CONTROLLER)
    refused.put(a_set(1))
    refused.put(a_pod("orphan"))
    gone = refused.reconcile("web", live={query: None})

    assert asked.refresh == (query,)
    assert batch(adopted) == ()
    patch = next(a for a in adopted.actions if isinstance(a, Patch) and a.resource == "pods")
    assert (patch.uid, patch.patch["metadata"]["ownerReferences"][0]["uid"]) == ("uid-orphan", "uid-web")
    assert not any(isinstance(a, Patch) and a.resource == "pods" for a in gone.actions)


def test_controllers_4_a_set_being_deleted_adopts_nothing_and_creates_nothing(world_of, a_set, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_set(3, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x"]))
    world.put(a_pod("orphan"))

    result = world.reconcile("web")

    assert result.refresh == ()
    assert all(isinstance(a, Patch) and a.subresource == "status" for a in result.actions)


def test_a_pod_that_no_longer_matches_is_released(world_of, a_set, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_set(0))
    world.put(a_pod("p", owner="web", labels={"app": "other"}))

    patch = next(a for a in world.reconcile("web").actions if isinstance(a, Patch) and a.resource == "pods")

    assert patch.patch == {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "uid-web"}]}}


def test_controllers_5_from_six_to_five_the_unassigned_pod_goes_with_its_uid(world_of, a_set, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_set(5))
    for i in range(5):
        world.put(a_pod(f"p{i}", owner="web", node="n1", **({"phase": "Pending"} if i == 0 else {})))
    world.put(a_pod("unassigned", owner="web", phase="Pending"))

    result = world.reconcile("web")

    assert deletes(result) == ["unassigned"]
    assert next(a for a in batch(result) if isinstance(a, Delete)).uid == "uid-unassigned"
    assert deletes(world.reconcile("web")) == []  # awaited, not asked twice
    world.put(a_pod("unassigned", owner="web", phase="Pending", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert deletes(world.reconcile("web")) == []


def test_the_deletion_order_asks_its_questions_one_after_the_other(world_of, a_pod):
    world = world_of(CONTROLLER)
    long_ago, lately = world.stamp(100_000), world.stamp(10)
    cost = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}
    restarts = {"containerStatuses": [{"restartCount": 7}]}
    expected = [
        a_pod("1-no-node", phase="Pending"),
        a_pod("2-pending", node="n", phase="Pending"),
        a_pod("3-not-ready", node="n", ready=False),
        a_pod("4-cheap", node="n", since=long_ago, creationTimestamp=long_ago, **cost),
        a_pod("5-crowded", node="full", since=long_ago, creationTimestamp=long_ago),
        a_pod("6-ready-lately", node="n", since=lately, creationTimestamp=long_ago),
        a_pod("7-restarted", node="n", since=long_ago, creationTimestamp=long_ago, status=None),
        a_pod("8-young", node="n", since=long_ago, creationTimestamp=lately),
        a_pod("9-old", node="n", since=long_ago, creationTimestamp=long_ago),
    ]
    expected[6]["status"].update(restarts)
    for document in reversed(expected):
        world.put(document)

    found = in_deletion_order(world.of(Pod).all(), {"n": 1, "full": 3}, 1_767_225_600.0 + world.now_s)

    assert [pod.metadata.name for pod in found] == [document["metadata"]["name"] for document in expected]


def test_available_pods_have_been_ready_for_min_ready_seconds_and_the_next_is_waited_for(world_of, a_set, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_set(2, min_ready_s=30))
    world.put(a_pod("old", owner="web", node="n", since=world.stamp(40)))
    world.put(a_pod("new", owner="web", node="n", since=world.stamp(10)))

    result = world.reconcile("web")

    status = result.actions[0].patch["status"]
    assert (status["readyReplicas"], status["availableReplicas"]) == (2, 1)
    assert result.requeue_after_s == 20.0


def test_a_status_that_says_it_already_is_not_written_again(world_of, a_set, a_pod):
    world = world_of(CONTROLLER)
    world.put(a_set(1))
    world.put(a_pod("p", owner="web", node="n"))
    status = world.reconcile("web").actions[0].patch["status"]

    world.put(a_set(1, status=status))

    assert world.reconcile("web").actions == ()


def failures_in(world, a_set, a_pod, replicas, seconds):
    """Let every pod fail half a second after it is asked for; return how many did."""
    world.put(a_set(replicas))
    failed = 0
    for _ in range(int(seconds * 2)):
        for _ in creates(world.reconcile("web", after_s=0.5)):
            failed += 1
            world.put(a_pod(f"f{failed}", owner="web", phase="Pending"))
            world.put(a_pod(f"f{failed}", owner="web", phase="Failed"))
    return failed


def test_controllers_13_without_backoff_ten_replicas_fail_more_than_a_thousand_times_a_minute(world_of, a_set, a_pod):
    assert failures_in(world_of(CONTROLLER), a_set, a_pod, 10, 60) > 1000


def test_controllers_13_with_backoff_ten_replicas_fail_twenty_five_to_forty_times_a_minute(world_of, a_set, a_pod):
    world = world_of(CONTROLLER, rs__failed_backoff="on")

    assert 25 <= failures_in(world, a_set, a_pod, 10, 60) <= 40


def test_one_sync_creates_at_most_the_burst_of_five_hundred(world_of, a_set):
    world = world_of(CONTROLLER)
    world.put(a_set(800))

    assert len(creates(world.reconcile("web"))) == 500
