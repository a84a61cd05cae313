"""How long to wait before the next attempt: decorrelated jitter. Source: guarantees C3, C6."""

from __future__ import annotations

from typing import Final

from services.api.seams import Random

BASE_S: Final = 0.2
MAX_S: Final = 5.0


class Backoff:
    """Each wait is drawn between the base and three times the one before."""

    def __init__(self, random: Random) -> None:
        self._random, self._last_s = random, BASE_S

    def next_s(self) -> float:
        """Return how long to wait now, in seconds."""
        self._last_s = min(MAX_S, self._random.uniform(BASE_S, self._last_s * 3))
        return self._last_s

    def reset(self) -> None:
        """Start again from the base."""
        self._last_s = BASE_S
