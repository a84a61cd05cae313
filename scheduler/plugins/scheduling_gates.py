"""PreEnqueue: a pod with scheduling gates is not considered until the last one is removed (KEP-3521)."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.framework.entry import PluginEntry
from scheduler.framework.events import UNSCHEDULED_POD, Action, ClusterEvent, Registration
from scheduler.framework.interface import SUCCESS, Status, unresolvable
from scheduler.node_info import PodInfo


class SchedulingGates:
    """Gates pods by name of their gates."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Say no while any gate is left."""
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        if not gates:
            return SUCCESS
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]")

    def events_to_register(self) -> Sequence[Registration]:
        """Only the pod's own gates can change the answer."""
        return (Registration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_GATES_ELIMINATED)),)


PLUGIN = PluginEntry("SchedulingGates", lambda args, handle: SchedulingGates())
