"""The CronJob controller: what a look at schedule, clock and jobs leads to. The world's clock starts at 00:16:40."""

import pytest

from services.api.kinds.job import Job
from services.api.meta import Key
from services.controllers.cronjob.controller import CONTROLLER
from services.reconcile.actions import Create, Delete, Patch, Query, RecordEvent

CREATED = "2026-01-01T00:10:30Z"
MINUTE = 29_453_760
"""Minutes since the epoch at the beginning of 2026."""


def a_cron_job(schedule="*/5 * * * *", status=None, **spec):
    template = {"metadata": {"labels": {"of": "tick"}}, "spec": {"parallelism": 2, "x-unknown": 1}}
    return {
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "tick", "creationTimestamp": spec.pop("created", CREATED)},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec}, "status": status or {},
    }  # fmt: skip


def a_job(minute, end="", *, scheduled=True, started="2026-01-01T00:05:00Z", **status):
    if end:
        status["conditions"] = [{"type": end, "status": "True"}]
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": "uid-tick", "controller": True}
    stamp = {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T00:00:00Z"} if scheduled else {}
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": f"tick-{MINUTE + minute}", "ownerReferences": [owner], "annotations": stamp},
        "spec": {}, "status": {"startTime": started, **status},
    }  # fmt: skip


def listed(*minutes):
    return {"active": [{"name": f"tick-{MINUTE + m}", "namespace": "default", "uid": f"uid-tick-{MINUTE + m}"}
                       for m in minutes]}  # fmt: skip


class Look:
    """What one reconcile asked for."""

    def __init__(self, result):
        self.again_s, self.refresh, flat = result.requeue_after_s, result.refresh, result.actions
        self.created = [a.document for a in flat if isinstance(a, Create)]
        self.deleted = [a.key.name for a in flat if isinstance(a, Delete)]
        self.status = next((a.patch["status"] for a in flat if isinstance(a, Patch)), None)
        self.events = [f"{a.type} {a.reason}: {a.message}" for a in flat if isinstance(a, RecordEvent)]


@pytest.fixture
def world(world_of):
    return world_of(CONTROLLER)


def looked(world, *documents, **how):
    for document in documents:
        world.put(document)
    return Look(world.reconcile("tick", **how))


def test_a_job_is_created_for_the_last_time_that_has_passed_and_named_after_its_minute(world):
    look = looked(world, a_cron_job())

    (job,) = look.created
    assert job["metadata"]["name"] == f"tick-{MINUTE + 15}"
    assert job["metadata"]["labels"] == {"of": "tick"}
    assert job["metadata"]["annotations"] == {
        "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T00:15:00Z"}  # fmt: skip
    assert job["metadata"]["ownerReferences"][0] | {"uid": ""} == {
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": "", "controller": True,
        "blockOwnerDeletion": True}  # fmt: skip
    assert job["spec"] == {"parallelism": 2, "x-unknown": 1}
    assert look.status["lastScheduleTime"] == "2026-01-01T00:15:00Z"
    assert look.again_s == pytest.approx(200.1)


def test_the_zone_of_the_schedule_is_that_of_the_jobs_annotation(world):
    (job,) = looked(world, a_cron_job("15 5 * * *", timeZone="Asia/Karachi")).created

    assert job["metadata"]["annotations"].popitem()[1] == "2026-01-01T05:15:00+05:00"


def test_the_job_that_was_asked_for_is_listed_once_it_is_seen(world):
    looked(world, a_cron_job())
    look = looked(world, a_cron_job(status={"lastScheduleTime": "2026-01-01T00:15:00Z"}), a_job(15))

    assert look.created == []
    assert [each["name"] for each in look.status["active"]] == [f"tick-{MINUTE + 15}"]
    assert look.events == [f"Normal SuccessfulCreate: Created job tick-{MINUTE + 15}"]


def test_an_active_job_is_referred_to_whole(world):
    """Upstream `pkg/controller/cronjob/utils.go`, `getRef`: a reference by which a client finds the Job."""
    (reference,) = looked(world, a_cron_job(), a_job(15)).status["active"]

    assert ("batch/v1", "Job", "default", f"tick-{MINUTE + 15}") == tuple(
        reference[name] for name in ("apiVersion", "kind", "namespace", "name")
    )
    assert reference["uid"]


def test_a_job_that_was_there_before_is_not_created_twice_nor_announced(world):
    look = looked(world, a_cron_job(), a_job(15))

    assert (look.created, look.events) == ([], [])
    assert [each["name"] for each in look.status["active"]] == [f"tick-{MINUTE + 15}"]


def test_nothing_is_due_before_the_first_time(world):
    look = looked(world, a_cron_job(created="2026-01-01T00:15:30Z"))

    assert (look.created, look.status) == ([], None)
    assert look.again_s == pytest.approx(200.1)


def test_of_many_missed_times_the_last_is_started_for_and_more_than_a_hundred_are_reported(world):
    few = looked(world, a_cron_job("* * * * *", created="2025-12-31T22:40:00Z"))
    many = looked(world, a_cron_job("* * * * *", created="2025-12-31T22:30:00Z"))

    assert [few.created[0]["metadata"]["name"], many.created[0]["metadata"]["name"]] == [f"tick-{MINUTE + 16}"] * 2
    assert few.events == []
    assert many.events == [
        ("Warning TooManyMissedTimes: too many missed start times. Set or decrease .spec.startingDeadlineSeconds or "
        "check clock skew")]  # fmt: skip


