"""Limits of the rate and of the number of something, by key. Pure. Source: guarantees L-RATE, L-CONN."""

from collections.abc import Hashable

from services.api.lru import LRU

KEYS_MAX = 20_000


class Rate:
    """A token bucket per key: a rate per second after a burst. The least recently used keys are forgotten."""

    def __init__(self, per_s: float, burst: float, keys_max: int = KEYS_MAX) -> None:
        self._per_s, self._burst = per_s, burst
        self._tokens: LRU[Hashable, tuple[float, float]] = LRU(keys_max)
        self.refused = 0

    def take(self, key: Hashable, now_s: float) -> bool:
        """Take one token of the key and return whether one was available."""
        tokens, at_s = self._tokens.get(key, (self._burst, now_s))
        tokens = min(self._burst, tokens + (now_s - at_s) * self._per_s)
        is_within = tokens >= 1
        self._tokens.put(key, (tokens - is_within, now_s))
        self.refused += not is_within
        return is_within


class Count:
    """A counter with two limits: the total, and the number per key."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self.most, self.most_of_one = most, most_of_one
        self._counts: dict[Hashable, int] = {}
        self.total = self.refused = 0

    def enter(self, key: Hashable) -> bool:
        """Count one more of the key if the limits allow it; return whether they do."""
        count = self._counts.get(key, 0)
        if self.total >= self.most or count >= self.most_of_one:
            self.refused += 1
            return False
        self._counts[key] = count + 1
        self.total += 1
        return True

    def leave(self, key: Hashable) -> None:
        """Count one less of the key."""
        self.total -= 1
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]

    def of(self, key: Hashable) -> int:
        """Return the count of a key."""
        return self._counts.get(key, 0)
