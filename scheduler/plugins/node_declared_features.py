"""Filter: a pod runs only where the kubelet declares every feature that the pod needs (KEP-5328).

Source: node-declared-features 3; upstream `pkg/scheduler/framework/plugins/nodedeclaredfeatures` (v1.36).
"""

from collections.abc import Hashable, Sequence
from typing import Final

from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import NODE, UNSCHEDULED_POD, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, unresolvable
from scheduler.framework.vectorized import Refusal
from services.api.features.declared_features import missing, needed_to_schedule
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod, PodSpec
from services.api.switches import EMULATED

REASON: Final = "node(s) didn't match Pod's required features"
"""Upstream's reason since v1.36; it names no feature. `keplab explain` does."""


class NodeDeclaredFeatures:
    """The plugin: it compares `status.declaredFeatures` with the features that the pod's spec needs."""

    name = "NodeDeclaredFeatures"

    def __init__(self, args: Args, handle: Handle) -> None:
        self._release = handle.switches.choice(EMULATED)

    def _needed_by(self, spec: PodSpec) -> tuple[str, ...]:
        # A pod that has a node already, and waits for more of it, was let in there.
        return () if spec.node_name else needed_to_schedule(spec, self._release)

    def lacks(self, pod: PodInfo, node: NodeInfo) -> tuple[str, ...]:
        """Return the features that the pod needs and the node does not declare, sorted."""
        declared = node.node.status.declared_features if node.node is not None else ()
        return missing(self._needed_by(pod.spec), declared)

    def row_signature(self, pod: PodInfo) -> Hashable:
        """Return the features that the pod needs, sorted."""
        return self._needed_by(pod.spec)

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> Status:
        """Skip pods that need no feature."""
        return SUCCESS if self._needed_by(pod.spec) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject a node that lacks a feature; no eviction would bring it."""
        return unresolvable(REASON) if self.lacks(pod, node) else SUCCESS

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows that have all of the features; each distinct list is tested once."""
        needed = self._needed_by(pod.spec)
        return columns.feature_mask(lambda declared: not missing(needed, declared)) if needed else None

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the one reason for all refused rows."""
        return [Refusal(REASON, refused, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)]

    def events_to_register(self) -> Sequence[Registration]:
        """Return the events: a node comes or declares other features, or the pod needs other ones."""
        return (
            Registration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE), _declares_others),
            Registration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE), self._needs_others),
        )

    def _needs_others(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        if old is None or new is None:
            return Hint.QUEUE
        is_own = new.metadata.uid == pod.uid
        return queue_if(is_own and self._needed_by(old.spec) != self._needed_by(new.spec))


def _declares_others(pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
    """Upstream does not look whether the new list is enough."""
    is_same = old is not None and new is not None and old.status.declared_features == new.status.declared_features
    return queue_if(not is_same)


PLUGIN = PluginEntry("NodeDeclaredFeatures", NodeDeclaredFeatures)
