"""QueueSort: higher priority first, then the longer wait.

Source: scheduler-queue-and-cycles 2; upstream `pkg/scheduler/framework/plugins/queuesort`.
"""

from scheduler.cache.node_info import PodInfo
from scheduler.entry import PluginEntry


class PrioritySort:
    """The order of the active queue; `timestamp` is when the pod (re)entered it."""

    name = "PrioritySort"

    def sort_key(self, pod: PodInfo, timestamp: float) -> tuple[float, ...]:
        """Return the sort key; smaller comes first."""
        return (-pod.priority, timestamp)


PLUGIN = PluginEntry("PrioritySort", lambda args, handle: PrioritySort())
