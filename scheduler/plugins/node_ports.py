"""Filter: two pods cannot hold the same host port of a node.
Source: scheduler-queue-and-cycles 4.2, 12.7; upstream `pkg/scheduler/framework/plugins/nodeports`."""

from collections.abc import Hashable, Sequence

from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_info import ANY_IP, HostPort, NodeInfo, PodInfo, host_ports
from scheduler.entry import PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import ASSIGNED_POD, NODE, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.status import SKIP, SUCCESS, Status, unschedulable
from scheduler.framework.vectorized import Refusal
from services.api.kinds.pod import Pod

REASON = "node(s) didn't have free ports for the requested pod ports"


def _conflict(a: HostPort, b: HostPort) -> bool:
    return a[1:] == b[1:] and (a[0] == b[0] or ANY_IP in (a[0], b[0]))


class NodePorts:
    """The plugin: it compares (IP, protocol, port); the wildcard address conflicts with every address."""

    name = "NodePorts"

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> Status:
        """Skip pods without host ports."""
        return SUCCESS if pod.ports else SKIP

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the ports, the only relevant field."""
        return pod.ports

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject the node when a requested port is in use."""
        if any(_conflict(want, used) for want in pod.ports for used in node.used_ports):
            return unschedulable(REASON)
        return SUCCESS

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows without a port conflict."""
        taken = columns.port_conflicts(pod.ports)
        return None if taken is None else ~taken

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the one reason for all refused rows."""
        return [Refusal(REASON, refused)]

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: a pod with the port goes, or a node comes."""
        return (
            Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE), _frees_a_port),
            Registration(ClusterEvent(NODE, Action.ADD)),
        )


def _frees_a_port(pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
    freed = host_ports(old) if old is not None else ()
    return queue_if(any(_conflict(want, had) for want in pod.ports for had in freed))


PLUGIN = PluginEntry("NodePorts", lambda args, handle: NodePorts())
