"""Which plugins a pod concerns: asked first of all, of those that want to be asked (KEP-5836, G4).

Whoever has nothing to do with a pod is silent at every point of its cycle, and nobody else pays for that: only the
plugins that are asked are wrapped. Source: kep-5836 6.1; KEP-5836 "RelevancePlugin" (beta).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.interface import (
    SKIP,
    SUCCESS,
    BindCall,
    Code,
    Mask,
    PostFilterResult,
    PreFilterResult,
    Status,
    unschedulable,
)


def ask_relevance(plugins: Sequence[Any], state: CycleState, pod: PodInfo) -> Status:
    """Note in the state which of the plugins have nothing to do with the pod; return success, or the first's no."""
    irrelevant = []
    for plugin in plugins:
        status: Status = plugin.is_relevant_for_pod(state, pod)
        if status.code is Code.SKIP:
            irrelevant.append(plugin.name)
        elif not status.is_success:
            return Status(status.code, status.reasons, plugin.name)
    state.irrelevant = frozenset(irrelevant)
    state.skip_filter.update(irrelevant)
    state.skip_score.update(irrelevant)
    return SUCCESS


class IfRelevant:
    """A plugin that keeps silent where the state says that the pod does not concern it; else it is the plugin."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin
        self.name: str = plugin.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plugin, name)

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Or bow out."""
        answer: PreFilterResult | Status
        answer = SKIP if self.name in state.irrelevant else self._plugin.pre_filter(state, pod, columns)
        return answer

    def post_filter(self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis) -> PostFilterResult:
        """Or help nobody, without a word."""
        if self.name in state.irrelevant:
            return PostFilterResult(unschedulable())
        result: PostFilterResult = self._plugin.post_filter(state, pod, columns, diagnosis)
        return result

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Or bow out."""
        status: Status
        status = SKIP if self.name in state.irrelevant else self._plugin.pre_score(state, pod, columns, feasible)
        return status

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Or have nothing to reserve."""
        status: Status
        status = SUCCESS if self.name in state.irrelevant else self._plugin.reserve(state, pod, node_name)
        return status

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Or have nothing to undo."""
        if self.name not in state.irrelevant:
            self._plugin.unreserve(state, pod, node_name)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, float]:
        """Or permit."""
        if self.name in state.irrelevant:
            return SUCCESS, 0.0
        answer: tuple[Status, float] = self._plugin.permit(state, pod, node_name)
        return answer

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Or announce no work, so that `pre_bind` is not called."""
        status: Status
        status = SKIP if self.name in state.irrelevant else self._plugin.pre_bind_pre_flight(state, pod, node_name)
        return status

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> BindCall | Status:
        """Or leave it to the next."""
        answer: BindCall | Status
        answer = SKIP if self.name in state.irrelevant else self._plugin.bind(state, pod, node_name)
        return answer

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Or hear nothing."""
        if self.name not in state.irrelevant:
            self._plugin.post_bind(state, pod, node_name)