def test_a_time_missed_by_more_than_the_deadline_is_not_started_for(world):
    late = looked(world, a_cron_job(startingDeadlineSeconds=60))
    early = looked(world, a_cron_job(startingDeadlineSeconds=101))

    # With the deadline no time within it has passed at all: there is nothing to report, either.
    assert (late.created, late.again_s) == ([], pytest.approx(200.1))
    assert len(early.created) == 1


def test_a_schedule_that_never_comes_is_reported(world):
    look = looked(world, a_cron_job("59 23 31 2 *"))

    assert look.events == [
        ("Warning InvalidSchedule: invalid schedule: 59 23 31 2 * : time difference between two schedules is less than "
        "1 second")]  # fmt: skip


def test_a_suspended_one_starts_nothing_and_still_keeps_its_list(world):
    done = looked(world, a_cron_job(suspend=True, status=listed(5)), a_job(5, "Failed"))

    assert (done.created, done.again_s) == ([], None)
    assert done.status["active"] is None
    assert done.events == [f"Normal SawCompletedJob: Saw completed job: tick-{MINUTE + 5}, condition: Failed"]


@pytest.mark.parametrize(("policy", "created", "deleted"), [("Allow", 1, 0), ("Forbid", 0, 0), ("Replace", 1, 1)])
def test_what_becomes_of_a_job_that_still_runs_is_the_policys(world, policy, created, deleted):
    look = looked(world, a_cron_job(concurrencyPolicy=policy, status=listed(5)), a_job(5))

    assert (len(look.created), len(look.deleted)) == (created, deleted)
    assert look.events == {
        "Allow": [],
        "Forbid": [("Normal JobAlreadyActive: Not starting job because prior execution is running and concurrency "
                   "policy is Forbid")],
        "Replace": [f"Normal SuccessfulDelete: Deleted job tick-{MINUTE + 5}"],
    }[policy]  # fmt: skip


def test_a_time_already_processed_is_not_started_for_again(world):
    look = looked(world, a_cron_job(status={"lastScheduleTime": "2026-01-01T00:15:00Z"}))

    assert (look.created, look.status) == ([], None)


def test_old_jobs_go_by_the_limits_the_ones_that_started_first_before_the_others(world):
    ended = [a_job(n, "Complete", started=f"2026-01-01T00:0{5 - n}:00Z", completionTime=f"2026-01-01T00:0{9 - n}:00Z")
             for n in range(4)]  # fmt: skip
    failed = [a_job(n, "Failed", started=f"2026-01-01T00:0{n}:00Z") for n in (6, 7)]
    look = looked(
        world, a_cron_job(suspend=True, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=0), *ended, *failed
    )

    assert look.deleted == [f"tick-{MINUTE + n}" for n in (3, 6, 7)]
    assert look.status["lastSuccessfulTime"] == "2026-01-01T00:09:00Z"


def test_a_listed_job_that_is_gone_is_looked_for_live_before_it_is_reported(world):
    first = looked(world, a_cron_job(suspend=True, status=listed(5)))
    query = Query(Job, Key("default", f"tick-{MINUTE + 5}"))
    gone = looked(world, live={query: None})

    assert first.refresh == (query,)
    assert gone.events == [f"Normal MissingJob: Active job went missing: tick-{MINUTE + 5}"]
    assert gone.status["active"] is None


def test_a_job_made_by_hand_is_unexpected_and_not_listed(world):
    look = looked(world, a_cron_job(suspend=True), a_job(3, scheduled=False))

    assert look.events == [
        f"Warning UnexpectedJob: Saw a job that the controller did not create or forgot: tick-{MINUTE + 3}"]  # fmt: skip
    assert look.status is None


def test_a_new_schedule_waits_for_its_next_time(world):
    looked(world, a_cron_job("0 0 * * *"))
    changed = looked(world, a_cron_job("* * * * *"))

    assert changed.created == []
    assert changed.again_s == pytest.approx(20.1)
    assert len(looked(world).created) == 1


def test_a_refused_creation_is_reported(world):
    (action,) = (a for a in looked_actions(world, a_cron_job()) if isinstance(a, Create))
    world.controller.failed(Key("default", "tick"), action, "Forbidden: exceeded quota")

    assert "Warning FailedCreate: Error creating job: exceeded quota" in looked(world).events


def looked_actions(world, document):
    world.put(document)
    return world.reconcile("tick").actions


def test_how_late_a_job_is_created_is_measured(world):
    looked(world, a_cron_job())
    job = a_job(15)
    job["metadata"] |= {
        "creationTimestamp": "2026-01-01T00:15:03Z",
        "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T00:15:00Z"},
    }
    looked(world, a_cron_job(status={"lastScheduleTime": "2026-01-01T00:15:00Z"}), job)

    assert world.controller.metrics()["cronjob_controller_job_creation_skew_duration_seconds_sum"] == 3.0


def test_a_job_whose_time_was_not_written_down_is_not_started_for_again_when_it_has_finished(world):
    job = a_job(15, "Complete", completionTime="2026-01-01T00:16:00Z")
    job["metadata"]["annotations"] = {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T00:15:00Z"}
    look = looked(world, a_cron_job(successfulJobsHistoryLimit=0), job)

    assert (look.created, look.deleted) == ([], [f"tick-{MINUTE + 15}"])
    assert look.status["lastScheduleTime"] == "2026-01-01T00:15:00Z"
