"""CronJob: create a Job whenever a schedule says so (batch/v1)."""

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectReference, ObjectView, Resource, View
from services.api.printing import pod_template_columns

SCHEDULED_TIMESTAMP = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""On each job: the time of the schedule that it was created for."""


class CronJobSpec(View, frozen=True):
    """`job_template` stays in the document; the controller copies it from there, unknown fields and all."""

    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class CronJobStatus(View, frozen=True):
    """The jobs that run now, and when the last one was due."""

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
