"""Filter and Score: keep an unbound pod away from the node that unbound it, for a while.

The plugin is ours. The exclusions themselves (pod, node, end) live in `scheduler.queue.exclusions`. Source:
kubelet-unbinding 7.3.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import ASSIGNED_POD, NODE, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, unresolvable
from scheduler.framework.vectorized import Refusal
from scheduler.switches import PluginSwitches
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod

SOFT: Final = "NodeRejection.soft"


class NodeRejection:
    """The plugin, by `scheduler.exclusion`: hard rejects, soft only ranks lowest, none does nothing.

    The value adaptive rejects while any other node would fit.
    """

    name = "NodeRejection"

    def __init__(self, args: Args, handle: Handle) -> None:
        self._exclusions = handle.exclusions
        self._mode = handle.switches.of(PluginSwitches).exclusion

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> Status:
        """Skip pods that were never unbound."""
        return SKIP if self._mode in ("none", "soft") or not self._excluded_nodes(pod) else SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject an excluded node; adaptive is decided over all nodes, in `filter_all`."""
        text = self._excluded_nodes(pod).get(node.name) if self._mode == "hard" else None
        return SUCCESS if text is None else unresolvable(text)

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return all rows except the excluded ones; with adaptive, all rows if no other is left."""
        others = ~columns.mask_of(tuple(self._excluded_nodes(pod)))
        if self._mode == "adaptive" and state.alive is not None and not (state.alive & others).any():
            return None
        return None if self._mode in ("soft", "none") else others

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return one reason for each cause that the nodes gave."""
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        excluded = self._excluded_nodes(pod).items()
        return [Refusal(text, refused & columns.mask_of((node,)), code) for node, text in excluded]

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Skip unless excluded nodes may have passed the filter."""
        return SUCCESS if self._mode in ("soft", "adaptive") and self._excluded_nodes(pod) else SKIP

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return 0 for an excluded node."""
        return 0 if node.name in self._excluded_nodes(pod) else 100

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int:
        """Return the same for every row."""
        return np.where(columns.mask_of(tuple(self._excluded_nodes(pod))), 0.0, 100.0)

    def events_to_register(self) -> Sequence[Registration]:
        """Return events of changes that may have cured the rejecting node."""
        cured = (
            Action.UPDATE_NODE_ALLOCATABLE
            | Action.UPDATE_NODE_LABEL
            | Action.UPDATE_NODE_SESSION
            | Action.UPDATE_NODE_DECLARED_FEATURE
        )
        return (
            Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE), self._left_the_node),
            Registration(ClusterEvent(NODE, Action.ADD | cured), self._is_the_node),
        )

    def _excluded_nodes(self, pod: PodInfo) -> dict[str, str]:
        """Return node name to text; what the pod met with itself comes first."""
        own = {node: _text("this pod", reason) for node, reason in self._exclusions.of(pod.uid).items()}
        if not self._exclusions.kinds:
            return own
        of_kind = self._exclusions.of_kind(pod.pod).items()
        return {**{node: _text("a pod like this", reason) for node, reason in of_kind}, **own}

    def _left_the_node(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        return queue_if(old is not None and self._was_refused(pod, old.spec.node_name))

    def _is_the_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        return queue_if(new is not None and self._was_refused(pod, new.metadata.name))

    def _was_refused(self, pod: PodInfo, node: str) -> bool:
        """Whether the pod may have been kept from that node; of its kind's refusals no history is kept."""
        return self._exclusions.kinds is not None or any(
            record.node_name == node for record in pod.pod.status.unbind_history
        )


def _text(who: str, reason: str) -> str:
    return f"node(s) rejected {who} earlier ({reason})"


PLUGIN = PluginEntry("NodeRejection", NodeRejection)
