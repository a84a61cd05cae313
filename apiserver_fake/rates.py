"""Rates of what is counted by a key, and how many of it there are at once. Pure. Source: guarantees L-RATE, L-CONN."""

from collections.abc import Hashable

from services.api.lru import LRU

KEYS_MAX = 20_000


class Rate:
    """So many a second for each key, after a burst. Keys that were not seen for longest are forgotten."""

    def __init__(self, per_s: float, burst: float, keys_max: int = KEYS_MAX) -> None:
        self._per_s, self._burst = per_s, burst
        self._tokens: LRU[Hashable, tuple[float, float]] = LRU(keys_max)
        self.refused = 0

    def take(self, key: Hashable, now_s: float) -> bool:
        """Take one; whether there was one."""
        tokens, at_s = self._tokens.get(key, (self._burst, now_s))
        tokens = min(self._burst, tokens + (now_s - at_s) * self._per_s)
        is_within = tokens >= 1
        self._tokens.put(key, (tokens - is_within, now_s))
        self.refused += not is_within
        return is_within


class Count:
    """So many at once, and so many of each key."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self.most, self.most_of_one = most, most_of_one
        self._counts: dict[Hashable, int] = {}
        self.total = self.refused = 0

    def enter(self, key: Hashable) -> bool:
        """Count one more; whether there may be one."""
        count = self._counts.get(key, 0)
        if self.total >= self.most or count >= self.most_of_one:
            self.refused += 1
            return False
        self._counts[key] = count + 1
        self.total += 1
        return True

    def leave(self, key: Hashable) -> None:
        """Count one less."""
        self.total -= 1
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]

    def of(self, key: Hashable) -> int:
        """Return how many there are of a key."""
        return self._counts.get(key, 0)
