"""Filter and Score, for one node at a time: keep pods off nodes while, and shortly before, they are maintained.

A node says when in an annotation, daily and in UTC: `example.com/maintenance: 22:00-02:30`.
"""

from scheduler.entry import Args, PluginEntry
from scheduler.framework.events import NODE, Action, ClusterEvent, Registration
from scheduler.framework.status import SUCCESS, unresolvable

DAY_MIN = 24 * 60


class MaintenanceWindowArgs(Args, frozen=True):
    """`annotation`: its name; `notice_minutes`: how long before a window a node begins to lose points."""

    annotation: str = "example.com/maintenance"
    notice_minutes: int = 240


class MaintenanceWindow:
    name = "MaintenanceWindow"

    def __init__(self, args, handle):
        self.args, self.wall = args, handle.wall

    def filter(self, state, pod, node):
        begins_in, length = self.window(node)
        # Evicting pods does not end a maintenance: preemption cannot help.
        return unresolvable("node(s) were under maintenance") if begins_in + length > DAY_MIN else SUCCESS

    def score(self, state, pod, node):
        begins_in, _ = self.window(node)
        return min(100, 100 * begins_in // self.args.notice_minutes)

    def window(self, node):
        """Return in how many minutes the next window begins and how long it is; within one that is tomorrow's."""
        begin, _, end = node.node.metadata.annotations.get(self.args.annotation, "").partition("-")
        if not end:
            return DAY_MIN, 0
        begin_min, end_min = (60 * int(hours) + int(minutes) for hours, minutes in (t.split(":") for t in (begin, end)))
        return (begin_min - int(self.wall() // 60)) % DAY_MIN or DAY_MIN, (end_min - begin_min) % DAY_MIN

    def events_to_register(self):
        return [Registration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_ANNOTATION))]


PLUGIN = PluginEntry("MaintenanceWindow", MaintenanceWindow, args=MaintenanceWindowArgs)
