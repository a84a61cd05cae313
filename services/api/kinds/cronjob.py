"""CronJob: creates a Job at each time of a schedule (batch/v1)."""

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectReference, ObjectView, Resource, View
from services.api.printing import pod_template_columns

SCHEDULED_TIMESTAMP = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""Annotation of each job: the scheduled time that it was created for."""


class CronJobSpec(View, frozen=True):
    """Spec of a CronJob. `job_template` stays in the document; the controller copies it with unknown fields."""

    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class CronJobStatus(View, frozen=True):
    """The running jobs, and the last scheduled time."""

    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(ObjectView, frozen=True):
    """A CronJob as components see it."""

    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


def _is_suspended(document: Document, now: float) -> str:
    suspend = document.get("spec", {}).get("suspend")
    return "<unset>" if suspend is None else str(bool(suspend))


RESOURCE = Resource(
    CronJob,
    "batch",
    short_names=("cj",),
    categories=("all",),
    subresources=("status",),
    has_generation=True,
    columns=(
        NAME,
        Column("Schedule", "spec.schedule"),
        Column("Timezone", "spec.timeZone", default=NONE),
        Column("Suspend", _is_suspended, "boolean"),
        Column("Active", "status.active", "integer", default=0, show=len),
        Column("Last Schedule", "status.lastScheduleTime", default=NONE, is_age=True),
        AGE,
        *pod_template_columns("spec.jobTemplate.spec"),
    ),
)
