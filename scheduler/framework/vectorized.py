"""Plugins that answer for all nodes at once, over the columns, and plugins whose answers can be remembered.

A method about one node is called for every node of every cycle; with thousands of nodes a mask or an array of scores
is what keeps a cycle short. A plugin may offer both forms; a property test holds the two of every built-in equal.
"""

# ruff: noqa: D102  (a protocol's class docstring says what its methods do)

from collections.abc import Hashable, Iterable
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.status import Code


class Refusal(msgspec.Struct, frozen=True):
    """Nodes (a mask) that a vectorized filter refused for one reason. A node may occur in several."""

    reason: str
    mask: Mask
    code: Code = Code.UNSCHEDULABLE


@runtime_checkable
class VectorFilterPlugin(Protocol):
    """Says of all nodes at once whether the pod fits, and afterwards why not.

    `filter_all` returns a mask of `columns.capacity` rows, or None when every node passes. What it says
    of rows without a node is ignored. `explain_all` returns the reasons for the rows of `refused`.
    """

    name: str

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None: ...
    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]: ...


@runtime_checkable
class VectorScorePlugin(Protocol):
    """Ranks all nodes at once; an int stands for the same score everywhere."""

    name: str

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int: ...


@runtime_checkable
class RowPure(Protocol):
    """The answers depend only on this value of the pod and on the node's own row.

    The runner remembers them and asks again, by the form for one node, only about rows that changed.
    """

    def row_signature(self, pod: PodInfo) -> Hashable: ...


@runtime_checkable
class Signs(Protocol):
    """Says which pods it treats alike, on every node, although it is not row-pure (KEP-5598, Sign).

    None: it cannot say. A filter or score that is neither row-pure nor signs keeps pods from being batched,
    unless it skips for them.
    """

    def sign(self, pod: PodInfo) -> Hashable | None: ...


class Forms:
    """Asks each plugin in the form it has: for all nodes at once, or node by node."""

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
        """Return which of the `alive` rows pass; None when the plugin has nothing against any.

        After an error no further node is asked about: it is noted in the state, and no row passes.
        """
        if plugin.name in self.vector_filters:
            passed: Mask | None = plugin.filter_all(state, pod, columns)
            return passed
        mask = alive.copy()
        for row in np.flatnonzero(alive):
            node = columns.nodes[row]
            status = plugin.filter(state, pod, node) if node is not None else None
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
                scores[row] = plugin.score(state, pod, node)
        return scores
