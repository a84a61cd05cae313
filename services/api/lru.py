"""A dict with a bound. Pure."""

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LRU(OrderedDict[K, V]):
    """Entries in the order of their last use, at most `most` of them.

    `put` and `use` count as use; what every dict has (`get`, `in`, iteration) looks and changes nothing. With `put` and
    `get` alone the longest unwritten goes first. One thread at a time.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def use(self, key: K) -> V | None:
        """Return the value of a key and count that as use; None without one."""
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> tuple[K, V] | None:
        """Set the value of a key. Return the entry that was used longest ago and had to go, None where all fit."""
        self[key] = value
        self.move_to_end(key)
        return self.popitem(last=False) if len(self) > self._most else None
