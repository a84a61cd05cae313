"""What the scheduler says in a pod's PodScheduled condition: its reasons, and the longest note of an event."""

from __future__ import annotations

from typing import Final

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
