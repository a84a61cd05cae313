"""Create a Job at each time of a CronJob's schedule, and keep only the last few finished Jobs.

A job's name is the CronJob's name and the scheduled time in minutes since the epoch, so a time never has more
than one job. Of several missed times only the last one gets a job, and only within the deadline.
Source: controllers 17; upstream `pkg/controller/cronjob/cronjob_controllerv2.go`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from services.api import cron
from services.api.kinds.cronjob import SCHEDULED_TIMESTAMP, CronJob
from services.api.kinds.job import Job
from services.api.meta import Document, Key, ObjectReference
from services.api.switches import Switches
from services.api.times import format_mail_time, format_time, format_time_in, zone_of
from services.controllers.cronjob.starts import MISSED_MAX, missed_starts, next_in_s
from services.controllers.shared_pods import seconds_of
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Create, Delete, Query, RecordEvent, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch, refusal_message
from services.reconcile.writes import controller_reference
from services.telemetry.metrics import Histogram, Metrics, histogram

RESOURCE, JOBS = "cronjobs.batch", "jobs.batch"
TOO_MANY = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
TZ_USED = (
    "CRON_TZ or TZ used in schedule {} is not officially supported, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)
SKEW_BUCKETS_S = tuple(2.0**n for n in range(10))
STILL_ACTIVE = "Not starting job because prior execution is running and concurrency policy is Forbid"


@dataclass
class _Memory:
    """Memory of one CronJob between two reconciles. `asked_for`: names of jobs whose creation was sent."""

    asked_for: set[str] = field(default_factory=set)
    refusal: str = ""
    is_rescheduled: bool = False
    """Whether its schedule has changed: it waits for the next time, and makes up for none that has passed."""


@dataclass
class _Look:
    """Result of one reconcile. Events come last: they are recorded once the writes have succeeded."""

    active: list[ObjectReference]
    scheduled: str | None
    succeeded: str | None
    actions: list[Action] = field(default_factory=list)
    events: list[RecordEvent] = field(default_factory=list)
    refresh: list[Query] = field(default_factory=list)

    def leave(self, uid: str) -> bool:
        """Take a job out of the list of those that run; return whether it was in it."""
        left = [each for each in self.active if each.uid != uid]
        was_listed, self.active = len(left) != len(self.active), left
        return was_listed


class CronJobs:
    """The controller's memory and its reconcile function."""

    def __init__(self) -> None:
        self._memories: dict[Key, _Memory] = {}
        self.creation_skew_s = Histogram(SKEW_BUCKETS_S)

    def on_changed(self, change: Change[CronJob], listers: Listers) -> Iterable[Key]:
        """Note a changed schedule; forget a deleted CronJob."""
        old, new = change.old, change.new
        key = change.object.metadata.key
        if new is None or (old is not None and old.metadata.uid != new.metadata.uid):
            self._memories.pop(key, None)
        elif old is not None:
            is_same = (old.spec.schedule, old.spec.time_zone) == (new.spec.schedule, new.spec.time_zone)
            self._of(key).is_rescheduled |= not is_same
        return (key,)

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Undo the expectation of a failed call; a job that already exists was created before."""
        if isinstance(action, Create):
            memory = self._of(key)
            memory.asked_for.discard(action.document["metadata"]["name"])
            if not reason.startswith(("AlreadyExists", "not performed")) and "is being terminated" not in reason:
                memory.refusal = refusal_message(reason)

    def _of(self, key: Key) -> _Memory:
        return self._memories.setdefault(key, _Memory())

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Update the list of running jobs, delete old ones, and start the one that is due."""
        cron_job = listers.of(CronJob).get(key)
        if cron_job is None:
            return NOTHING
        memory, status = self._of(key), cron_job.status
        jobs = [job for job in listers.of(Job).owned_by(cron_job.metadata.uid) if _is_of(job, cron_job)]
        look = _Look(list(status.active), status.last_schedule_time, status.last_successful_time)
        if memory.refusal:
            look.events.append(event(cron_job, "FailedCreate", f"Error creating job: {memory.refusal}", warns=True))
            memory.refusal = ""
        _clean_up(cron_job, jobs, look)
        self._survey(cron_job, jobs, memory, look, moment)
        if look.refresh:
            return Result(refresh=tuple(look.refresh))
        again_s = None
        if cron_job.metadata.deletion_timestamp is None:
            again_s = self._start(cron_job, memory, look, listers, moment.wall_s)
        wanted: Document = {
            "active": [_document(each) for each in look.active] or None,
            "lastScheduleTime": look.scheduled,
            "lastSuccessfulTime": look.succeeded,
        }
        before = [each.uid for each in status.active]
        is_same = before == [each.uid for each in look.active]
        is_same &= (look.scheduled, look.succeeded) == (status.last_schedule_time, status.last_successful_time)
        if not is_same:
            look.actions.append(writes.status(RESOURCE, cron_job, wanted, on_version=True))
        return Result((*look.actions, *look.events), again_s)

    def _survey(self, cron_job: CronJob, jobs: list[Job], memory: _Memory, look: _Look, moment: Moment) -> None:
        """Note which jobs run, which have finished, and which are missing."""
        for job in jobs:
            # A controller that died after the creation of a job has not written down for which time it was.
            scheduled_s = seconds_of(job.metadata.annotations.get(SCHEDULED_TIMESTAMP))
            if scheduled_s > seconds_of(look.scheduled):
                look.scheduled = format_time(scheduled_s)
            listed = any(each.uid == job.metadata.uid for each in look.active)
            if not job.is_finished and not listed:
                self._record_job(cron_job, job, memory, look)
            elif job.is_finished:
                _record_finished(cron_job, job, look)
        uids = {job.metadata.uid for job in jobs}
        for reference in [each for each in look.active if each.uid not in uids]:
            query = Query(Job, Key(reference.namespace, reference.name))
            if query not in moment.live:
                look.refresh.append(query)
            elif moment.live[query] is None:
                look.events.append(event(cron_job, "MissingJob", f"Active job went missing: {reference.name}"))
                look.leave(reference.uid)

    def _record_job(self, cron_job: CronJob, job: Job, memory: _Memory, look: _Look) -> None:
        """List a job that was started by schedule; report one that was not, or whose start was forgotten."""
        name = job.metadata.name
        if name in memory.asked_for:
            memory.asked_for.discard(name)
            scheduled = job.metadata.annotations.get(SCHEDULED_TIMESTAMP)
            self.creation_skew_s.observe(seconds_of(job.metadata.creation_timestamp) - seconds_of(scheduled))
            look.events.append(event(cron_job, "SuccessfulCreate", f"Created job {name}"))
        elif SCHEDULED_TIMESTAMP not in job.metadata.annotations:
            text = f"Saw a job that the controller did not create or forgot: {name}"
            look.events.append(event(cron_job, "UnexpectedJob", text, warns=True))
            return
        if job.metadata.deletion_timestamp is None:
            look.active.append(_reference(job))

    def _start(self, cron_job: CronJob, memory: _Memory, look: _Look, listers: Listers, wall_s: float) -> float | None:
        """Ask for the job that is due, if it may be started; return in how many seconds to look again."""
        spec = cron_job.spec
        try:
            zone = zone_of(spec.time_zone or "")
        except ValueError as error:
            text = f'invalid timeZone: "{spec.time_zone}": {error}'
            look.events.append(event(cron_job, "UnknownTimeZone", text, warns=True))
            return None
        if spec.suspend:
            return None
        if "TZ" in spec.schedule:
            text = TZ_USED.format(f'"{spec.schedule}"')
            look.events.append(event(cron_job, "UnsupportedSchedule", text, warns=True))
        try:
            schedule = cron.parse(spec.schedule, spec.time_zone or "")
        except ValueError as error:
            text = f'unparseable schedule: "{spec.schedule}" : {error}'
            look.events.append(event(cron_job, "UnparseableSchedule", text, warns=True))
            return None
        again_s = next_in_s(cron_job, schedule, wall_s)
        if memory.is_rescheduled:
            memory.is_rescheduled = False
            return again_s
        try:
            starts = missed_starts(cron_job, schedule, wall_s, within_deadline=True)
        except ValueError as error:
            text = f"invalid schedule: {spec.schedule} : {error}"
            look.events.append(event(cron_job, "InvalidSchedule", text, warns=True))
            return None
        due_s = starts.latest_s
        if due_s is None:
            return again_s
        if starts.number > MISSED_MAX:
            look.events.append(event(cron_job, "TooManyMissedTimes", TOO_MANY, warns=True))
        if spec.starting_deadline_seconds is not None and due_s + spec.starting_deadline_seconds < wall_s:
            text = f"Missed scheduled time to start a job: {format_mail_time(due_s)}"
            look.events.append(event(cron_job, "MissSchedule", text, warns=True))
            return again_s
        name = f"{cron_job.metadata.name}-{int(due_s) // 60}"
        is_processed = seconds_of(look.scheduled) == due_s or any(each.name == name for each in look.active)
        if is_processed or not self._may_start(cron_job, look):
            return again_s
        document = listers.of(CronJob).document(cron_job.metadata.key)
        if document is not None:
            memory.asked_for.add(name)
            look.actions.append(Create(JOBS, _job_of(cron_job, document, name, format_time_in(due_s, zone))))
            look.scheduled = format_time(due_s)
        return again_s

    @staticmethod
    def _may_start(cron_job: CronJob, look: _Look) -> bool:
        """Whether what still runs lets another job start; where it is to be replaced, ask for its deletion."""
        match cron_job.spec.concurrency_policy:
            case "Forbid" if look.active:
                look.events.append(event(cron_job, "JobAlreadyActive", STILL_ACTIVE))
                return False
            case "Replace":
                for reference in list(look.active):
                    _delete(cron_job, Key(reference.namespace, reference.name), reference.uid, look)
        return True


