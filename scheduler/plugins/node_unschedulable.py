"""Filter: a cordoned node takes only pods that tolerate being cordoned.
Source: scheduler-queue-and-cycles 4.2; upstream `pkg/scheduler/framework/plugins/nodeunschedulable`."""

from collections.abc import Hashable, Sequence

from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import NODE, UNSCHEDULED_POD, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.status import SUCCESS, Code, Status, unresolvable
from scheduler.framework.vectorized import Refusal
from services.api.kinds.node import Node, Taint
from services.api.taints import NO_SCHEDULE, tolerates

REASON = "node(s) were unschedulable"
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


def _tolerates_cordon(pod: PodInfo) -> bool:
    return any(tolerates(t, CORDON) for t in pod.spec.tolerations)


class NodeUnschedulable:
    """The plugin: it reads `spec.unschedulable`."""

    name = "NodeUnschedulable"

    def row_signature(self, pod: PodInfo) -> Hashable:
        """Return whether the pod tolerates a cordoned node."""
        return _tolerates_cordon(pod)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject cordoned nodes."""
        if node.node is None or not node.node.spec.unschedulable or _tolerates_cordon(pod):
            return SUCCESS
        return unresolvable(REASON)

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows that are not cordoned."""
        if not columns.unschedulable.any() or _tolerates_cordon(pod):
            return None
        return ~columns.unschedulable

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the one reason for all refused rows."""
        return [Refusal(REASON, refused, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)]

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: a node comes or is uncordoned, or the pod gets a toleration."""
        return (
            Registration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_TAINT), _is_schedulable_now),
            Registration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION)),
        )


def _is_schedulable_now(pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
    return queue_if(new is not None and not new.spec.unschedulable)


PLUGIN = PluginEntry("NodeUnschedulable", lambda args, handle: NodeUnschedulable())
