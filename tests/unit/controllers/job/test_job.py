"""The Job controller: what a look at the pods leads to, document in, actions out."""

import pytest

from services.controllers.job.controller import CONTROLLER as JOB_CONTROLLER
from services.controllers.ttl_after_finished.controller import CONTROLLER as TTL_AFTER_FINISHED
from services.reconcile.actions import Batch, Create, Delete, Patch, RecordEvent

HELD = ["batch.kubernetes.io/job-tracking"]
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


def a_job(status=None, name="work", **spec):
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]},
    }
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec},
        "status": {"startTime": "2026-01-01T00:00:00Z", **(status or {})},
    }  # fmt: skip


def ending(kind="Complete", ended="2026-01-01T00:10:00Z"):
    return {
        "conditions": [{"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": ended}]
    }


@pytest.fixture
def a_tracked(a_pod):
    def build(name, phase="Running", *, index=None, failures=0, held=True, deleted=False, exit_code=None, **status):
        metadata = {"finalizers": HELD if held else []}
        if index is not None:
            metadata["annotations"] = {INDEX: str(index), FAILURES: str(failures)}
        if deleted:
            metadata |= {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
        if exit_code is not None:
            state = {"terminated": {"exitCode": exit_code, "finishedAt": "2026-01-01T00:00:00Z"}}
            status["containerStatuses"] = [{"name": "c", "state": state}]
        made = a_pod(name, node="n1", phase=phase, status=status, **metadata)
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "uid-work", "controller": True}
        ]
        return made

    return build


class Look:
    """What one reconcile asked for."""

    def __init__(self, result):
        flat = [each for a in result.actions for each in (a.actions if isinstance(a, Batch) else (a,))]
        self.again_s = result.requeue_after_s
        self.created = [a.document for a in flat if isinstance(a, Create)]
        self.deleted = [a.key.name for a in flat if isinstance(a, Delete)]
        self.released = [a.key.name for a in flat if isinstance(a, Patch) and a.resource == "pods"]
        writes = [a.patch["status"] for a in flat if isinstance(a, Patch) and a.resource == "jobs.batch"]
        assert len(writes) <= 1
        self.status = writes[0] if writes else {}
        self.true = {c["type"]: c["reason"] for c in self.status.get("conditions", ()) if c["status"] == "True"}
        self.events = [a.reason for a in flat if isinstance(a, RecordEvent)]


@pytest.fixture
def look(world_of):
    """Return what is asked for a second after all these were seen."""

    def at(*documents, **switches):
        world = world_of(JOB_CONTROLLER, **switches)
        for document in documents:
            world.put(document)
        return Look(world.reconcile("work", after_s=2.0))

    return at


def test_a_new_job_gets_its_pods_tracked_and_labelled(look):
    found = look(a_job(completions=5, parallelism=3))

    assert len(found.created) == 3
    meta = found.created[0]["metadata"]
    assert (meta["generateName"], meta["finalizers"]) == ("work-", HELD)
    assert meta["ownerReferences"][0]["kind"] == "Job"


def test_no_more_pods_run_than_completions_are_left(look, a_tracked):
    assert len(look(a_job({"succeeded": 4}, completions=5, parallelism=3)).created) == 1
    assert look(a_job(completions=2, parallelism=3), a_tracked("a"), a_tracked("b")).created == []


def test_kep_2307_an_end_is_counted_in_three_steps_each_stored_before_the_next(look, a_tracked):
    first = look(a_job(), a_tracked("a", "Succeeded"))
    listed = {"uncountedTerminatedPods": {"succeeded": ["uid-a"]}}
    second = look(a_job(listed), a_tracked("a", "Succeeded"))
    third = look(a_job(listed), a_tracked("a", "Succeeded", held=False))

    assert first.status["uncountedTerminatedPods"]["succeeded"] == ["uid-a"]
    assert (first.released, first.status.get("succeeded")) == ([], None)
    assert (second.released, second.status.get("succeeded")) == (["a"], None)
    assert (third.released, third.status["succeeded"]) == ([], 1)
    assert third.status["uncountedTerminatedPods"]["succeeded"] is None


def test_a_listed_pod_that_is_gone_counts(look):
    assert look(a_job({"uncountedTerminatedPods": {"failed": ["uid-x"]}}, backoffLimit=6)).status["failed"] == 1