def _is_of(job: Job, cron_job: CronJob) -> bool:
    owner = job.metadata.controller
    return owner is not None and owner.uid == cron_job.metadata.uid


def _record_finished(cron_job: CronJob, job: Job, look: _Look) -> None:
    """Take a job that has finished out of the list; remember when the last one succeeded."""
    status = job.status
    ends = [c.type for c in status.conditions if c.type in ("Complete", "Failed") and c.status == "True"]
    if look.leave(job.metadata.uid):
        text = f"Saw completed job: {job.metadata.name}, condition: {ends[0]}"
        look.events.append(event(cron_job, "SawCompletedJob", text))
    if ends[0] == "Complete" and seconds_of(status.completion_time) > seconds_of(look.succeeded):
        look.succeeded = status.completion_time


def _clean_up(cron_job: CronJob, jobs: list[Job], look: _Look) -> None:
    """Ask for the deletion of the oldest jobs that have finished, but for so many as the limits keep."""
    for end, most in (
        ("Complete", cron_job.spec.successful_jobs_history_limit),
        ("Failed", cron_job.spec.failed_jobs_history_limit),
    ):
        ended = [j for j in jobs if any((c.type, c.status) == (end, "True") for c in j.status.conditions)]
        if most is None or len(ended) <= most:
            continue
        # Those that never started are the last.
        ended.sort(key=lambda j: (j.status.start_time is None, seconds_of(j.status.start_time), j.metadata.name))
        for job in ended[: len(ended) - most]:
            if job.metadata.deletion_timestamp is None:
                _delete(cron_job, job.metadata.key, job.metadata.uid, look)


