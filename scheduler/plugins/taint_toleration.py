"""Filter and Score: nodes reject pods that do not tolerate their taints; PreferNoSchedule only lowers the score.

Source: scheduler-queue-and-cycles 4.2, 6, 12.2; upstream `pkg/scheduler/framework/plugins/tainttoleration`.
"""

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import NODE, UNSCHEDULED_POD, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.runner import default_normalize
from scheduler.framework.status import SUCCESS, Code, Status, unresolvable
from scheduler.framework.vectorized import Refusal
from scheduler.switches import PluginSwitches
from services.api.kinds.node import Node, Taint
from services.api.kinds.pod import Toleration
from services.api.taints import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, tolerates, untolerated_taint

HARD: Final = (NO_SCHEDULE, NO_EXECUTE)
COMPARISONS: Final = ("Gt", "Lt")
REASON: Final = "node(s) had untolerated taint(s)"


class TaintToleration:
    """The plugin for taints and tolerations.

    With the gate TaintTolerationComparisonOperators, tolerations may use Gt and Lt, too (KEP-5471).
    """

    name = "TaintToleration"

    def __init__(self, args: Args, handle: Handle) -> None:
        self._comparing = handle.switches.of(PluginSwitches).compares_tolerations

    def _tolerations(self, pod: PodInfo) -> tuple[Toleration, ...]:
        tolerations = pod.spec.tolerations
        if self._comparing or not any(each.operator in COMPARISONS for each in tolerations):
            return tolerations
        return tuple(each for each in tolerations if each.operator not in COMPARISONS)

    def row_signature(self, pod: PodInfo) -> Hashable:
        """Return the tolerations."""
        return pod.spec.tolerations

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject the node at the first NoSchedule or NoExecute taint that is not tolerated."""
        if node.node is None or not node.node.spec.taints:
            return SUCCESS
        taint = untolerated_taint(node.node.spec.taints, self._tolerations(pod), HARD)
        return SUCCESS if taint is None else unresolvable(REASON)

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows whose taints are tolerated; each distinct set of taints is tested once."""
        tolerations = self._tolerations(pod)
        return columns.taint_mask(lambda taints: untolerated_taint(taints, tolerations, HARD) is None)

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return one reason, which does not name the taint (since 1.35.4)."""
        return [Refusal(REASON, refused, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)]

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Do nothing: upstream's plugin extends this point; tolerations need no preparation here."""
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the number of PreferNoSchedule taints that are not tolerated."""
        if node.node is None or not node.node.spec.taints:
            return 0
        return self._count(node.node.spec.taints, self._tolerations(pod))

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int:
        """Return the number for every row."""
        tolerations = self._tolerations(pod)
        counts = [self._count(taints, tolerations) for taints in columns.taint_sets]
        return np.array(counts, np.float64)[columns.taint_set] if any(counts) else 0

    def normalize(self, state: CycleState, raw: Scores | int, feasible: Mask) -> Scores | int:
        """Scale the fewest taints to 100."""
        return default_normalize(raw, feasible, reverse=True)

    def _count(self, taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> int:
        soft = [t for t in tolerations if t.effect in ("", PREFER_NO_SCHEDULE)]
        return sum(
            taint.effect == PREFER_NO_SCHEDULE and not any(tolerates(t, taint) for t in soft) for taint in taints
        )

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: a node comes or loses taints, or the pod gets a toleration."""
        return (
            Registration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_TAINT), self._tolerable_now),
            Registration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_TOLERATION)),
        )

    def _tolerable_now(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        tolerations = self._tolerations(pod)
        was, is_tolerable = (
            each is not None and untolerated_taint(each.spec.taints, tolerations, HARD) is None for each in (old, new)
        )
        return queue_if(is_tolerable and not was)


PLUGIN = PluginEntry("TaintToleration", TaintToleration)
