"""PreEnqueue: a pod with scheduling gates is not considered until the last one is removed (KEP-3521)."""

from collections.abc import Sequence

from scheduler.cache.node_info import PodInfo
from scheduler.dispatcher.calls import GATED_MESSAGE
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.events import UNSCHEDULED_POD, Action, ClusterEvent, Registration
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.switches import PluginSwitches, ReportSwitches


class SchedulingGates:
    """The plugin: it rejects pods that have scheduling gates.

    With `preenqueue_report.gates_message` unified it rejects in the API server's words, which the pod's status
    has from its creation, so that reporting it costs nothing (kep-5501 5).
    """

    name = "SchedulingGates"

    def __init__(self, args: Args, handle: Handle) -> None:
        is_unified = handle.switches.of(PluginSwitches).gates_message == "unified"
        self._says_as_api_server = is_unified and handle.switches.of(ReportSwitches).is_on

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject the pod while any gate is left."""
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        if not gates:
            return SUCCESS
        if self._says_as_api_server:
            return unresolvable(GATED_MESSAGE)
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]")

    def gate_message(self, pod: PodInfo, status: Status) -> str:
        """Return "": the API server has written the message already."""
        return ""

    def events_to_register(self) -> Sequence[Registration]:
        """Return the event: the pod's own gates change; no other event helps."""
        return (Registration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_GATES_ELIMINATED)),)


PLUGIN = PluginEntry("SchedulingGates", SchedulingGates)
