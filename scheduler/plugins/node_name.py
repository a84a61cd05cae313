"""Filter: a pod that names its node fits no other.
Source: scheduler-queue-and-cycles 4.2; upstream `pkg/scheduler/framework/plugins/nodename`."""

from collections.abc import Hashable, Sequence

from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import NODE, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.status import SUCCESS, Code, Status, unresolvable
from scheduler.framework.vectorized import Refusal
from services.api.kinds.node import Node

REASON = "node(s) didn't match the requested node name"


class NodeName:
    """The plugin: it compares `spec.nodeName`."""

    name = "NodeName"

    def row_signature(self, pod: PodInfo) -> Hashable:
        """Return the name, the only relevant field."""
        return pod.spec.node_name

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject every other node."""
        return SUCCESS if pod.spec.node_name in ("", node.name) else unresolvable(REASON)

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the named node's row."""
        return columns.mask_of((pod.spec.node_name,)) if pod.spec.node_name else None

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the one reason for all refused rows."""
        return [Refusal(REASON, refused, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)]

    def events_to_register(self) -> Sequence[Registration]:
        """Return the event: the named node comes."""
        return (Registration(ClusterEvent(NODE, Action.ADD), _is_the_node),)


def _is_the_node(pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
    return queue_if(new is not None and new.metadata.name == pod.spec.node_name)


PLUGIN = PluginEntry("NodeName", lambda args, handle: NodeName())
