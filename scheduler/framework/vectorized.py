"""Filter and Score for all nodes at once: a mask or an array over the columns.

They keep cycles short at thousands of nodes. A property test compares the two forms of every built-in
plugin.
"""

# ruff: noqa: D102  (a protocol's class docstring says what its methods do)

from collections.abc import Hashable
from typing import Protocol, runtime_checkable

import msgspec

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
    """Filters all nodes at once, and afterwards gives the reasons.

    `filter_all` returns a mask of `columns.capacity` rows, or None when every node passes. Its values for rows
    without a node are ignored. `explain_all` returns the reasons for the rows of `refused`.
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
    """A plugin whose answers depend only on this value of the pod and on the node's own row.

    The runner caches them and recomputes, by the form for one node, only the rows that changed.
    """

    def row_signature(self, pod: PodInfo) -> Hashable: ...


@runtime_checkable
class Signs(Protocol):
    """A plugin that is not row-pure and can sign the pods that it treats alike, on every node (KEP-5598, Sign).

    None: it cannot sign the pod. A filter or score that is neither row-pure nor signs keeps pods from being
    batched, unless it skips for them.
    """

    def sign(self, pod: PodInfo) -> Hashable | None: ...
