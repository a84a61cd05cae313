"""One node, changed in thought: pods taken off and put back, and the filters asked after each change."""

from collections.abc import Sequence

from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.framework.plugin import CycleState
from scheduler.framework.runner import Runner
from scheduler.framework.status import Status
from scheduler.preemption.units import Unit, Units


class NodeWhatIf:
    """Works on copies of node and cycle state. `rivals`: pods of at least the pod's priority nominated there.

    A unit may have pods on other nodes; those nodes stay as they are, only what plugins keep in the state follows
    (preemption 7.2).
    """

    def __init__(
        self, filters: Runner, state: CycleState, pod: PodInfo, node: NodeInfo, rivals: Sequence[PodInfo], units: Units
    ) -> None:
        self._filters = filters
        self._state = state if filters.has_only_row_filters(state) else state.clone()
        self._pod = pod
        self._node = node.with_pods([])
        self._rivals = rivals
        self._units = units

    def remove(self, unit: Unit) -> None:
        """Remove the unit from the dry run."""
        for pod in unit.pods:
            if self._node.remove(pod.uid) is not None:
                self._filters.remove_pod(self._state, self._pod, pod, self._node)
            elif (elsewhere := self._units.node_of(pod)) is not None:
                self._filters.remove_pod(self._state, self._pod, pod, elsewhere)

    def add(self, unit: Unit) -> None:
        """Put a removed unit back where it ran."""
        for pod in unit.pods:
            elsewhere = self._units.node_of(pod)
            if elsewhere is None or elsewhere.name == self._node.name:
                self._node.add(pod)
                elsewhere = self._node
            self._filters.add_pod(self._state, self._pod, pod, elsewhere)

    def fits(self) -> Status:
        """Return what the filters say now, beside the nominated pods and without them."""
        return self._filters.filter_beside(self._state, self._pod, self._node, self._rivals)
