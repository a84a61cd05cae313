"""What the scheduler writes into a group's status (preemption 6.2)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from scheduler.dispatcher.conditions import SCHEDULER_ERROR, UNSCHEDULABLE
from scheduler.preemption.eligibility import BY_SCHEDULER
from services.api.kinds.podgroup import DISRUPTION_TARGET, INITIALLY_SCHEDULED, PodGroup
from services.api.meta import Document, find_condition
from services.api.times import format_time

SCHEDULED: Final = "Scheduled"


class Outcome(StrEnum):
    """What became of the group; the values are the results that metrics count."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    WAITING_ON_PREEMPTION = "waiting_on_preemption"
    ERROR = "error"


def scheduling_condition(group: PodGroup, outcome: Outcome, message: str, wall_s: float) -> Document | None:
    """Return the group's condition as it should read, or None when nothing is to be said: True is terminal."""
    match outcome:
        case Outcome.SCHEDULED:
            status, reason = "True", SCHEDULED
        case Outcome.ERROR:
            status, reason = "False", SCHEDULER_ERROR
        case _:
            status, reason = "False", UNSCHEDULABLE
    if group.is_scheduled and status != "True":
        return None
    return _condition(group, INITIALLY_SCHEDULED, status, reason, message, wall_s)


def disruption_condition(group: PodGroup, message: str, wall_s: float) -> Document | None:
    """Return the condition that says the group is being evicted, or None when it says so already."""
    return _condition(group, DISRUPTION_TARGET, "True", BY_SCHEDULER, message, wall_s)


def _condition(group: PodGroup, kind: str, status: str, reason: str, message: str, wall_s: float) -> Document | None:
    generation = group.metadata.generation
    old = find_condition(group.status.conditions, kind)
    if old is not None and (old.status, old.reason, old.message, old.observed_generation) == (
        status,
        reason,
        message,
        generation,
    ):
        return None
    since = old.last_transition_time if old is not None and old.status == status else None
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": since or format_time(wall_s),
    }
