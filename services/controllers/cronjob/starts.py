"""Start times of a CronJob: the scheduled time to start a job for, and when to look again. Pure.

Source: upstream `pkg/controller/cronjob/utils.go`.
"""

from typing import NamedTuple

from services.api.cron import Schedule
from services.api.kinds.cronjob import CronJob
from services.controllers.shared_pods import seconds_of

MISSED_MAX = 100
"""Number of missed times above which a warning is reported: clocks may be wrong, or a deadline is missing."""
DELTA_S = 0.1
"""Delay in seconds of the next look after a scheduled time (upstream nextScheduleDelta)."""


class Missed(NamedTuple):
    """Scheduled times missed since `earliest_s`. `latest_s`: the last of them; `number`: their approximate count."""

    earliest_s: float
    latest_s: float | None = None
    number: int = 0


def missed_starts(cron_job: CronJob, schedule: Schedule, now_s: float, *, within_deadline: bool) -> Missed:
    """Return the scheduled times since the last start, or since the creation of the CronJob.

    `within_deadline`: only times that may still start a job. Their number is estimated from the first interval, not
    counted. Raises: ValueError for a schedule that never comes.
    """
    earliest_s = seconds_of(cron_job.status.last_schedule_time or cron_job.metadata.creation_timestamp)
    deadline_s = cron_job.spec.starting_deadline_seconds
    if within_deadline and deadline_s is not None:
        earliest_s = max(earliest_s, now_s - deadline_s)
    first_s = schedule.next_after(earliest_s)
    second_s = None if first_s is None else schedule.next_after(first_s)
    if first_s is None or second_s is None:
        # Upstream's library gives the same impossible time twice.
        raise ValueError("time difference between two schedules is less than 1 second")
    if now_s < first_s:
        return Missed(earliest_s)
    if now_s < second_s:
        return Missed(earliest_s, first_s)
    interval_s = int(second_s - first_s)
    number = int(now_s - first_s) // interval_s + 1
    # One interval back from the last time there would be, for schedules that are not regular.
    latest_s, at_s = None, schedule.next_after(first_s + (number - 2) * interval_s)
    while at_s is not None and at_s <= now_s:
        latest_s, at_s = at_s, schedule.next_after(at_s)
    return Missed(earliest_s, latest_s, number)


def next_in_s(cron_job: CronJob, schedule: Schedule, now_s: float) -> float | None:
    """Return the seconds until the next look; None when the schedule never comes."""
    try:
        starts = missed_starts(cron_job, schedule, now_s, within_deadline=False)
        since_s = starts.latest_s if starts.latest_s is not None else now_s if starts.number else starts.earliest_s
    except ValueError:
        since_s = now_s
    at_s = schedule.next_after(since_s)
    return None if at_s is None else max(0.0, at_s - now_s) + DELTA_S
