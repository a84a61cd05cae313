"""Ask a plugin in the form it has: about all nodes at once, or about one node after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.interface import Code, Mask, Scores, Status, VectorFilterPlugin, VectorScorePlugin


class Forms:
    """Which plugins of a profile answer for all nodes at once."""

    def __init__(self, plugins: Iterable[Any]) -> None:
        # Asking a protocol costs microseconds; ask once.
        self.vector_filters: set[str] = set()
        self._vector_scores: set[str] = set()
        for plugin in plugins:
            if isinstance(plugin, VectorFilterPlugin):
                self.vector_filters.add(plugin.name)
            if isinstance(plugin, VectorScorePlugin):
                self._vector_scores.add(plugin.name)

    def passed(self, state: CycleState, pod: PodInfo, columns: Columns, plugin: Any, alive: Mask) -> Mask | None:
        """Return which of the living rows pass; None when the plugin has nothing against any.

        An error ends the asking: it is noted in the state, and no row passes.
        """
        if plugin.name in self.vector_filters:
            passed: Mask | None = plugin.filter_all(state, pod, columns)
            return passed
        mask = alive.copy()
        for row in np.flatnonzero(alive):
            node = columns.nodes[row]
            status = filter_one(plugin, state, pod, node) if node is not None else None
            if status is not None and status.code is Code.ERROR:
                state.error = f'running "{plugin.name}" filter plugin: {status.message}'
                mask[:] = False
                break
            if status is None or not status.is_success:
                mask[row] = False
        return mask

    def scores(self, state: CycleState, pod: PodInfo, columns: Columns, plugin: Any, mask: Mask) -> Scores | int:
        """Return the raw scores of the rows in the mask; a number when all have the same."""
        if plugin.name in self._vector_scores:
            result: Scores | int = plugin.score_all(state, pod, columns)
            return result
        scores = np.zeros(columns.capacity)
        for row in np.flatnonzero(mask):
            node = columns.nodes[row]
            if node is not None:
                scores[row] = plugin.score(pod, node)
        return scores


def filter_one(plugin: Any, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
    """Return what a filter says about one node."""
    status: Status
    status = plugin.filter_in(state, pod, node) if hasattr(plugin, "filter_in") else plugin.filter(pod, node)
    return status