def test_a_finalizer_asked_to_go_is_not_asked_again_while_the_cache_is_behind(world_of, a_tracked):
    world = world_of(JOB_CONTROLLER)
    world.put(a_job({"uncountedTerminatedPods": {"succeeded": ["uid-a"]}}))
    world.put(a_tracked("a", "Succeeded"))

    assert Look(world.reconcile("work", after_s=2.0)).released == ["a"]
    assert Look(world.reconcile("work", after_s=2.0)).released == []
    world.put(a_job({"uncountedTerminatedPods": {"succeeded": ["uid-a"]}, "active": 0}))
    assert Look(world.reconcile("work", after_s=12.0)).released == ["a"], "an unknown outcome is asked about again"


def test_the_failure_target_is_reported_before_the_job_has_failed(look, a_tracked):
    events = look(a_job({"succeeded": 1}))
    kept = a_job({"succeeded": 1, **ending("SuccessCriteriaMet")})
    held = look(kept, a_tracked("b", "Running", deleted=True))
    final = look(kept)

    assert events.true == {"SuccessCriteriaMet": "CompletionsReached"}
    assert "Complete" not in held.true
    assert final.true == {"SuccessCriteriaMet": "R", "Complete": "R"}
    assert final.status["completionTime"]
    assert final.events == ["Completed"]


def test_conditions_of_a_job_have_the_time_of_their_probe(look, a_tracked):
    (target,) = look(a_job({"succeeded": 1})).status["conditions"]

    assert target["lastProbeTime"] == target["lastTransitionTime"]


def test_a_finished_job_starts_nothing_and_lets_its_pods_go(look, a_tracked):
    found = look(a_job(ending(), completions=5), a_tracked("a", "Succeeded"), a_tracked("b"))

    assert (found.created, found.released, found.status) == ([], ["a"], {})


def test_an_unbound_pod_of_a_job_is_active_and_not_counted_unbinding_18(look, a_tracked):
    unbound = a_tracked("a", "Pending", unbindCount=1)
    unbound["spec"]["nodeName"] = ""
    found = look(a_job(backoffLimit=0), unbound)

    assert (found.status["active"], found.created, found.true) == (1, [], {})
    assert (
        "uncountedTerminatedPods" not in found.status or found.status["uncountedTerminatedPods"].get("failed") is None
    )


def test_one_failure_more_than_the_limit_fails_the_job_and_deletes_what_runs(look, a_tracked):
    found = look(
        a_job({"failed": 2}, completions=9, parallelism=2, backoffLimit=2), a_tracked("a", "Failed"), a_tracked("b")
    )

    assert found.true == {"FailureTarget": "BackoffLimitExceeded"}
    assert (found.deleted, found.created) == (["b"], [])


def test_controllers_10_after_failures_new_pods_wait_ten_twenty_forty_seconds(world_of, a_tracked):
    world = world_of(JOB_CONTROLLER)
    waits = []
    for number in range(3):
        ended = {"terminated": {"exitCode": 1, "finishedAt": world.stamp()}}
        world.put(a_tracked(f"p{number}", "Failed", containerStatuses=[{"name": "c", "state": ended}]))
        world.put(a_job())
        waits.append(Look(world.reconcile("work")).again_s)

    assert waits == [10.0, 20.0, 40.0]


def test_changes_of_pods_are_looked_at_together_a_second_after_the_first(world_of, a_tracked):
    world = world_of(JOB_CONTROLLER)
    world.put(a_job({"active": 1, "ready": 1, "terminating": 0, "uncountedTerminatedPods": {}}))
    world.put(a_tracked("a"))
    assert world.reconcile("work").actions == ()
    world.put(a_tracked("a", "Succeeded"))

    assert [world.reconcile("work", after_s=after_s).requeue_after_s for after_s in (0.0, 0.4)] == [
        1.0, pytest.approx(0.6)
    ]  # fmt: skip


def test_a_job_without_completions_ends_with_its_first_success_and_starts_nothing_after_it(look, a_tracked):
    running = look(a_job(parallelism=3), a_tracked("a", "Succeeded"), a_tracked("b"))
    alone = look(a_job({"succeeded": 1}, parallelism=3))

    assert (running.created, running.deleted, running.true) == ([], [], {})
    assert alone.true == {"SuccessCriteriaMet": "CompletionsReached"}


