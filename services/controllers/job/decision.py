"""Decisions over a survey: whether a Job is over, and its status. Pure.

The first reason to fail that holds counts; success is checked after that. An interim condition (FailureTarget,
SuccessCriteriaMet) reports the decision; the final one (Failed, Complete) comes only when no pod runs any more
and all are counted. Source: controllers 5.1.
"""

from typing import NamedTuple

from services.api.kinds.job import Job, format_indexes
from services.api.kinds.pod import Pod
from services.api.meta import Condition, Document, condition_status, find_condition
from services.api.times import format_time
from services.controllers.job.policy import success_rule_met
from services.controllers.job.survey import UNCOUNTED_MAX, Survey
from services.controllers.shared_pods import seconds_of
from services.reconcile import conditions, writes

FAILING, SUCCEEDING = "FailureTarget", "SuccessCriteriaMet"
_FINAL = {FAILING: "Failed", SUCCEEDING: "Complete"}


class Outcome(NamedTuple):
    """Outcome of a job that is over. `type`: FAILING or SUCCEEDING."""

    type: str
    reason: str
    message: str


def outcome_of(job: Job, pod_survey: Survey, wall_s: float) -> Outcome | None:
    """Return why the job is over, before its pods are managed; None if it continues."""
    for kind in (FAILING, SUCCEEDING):
        reported = find_condition(job.status.conditions, kind)
        if reported is not None and reported.status == "True":
            return Outcome(kind, reported.reason, reported.message)
    if pod_survey.fails_job and job.spec.pod_failure_policy is not None:
        return Outcome(FAILING, "PodFailurePolicy", pod_survey.fails_job)
    failed = job.status.failed + pod_survey.failed_count
    if failed > job.spec.backoff_limit or _has_restarted_too_often(job, pod_survey.active):
        return Outcome(FAILING, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if (left_s := deadline_in_s(job, wall_s)) is not None and left_s <= 0:
        return Outcome(FAILING, "DeadlineExceeded", "Job was active longer than specified deadline")
    if (failing := _failed_by_indexes(job, pod_survey)) is not None:
        return failing
    if (rule := success_rule_met(job, pod_survey.completed)) is not None:
        return Outcome(SUCCEEDING, "SuccessPolicy", f"Matched rules at index {rule}")
    return None


def _failed_by_indexes(job: Job, pod_survey: Survey) -> Outcome | None:
    if job.spec.backoff_limit_per_index is None:
        return None
    most = job.spec.max_failed_indexes
    if most is not None and len(pod_survey.failed_indexes) > most:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return Outcome(FAILING, "MaxFailedIndexesExceeded", message)
    done = len(pod_survey.failed_indexes | pod_survey.completed)
    if pod_survey.failed_indexes and done >= (job.spec.completions or 0):
        return Outcome(FAILING, "FailedIndexes", "Job has failed indexes")
    return None


def _has_restarted_too_often(job: Job, active: list[Pod]) -> bool:
    """Whether containers restarted in place too often; they leave no failed pods (restartPolicy OnFailure)."""
    restarts = sum(
        container.restart_count
        for pod in active
        if pod.spec.restart_policy == "OnFailure"
        for container in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    )
    return restarts > 0 and restarts >= job.spec.backoff_limit


def deadline_in_s(job: Job, wall_s: float) -> float | None:
    """Return the seconds until the active deadline; None if there is none."""
    limit = job.spec.active_deadline_seconds
    if limit is None or job.spec.suspend or not job.status.start_time:
        return None
    return seconds_of(job.status.start_time) + limit - wall_s


def succeeded_of(job: Job, found: Survey) -> int:
    """Return the number of successes, including those not counted yet."""
    return len(found.completed) if job.spec.is_indexed else job.status.succeeded + found.succeeded_count


def is_complete(job: Job, found: Survey, active: int) -> bool:
    """Whether enough pods have succeeded and none is active any more."""
    succeeded = succeeded_of(job, found)
    enough = succeeded > 0 if job.spec.completions is None else succeeded >= job.spec.completions
    return enough and active == 0


COMPLETED = Outcome(SUCCEEDING, "CompletionsReached", "Reached expected number of succeeded pods")


def status_of(job: Job, pod_survey: Survey, outcome: Outcome | None, *, is_managed: bool, wall_s: float) -> Document:
    """Return the complete new status.

    `is_managed`: whether the job's pods were managed in this reconcile, so that a suspension is carried out.
    """
    now = format_time(wall_s)
    uncounted, moved = _uncounted_pods(pod_survey)
    status: Document = {
        "active": len(pod_survey.active),
        "ready": pod_survey.ready,
        "terminating": pod_survey.terminating,
        "failed": job.status.failed + moved["failed"],
        "uncountedTerminatedPods": uncounted,
        "startTime": job.status.start_time or (None if job.spec.suspend else now),
    }
    if job.spec.is_indexed:
        status["succeeded"] = len(pod_survey.completed)
        status["completedIndexes"] = format_indexes(pod_survey.completed)
        if job.spec.backoff_limit_per_index is not None:
            status["failedIndexes"] = format_indexes(pod_survey.failed_indexes - pod_survey.completed)
    else:
        status["succeeded"] = job.status.succeeded + moved["succeeded"]
    listed = conditions.as_documents(job.status.conditions)
    if outcome is not None:
        _put(listed, outcome.type, "True", outcome.reason, outcome.message, wall_s)
        if _is_settled(job, pod_survey, outcome, uncounted):
            final = _FINAL[outcome.type]
            _put(listed, final, "True", outcome.reason, outcome.message, wall_s)
            if final == "Complete":
                status["completionTime"] = now
    elif is_managed:
        _report_suspension(job, listed, status, wall_s)
    if listed:
        status["conditions"] = listed
    return status


def _put(listed: list[Document], kind: str, status: str, reason: str, message: str, wall_s: float) -> None:
    """Set a condition with the time of its probe, which Jobs still write."""
    if (made := conditions.put(listed, kind, status, reason, message, wall_s)) is not None:
        made["lastProbeTime"] = format_time(wall_s)


def _uncounted_pods(pod_survey: Survey) -> tuple[Document, dict[str, int]]:
    """Return the stored list as it becomes, and how many move from it into the counters."""
    news = {"succeeded": pod_survey.new_succeeded, "failed": pod_survey.new_failed}
    listed: Document = {}
    free = UNCOUNTED_MAX - sum(map(len, pod_survey.uncounted.values()))
    for kind, pods in news.items():
        taken = [pod.metadata.uid for pod in pods[: max(0, free)]]
        free -= len(taken)
        if uids := [*pod_survey.uncounted[kind], *taken]:
            listed[kind] = uids
    return listed, {kind: len(uids) for kind, uids in pod_survey.counted.items()}


def _is_settled(job: Job, found: Survey, outcome: Outcome, uncounted: Document) -> bool:
    """Whether the decision is stored, nothing runs or ends any more, and nothing is left to count."""
    is_reported = condition_status(job.status.conditions, outcome.type) == "True"
    return is_reported and not (found.active or found.terminating or uncounted or found.is_held)


def _report_suspension(job: Job, listed: list[Document], status: Document, wall_s: float) -> None:
    is_reported = condition_status(job.status.conditions, "Suspended") == "True"
    if job.spec.suspend:
        status["startTime"] = None
        if not is_reported:
            _put(listed, "Suspended", "True", "JobSuspended", "Job suspended", wall_s)
    elif is_reported:
        _put(listed, "Suspended", "False", "JobResumed", "Job resumed", wall_s)
        status["startTime"] = format_time(wall_s)


def changes_of_status(job: Job, wanted: Document) -> Document:
    """Return the merge patch that turns the job's status into `wanted`; {} if it is equal."""
    changed = writes.differing(job.status, wanted)
    if (uncounted := changed.get("uncountedTerminatedPods")) is not None:
        # A merge patch keeps what it does not name.
        changed["uncountedTerminatedPods"] = {"succeeded": None, "failed": None, **uncounted}
    return changed


def news_of(job: Job, status: Document) -> list[Condition]:
    """Return the conditions that this status changes to True or False, each for an Event."""
    was = {c.type: c.status for c in job.status.conditions}
    return [
        Condition(type=c["type"], status=c["status"], reason=c["reason"], message=c["message"])
        for c in status.get("conditions", ())
        if was.get(c["type"]) != c["status"]
    ]
