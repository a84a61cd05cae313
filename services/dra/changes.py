"""Log of recent changes, for caches that follow a large state."""

from collections import deque
from collections.abc import Hashable
from itertools import islice
from typing import Final, Generic, TypeVar

KEPT: Final = 4096
T = TypeVar("T", bound=Hashable)


class Changes(Generic[T]):
    """The latest changes, numbered. Older ones are forgotten; a reader that missed them must read everything."""

    def __init__(self) -> None:
        self._latest: deque[T] = deque(maxlen=KEPT)
        self.mark = 0
        """How many there have been."""

    def note(self, what: T) -> None:
        """Add a change."""
        self._latest.append(what)
        self.mark += 1

    def since(self, mark: int) -> list[T] | None:
        """Return the changes after `mark`, oldest first; None if some of them are forgotten."""
        count = self.mark - mark
        if count > len(self._latest):
            return None
        if not count:
            return []
        latest = list(islice(reversed(self._latest), count))  # from the end: most readers missed a few of thousands
        latest.reverse()
        return latest
