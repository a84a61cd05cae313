"""One timer heap for a whole process: thousands of nodes wait in one list, not in thousands of tasks. Pure."""

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")

CALL_DEADLINE_S = 10.0
"""Maximal seconds of a call of the API server."""
EARLY_S = 1e-6
"""Seconds within which a timer counts as due.

Without this tolerance, float rounding could make a loop wait for ever for nothing.
"""


class Timers(Generic[T]):
    """Timers by time. Setting a timer never cancels another: the callee checks whether it is still valid."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, at_s: float, what: T) -> bool:
        """Set a timer for `what` at `at_s`; return whether it is now the earliest."""
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, what))
        return self._heap[0][1] == self._count

    def due(self, now: float) -> list[T]:
        """Remove and return all timers due at `now`, earliest first."""
        found: list[T] = []
        while self._heap and self._heap[0][0] <= now + EARLY_S:
            found.append(heapq.heappop(self._heap)[2])
        return found

    @property
    def next_at_s(self) -> float | None:
        """The time of the earliest timer; None without timers."""
        return self._heap[0][0] if self._heap else None