def _delete(cron_job: CronJob, key: Key, uid: str, look: _Look) -> None:
    look.actions.append(Delete(JOBS, key, uid=uid, propagation="Background"))
    look.events.append(event(cron_job, "SuccessfulDelete", f"Deleted job {key.name}"))
    look.leave(uid)


def _job_of(cron_job: CronJob, document: Document, name: str, scheduled: str) -> Document:
    """Return the job to create, from the template in the stored document, unknown fields and all."""
    template = document.get("spec", {}).get("jobTemplate") or {}
    given = template.get("metadata") or {}
    metadata: Document = {
        "name": name,
        "namespace": cron_job.metadata.namespace,
        **({"labels": given["labels"]} if given.get("labels") else {}),
        "annotations": {**(given.get("annotations") or {}), SCHEDULED_TIMESTAMP: scheduled},
        "ownerReferences": [controller_reference(cron_job)],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template.get("spec") or {}}


def _reference(job: Job) -> ObjectReference:
    meta = job.metadata
    return ObjectReference(api_version="batch/v1", kind="Job", namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _document(reference: ObjectReference) -> Document:
    return {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
    }


METRICS: Final[Metrics[CronJobs]] = Metrics(
    histogram(
        "cronjob_controller_job_creation_skew_duration_seconds",
        "Time between when a cronjob is scheduled to be run, and when the corresponding job is created.",
        lambda controller: controller.creation_skew_s,
    )
)


def _build(switches: Switches) -> Controller:
    memory = CronJobs()
    watches = (Watch(CronJob, memory.on_changed),)
    return Controller(
        "cronjob",
        CronJob,
        memory.reconcile,
        owns=(Job,),
        watches=watches,
        failed=memory.on_failed,
        workers=5,
        metrics=lambda: METRICS.of(memory),
    )


CONTROLLER = Registration("cronjob", _build, start_order=22)
