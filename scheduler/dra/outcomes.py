"""The allocator's outcomes on each node for claims of one kind, cached from pod to pod.

Most pods with claims come in numbers: their requests are equal, and since the pod before only its node has
changed. That node's outcome, and those of nodes whose slices changed, are searched for anew; all others
hold.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from scheduler.cache.columns import Columns, Mask
from services.api.lru import LRU
from services.dra.allocated_devices import Allocated
from services.dra.allocator import Allocator, Asked, Outcome
from services.dra.pools import EVERY_NODE, Pool, Slices
from services.dra.solution import Solution

KINDS_KEPT: Final = 32


class Remembered:
    """The outcomes for one kind of claims, by row; None if not computed. `passed`: rows with a solution."""

    def __init__(self, slices: Slices, allocated: Allocated) -> None:
        self._slices = slices
        self._allocated = allocated
        self._epoch = self._seen = -1
        self._slices_mark = self._allocated_mark = 0
        self._known: Mask = np.zeros(0, bool)
        self._pools: list[tuple[Pool, ...] | None] = []
        self.passed: Mask = np.zeros(0, bool)
        self.found: list[Outcome | None] = []
        self.asked: Asked = []
        """What the claims request; it names no claim."""

    def ask(self, allocator: Allocator, columns: Columns, alive: Mask) -> None:
        """Compute the missing outcomes of these rows; valid ones are kept. Raises: AllocationError."""
        self._forget(columns)
        for row in np.flatnonzero(alive & ~self._known):
            info = columns.nodes[row]
            if info is None or info.node is None:
                continue
            pools = self._slices.of_node(info.node)
            outcome = self.found[row] = allocator.allocate(info.name, pools)
            self._pools[row] = pools
            self._known[row] = True
            self.passed[row] = isinstance(outcome, Solution)

    def _forget(self, columns: Columns) -> None:
        slices, allocated = self._slices.changes, self._allocated.changes
        changed = slices.since(self._slices_mark)
        pools = allocated.since(self._allocated_mark)
        if changed is None or pools is None or len(self.found) != columns.capacity:
            self._forget_all(columns)
        else:
            is_all = columns.epoch != self._epoch
            self._forget_moved(columns, range(columns.capacity) if is_all else columns.log[self._seen :])
            for pool in dict.fromkeys(pools):
                changed.extend(self._slices.nodes_of(pool))
            if EVERY_NODE in changed:
                self._forget_all(columns)
            for node in dict.fromkeys(changed):
                row = columns.slots.get(node)
                if row is not None:
                    self._forget_row(row)
        self._slices_mark, self._allocated_mark = slices.mark, allocated.mark
        self._epoch, self._seen = columns.epoch, len(columns.log)

    def _forget_all(self, columns: Columns) -> None:
        self._known, self.passed = columns.full(False), columns.full(False)
        self.found, self._pools = [None] * columns.capacity, [None] * columns.capacity

    def _forget_row(self, row: int) -> None:
        self._known[row] = self.passed[row] = False
        self.found[row] = self._pools[row] = None

    def _forget_moved(self, columns: Columns, rows: Iterable[int]) -> None:
        """Forget those of the rows whose nodes reach other pools than before, or are others."""
        for row in dict.fromkeys(rows):
            if not self._known[row]:
                continue
            info = columns.nodes[row]
            if info is None or info.node is None or self._slices.of_node(info.node) is not self._pools[row]:
                self._forget_row(row)


class Outcomes:
    """The cached outcomes for the kinds of claims that were used last."""

    def __init__(self, slices: Slices, allocated: Allocated) -> None:
        self._slices = slices
        self._allocated = allocated
        self._kinds: LRU[object, Remembered] = LRU(KINDS_KEPT)

    def of(self, allocator: Allocator) -> Remembered:
        """Return the cached outcomes for claims like the allocator's."""
        kind = allocator.kind
        if kind is None:
            return Remembered(self._slices, self._allocated)
        known = self._kinds.use(kind)
        if known is None:
            known = Remembered(self._slices, self._allocated)
            self._kinds.put(kind, known)
        allocator.share_requests(known.asked)
        return known