def test_too_many_pods_are_released_before_they_are_deleted(look, a_tracked):
    found = look(a_job(completions=3, parallelism=1), a_tracked("a"), a_tracked("b", "Pending", index=None))

    assert (found.released, found.deleted) == (["b"], ["b"])


def test_a_suspended_job_lets_its_pods_go_and_its_clock_stops(look, a_tracked):
    found = look(a_job(suspend=True, activeDeadlineSeconds=1), a_tracked("a"))

    assert (found.released, found.deleted) == (["a"], ["a"])
    assert found.true == {"Suspended": "JobSuspended"}
    assert found.status["startTime"] is None
    assert found.events == ["Suspended", "SuccessfulDelete"]


def test_a_deadline_fails_the_job_in_time(look):
    late, early = look(a_job(activeDeadlineSeconds=5)), look(a_job(activeDeadlineSeconds=3600))

    assert late.true == {"FailureTarget": "DeadlineExceeded"}
    assert early.true == {}


@pytest.mark.parametrize(
    ("rule", "failed", "true"),
    [
        ({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}, None, {"FailureTarget": "PodFailurePolicy"}),
        ({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}, None, {}),
        ({"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [42]}}, ["uid-a"], {}),
        ({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}, ["uid-a"], {}),
        ({"action": "Count", "onExitCodes": {"operator": "In", "values": [1, 42]}}, ["uid-a"], {}),
    ],
)  # fmt: skip
def test_kep_3329_the_first_rule_that_matches_decides_what_an_end_means(look, a_tracked, rule, failed, true):
    policy = {"rules": [rule]}
    found = look(a_job(podFailurePolicy=policy, podReplacementPolicy="Failed"), a_tracked("a", "Failed", exit_code=42))

    assert found.true == true
    if rule["action"] != "FailJob":
        assert (found.status.get("uncountedTerminatedPods") or {}).get("failed") == failed


def test_kep_3329_a_rejection_matches_no_rule_and_counts_unless_rejections_do_not(look, a_tracked):
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
    job = a_job(backoffLimit=0, podFailurePolicy=policy, podReplacementPolicy="Failed")
    refused = a_tracked("a", "Failed", reason="TopologyAffinityError")

    assert look(job, refused).true == {"FailureTarget": "BackoffLimitExceeded"}
    ignored = look(job, refused, job__count_rejections=False)
    assert (ignored.true, ignored.released) == ({}, ["a"])


@pytest.mark.parametrize(("policy", "created", "failed"), [("TerminatingOrFailed", 1, ["uid-a"]), ("Failed", 0, None)])
def test_kep_3939_a_pod_that_is_leaving_counts_and_is_replaced_at_once_or_when_it_has_ended(
    look, a_tracked, policy, created, failed
):
    found = look(a_job(podReplacementPolicy=policy), a_tracked("a", deleted=True))

    assert len(found.created) == created
    assert (found.status.get("uncountedTerminatedPods") or {}).get("failed") == failed
    assert found.status["terminating"] == 1


def test_an_indexed_job_starts_the_lowest_free_indexes(look, a_tracked):
    job = a_job({"completedIndexes": "0,2", "succeeded": 2}, completions=6, parallelism=3, completionMode="Indexed")
    found = look(job, a_tracked("a", index=1))

    assert [p["metadata"]["labels"][INDEX] for p in found.created] == ["3", "4"]
    assert found.created[0]["metadata"]["generateName"] == "work-3-"
    spec = found.created[0]["spec"]
    assert spec["hostname"] == "work-3"
    assert spec["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"


def test_an_index_counts_once_and_its_pod_is_released_when_that_is_stored(look, a_tracked):
    spec = {"completions": 3, "parallelism": 1, "completionMode": "Indexed"}
    first = look(a_job(**spec), a_tracked("a", "Succeeded", index=1), a_tracked("b", "Succeeded", index=1))
    stored = {"completedIndexes": "1", "succeeded": 1}
    second = look(a_job(stored, **spec), a_tracked("a", "Succeeded", index=1), a_tracked("b", "Succeeded", index=1))

    assert (first.status["completedIndexes"], first.status["succeeded"], first.released) == ("1", 1, [])
    assert sorted(second.released) == ["a", "b"]


def test_a_second_pod_of_an_index_goes(look, a_tracked):
    found = look(
        a_job(completions=3, parallelism=3, completionMode="Indexed"), a_tracked("a", index=0),
        a_tracked("b", "Pending", index=0), a_tracked("c", index=7),
    )  # fmt: skip

    assert sorted(found.deleted) == ["b", "c"]


def test_kep_3850_a_failed_pod_is_kept_until_its_index_has_another_that_counts_on(look, a_tracked):
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 3,
            "backoffLimit": 2**31 - 1}  # fmt: skip
    other, failed = a_tracked("z", index=1), a_tracked("a", "Failed", index=0, failures=1, exit_code=1)
    waiting = look(a_job(**spec), failed, other)
    followed = look(a_job(**spec), failed, other, a_tracked("b", index=0, failures=2))

    assert waiting.status.get("uncountedTerminatedPods", {}).get("failed") is None
    assert [p["metadata"]["annotations"][FAILURES] for p in waiting.created] == ["2"]
    assert followed.status["uncountedTerminatedPods"]["failed"] == ["uid-a"]


def test_kep_3850_indexes_fail_one_by_one_and_too_many_fail_the_job(look, a_tracked):
    spec = {"completions": 3, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
            "backoffLimit": 2**31 - 1}  # fmt: skip
    one = look(a_job(**spec), a_tracked("a", "Failed", index=0))
    most = look(a_job(maxFailedIndexes=0, **spec), a_tracked("a", "Failed", index=0))
    last = look(
        a_job({"completedIndexes": "1,2", "succeeded": 2}, **spec), a_tracked("a", "Failed", index=0, failures=0)
    )

    assert (one.status["failedIndexes"], one.true) == ("0", {})
    assert [p["metadata"]["labels"][INDEX] for p in one.created] == ["1", "2"]
    assert most.true == {"FailureTarget": "MaxFailedIndexesExceeded"}
    assert last.true == {"FailureTarget": "FailedIndexes"}


def test_kep_3998_some_indexes_may_be_enough(look, a_tracked):
    policy = {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]}
    job = a_job({"completedIndexes": "1", "succeeded": 1}, completions=4, parallelism=2, completionMode="Indexed",
                successPolicy=policy)  # fmt: skip
    found = look(job, a_tracked("a", index=3))

    assert found.true == {"SuccessCriteriaMet": "SuccessPolicy"}
    assert found.deleted == ["a"]


def test_pods_of_a_job_that_is_gone_are_released(world_of, a_tracked):
    world = world_of(JOB_CONTROLLER)
    world.put(a_job())
    world.put(a_tracked("a", deleted=True))
    world.drop("Job", "work", api_version="batch/v1")

    assert Look(world.reconcile("work")).released == ["a"]


def test_nothing_is_decided_while_our_own_status_write_is_not_seen(world_of, a_tracked):
    world = world_of(JOB_CONTROLLER)
    world.put(a_job())
    world.put(a_tracked("a"))
    written = Look(world.reconcile("work", after_s=2.0))
    world.put(a_tracked("b", "Succeeded", held=False))

    unseen = Look(world.reconcile("work", after_s=2.0))

    assert written.status
    assert (unseen.created, unseen.status, unseen.again_s) == ([], {}, 8.0)


def test_kep_592_a_finished_job_goes_when_its_time_is_over_and_not_before(world_of):
    world = world_of(TTL_AFTER_FINISHED)
    ended = world.stamp()
    world.put(a_job(ending(ended=ended), ttlSecondsAfterFinished=20))

    early = world.reconcile("work", after_s=10.0)
    asked = world.reconcile("work", after_s=10.0)
    job = world.stores["jobs.batch"].all()[0]
    late = world.reconcile("work", live={asked.refresh[0]: job})

    assert early.requeue_after_s == pytest.approx(10.0)
    assert [(a.key.name, a.uid, a.resource_version) for a in late.actions] == [("work", "uid-work", "1")]


def test_a_job_that_finishes_is_counted_once_with_its_reason(world_of):
    world = world_of(JOB_CONTROLLER)
    world.put(a_job())
    failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}]}
    world.put(a_job(failed))
    world.put(a_job(failed))

    labels = 'completion_mode="NonIndexed",result="failed",reason="BackoffLimitExceeded"'
    assert world.controller.metrics() == {f"job_controller_jobs_finished_total{{{labels}}}": 1}
