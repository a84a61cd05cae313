"""What the scheduler says in a pod's PodScheduled condition: its reasons, and the longest note of an event."""

from __future__ import annotations

from typing import Final

from services.api.kinds.pod import Pod
from services.api.meta import Document, find_condition
from services.api.times import format_time

POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
"""Nodes were evaluated and none fits."""
SCHEDULER_ERROR: Final = "SchedulerError"
"""The attempt itself failed."""
NOT_READY: Final = "NotReadyForScheduling"
"""PreEnqueue said no: no attempt was made, no node was looked at (KEP-5501)."""
SCHEDULING_GATED: Final = "SchedulingGated"
"""Written by the API server at creation (KEP-3521)."""
GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"
"""The API server's text for it; KEP-5501 has the plugin say the same."""
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
