"""PreEnqueue: a pod with scheduling gates is not considered until the last one is removed (KEP-3521)."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.cache.node_info import PodInfo
from scheduler.dispatcher.calls import GATED_MESSAGE
from scheduler.entry import Args, PluginEntry
from scheduler.framework.events import UNSCHEDULED_POD, Action, ClusterEvent, Registration
from scheduler.framework.status import SUCCESS, Status, unresolvable
from scheduler.handle import Handle


class SchedulingGates:
    """Gates pods by name of their gates.

    `says_as_api_server`: it rejects in the API server's words, which the pod's status has from its creation, so that
    reporting it costs nothing (kep-5501 5).
    """

    name = "SchedulingGates"

    def __init__(self, *, says_as_api_server: bool = False) -> None:
        self._says_as_api_server = says_as_api_server

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Say no while any gate is left."""
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        if not gates:
            return SUCCESS
        if self._says_as_api_server:
            return unresolvable(GATED_MESSAGE)
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]")

    def gate_message(self, pod: PodInfo, status: Status) -> str:
        """Nothing: the API server has said it."""
        return ""

    def events_to_register(self) -> Sequence[Registration]:
        """Only the pod's own gates can change the answer."""
        return (Registration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_GATES_ELIMINATED)),)


def _make(args: Args, handle: Handle) -> SchedulingGates:
    switches = handle.switches
    is_unified = switches.flag("SchedulerPreEnqueuePodStatus")
    is_unified = is_unified and switches.choice("preenqueue_report.gates_message") == "unified"
    return SchedulingGates(says_as_api_server=is_unified)


PLUGIN = PluginEntry("SchedulingGates", _make)
