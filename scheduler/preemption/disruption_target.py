"""The mark that a victim gets before it is deleted: the condition DisruptionTarget (KEP-3329)."""

from __future__ import annotations

from scheduler.preemption.eligibility import BY_SCHEDULER, DISRUPTION_TARGET
from services.api.kinds.pod import Pod
from services.api.meta import Document, find_condition
from services.api.times import format_time


def disruption_patch(victim: Pod, message: str, wall_s: float) -> Document | None:
    """Return a strategic patch of `status`, or None when the victim says all that already."""
    generation = victim.metadata.generation
    old = find_condition(victim.status.conditions, DISRUPTION_TARGET)
    if old is not None and (old.status, old.reason, old.message, old.observed_generation) == (
        "True",
        BY_SCHEDULER,
        message,
        generation,
    ):
        return None
    since = old.last_transition_time if old is not None and old.status == "True" else None
    condition: Document = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": BY_SCHEDULER,
        "message": message,
        "lastTransitionTime": since or format_time(wall_s),
    }
    if generation:
        condition["observedGeneration"] = generation
    return {"status": {"conditions": [condition]}}
