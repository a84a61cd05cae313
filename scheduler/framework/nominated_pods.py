"""Rows where a pod does not fit beside the pods nominated there, cached by template and priority.

Many preemptors wait at once for their victims to leave, each with a node nominated to it, and every cycle
has to check for each such node whether the pod fits beside them. If filters depend on nothing but a node's
row, an answer holds until the node or the nominations to it change; then only those rows are checked again.
Source: scheduler-queue-and-cycles 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.status import SUCCESS, Status
from services.api.lru import LRU

REMEMBERED_MAX: Final = 16
CHANGED_MAX: Final = 256
"""Number of changed rows above which starting anew is cheaper."""
Ask = Callable[[CycleState, PodInfo, NodeInfo, Sequence[PodInfo]], Status]
"""The check whether the pod fits the node beside those pods."""


@dataclass(slots=True)
class BlockedRows:
    """The rows that nominations block.

    `rejections`: these rows by status; `free` is False at exactly those. The cursors say how much of the two
    logs is processed.
    """

    epoch: int
    cursor: int
    seen_changes: int
    free: Mask
    rejections: dict[Status, Mask] = field(default_factory=dict)
    _by_row: dict[int, Status] = field(default_factory=dict)

    def put(self, row: int, no: Status | None) -> None:
        """Set the answer for a row."""
        before = self._by_row.pop(row, None)
        if before is not None:
            self.rejections[before][row] = False
        self.free[row] = no is None
        if no is not None:
            self._by_row[row] = no
            self.rejections.setdefault(no, np.zeros(len(self.free), bool))[row] = True

    def but(self, row: int, no: Status | None) -> BlockedRows:
        """Return a copy with another answer for one row."""
        rejections = {each: mask.copy() for each, mask in self.rejections.items()}
        other = BlockedRows(
            self.epoch, self.cursor, self.seen_changes, self.free.copy(), rejections, self._by_row.copy()
        )
        other.put(row, no)
        return other

    def __bool__(self) -> bool:
        return bool(self._by_row)


class NominatedPodFilter:
    """Filters nodes with nominations, and caches the answers."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._known: LRU[tuple[int | None, int], BlockedRows] = LRU(REMEMBERED_MAX)

    def of(
        self, state: CycleState, pod: PodInfo, columns: Columns, nominator: Nominator, mask: Mask, *, is_local: bool
    ) -> BlockedRows:
        """Return the rows of the mask that nominations block.

        `is_local`: answers depend on the row alone; then the mask is the template's, whatever else narrows it.
        """

        def answer(row: int, *, is_shared: bool) -> Status | None:
            node = columns.nodes[row]
            if node is None or not mask[row]:
                return None
            rivals = nominator.at_least(node.name, pod.priority) if is_shared else nominator.rivals(node.name, pod)
            status = self._ask(state, pod, node, rivals) if rivals else SUCCESS
            return None if status.is_success else status

        if not is_local:
            blocked = _new(columns, nominator)
            for row in _rows(columns, nominator.nodes()):
                blocked.put(row, answer(row, is_shared=False))
            return blocked
        blocked, stale = self._recall(pod, columns, nominator)
        for row in stale:
            blocked.put(row, answer(row, is_shared=True))
        own = columns.slots.get(nominator.node_of(pod.uid), -1)
        # Every other pod is filtered beside this one there; it itself must not be.
        return blocked if own < 0 else blocked.but(own, answer(own, is_shared=False))

    def _recall(self, pod: PodInfo, columns: Columns, nominator: Nominator) -> tuple[BlockedRows, Iterable[int]]:
        """Return what is known for pods like this one, and the rows that have to be asked about again."""
        key = (pod.signature, pod.priority)
        blocked = self._known.get(key)
        log = columns.log
        changed = nominator.changed_since(blocked.seen_changes) if blocked is not None else None
        if (
            blocked is None
            or changed is None
            or blocked.epoch != columns.epoch
            or len(log) - blocked.cursor > CHANGED_MAX
        ):
            blocked = _new(columns, nominator)
            stale: Iterable[int] = _rows(columns, nominator.nodes())
        else:
            stale = dict.fromkeys([*_rows(columns, changed), *log[blocked.cursor :]])
            blocked.cursor, blocked.seen_changes = len(log), nominator.changes
        self._known.put(key, blocked)
        return blocked, stale


def _new(columns: Columns, nominator: Nominator) -> BlockedRows:
    return BlockedRows(columns.epoch, len(columns.log), nominator.changes, np.ones(columns.capacity, bool))


def _rows(columns: Columns, nodes: Iterable[str]) -> list[int]:
    return [row for node in nodes if (row := columns.slots.get(node)) is not None]
