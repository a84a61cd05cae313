"""A dict with a bound. Pure."""

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LRU(OrderedDict[K, V]):
    """A dict with at most `most` entries, in the order of their last use.

    `put` and `use` count as use; the methods of dict (`get`, `in`, iteration) read without changing the order. With
    `put` and `get` alone, the entry whose last write is oldest is evicted first. Not thread-safe: one thread at a
    time.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def use(self, key: K) -> V | None:
        """Return the value of a key and mark it as used; None if the key is absent."""
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> tuple[K, V] | None:
        """Set the value of a key. Return the evicted entry, the least recently used one; None if none was evicted."""
        self[key] = value
        self.move_to_end(key)
        return self.popitem(last=False) if len(self) > self._most else None
