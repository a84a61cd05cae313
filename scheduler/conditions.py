"""The status patch of a failed attempt: PodScheduled=False, and the nomination. Written only when it says news."""

from __future__ import annotations

from typing import Final

from services.api.kinds.pod import Pod
from services.api.meta import Document, find_condition
from services.api.times import format_time

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
NOTE_MAX: Final = 1024
"""Characters of an event's note."""


def failure_patch(pod: Pod, reason: str, message: str, nominated_node: str | None, wall_s: float) -> Document | None:
    """Return a strategic patch of `status`, or None when the pod says all that already.

    `nominated_node`: None leaves the nomination, "" clears it.
    """
    status: Document = {}
    old = find_condition(pod.status.conditions, "PodScheduled")
    if old is None or (old.status, old.reason, old.message) != ("False", reason, message):
        since = old.last_transition_time if old is not None and old.status == "False" else None
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastTransitionTime": since or format_time(wall_s),
            }
        ]
    if nominated_node is not None and nominated_node != pod.status.nominated_node_name:
        status["nominatedNodeName"] = nominated_node or None
    return {"status": status} if status else None
