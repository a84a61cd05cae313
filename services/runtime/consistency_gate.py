"""The gate that holds a key until the caches show what was last written for it (guarantees C7)."""

from __future__ import annotations

from collections.abc import Callable

from services.api.meta import Key

GATE_MAX_S = 60.0
"""A key is not held longer than this for its own writes; a cache that slow is reported."""


class OwnWriteGate:
    """Which keys must not be reconciled yet, because a cache has not reached their last own write (C7).

    Pure. Invariant: a key is held only for resources some cache follows, and at most `GATE_MAX_S`.
    """

    def __init__(self, reached: Callable[[str], int | None]) -> None:
        """`reached`: the version a resource's cache has reached, None when there is no such cache."""
        self._reached = reached
        self._awaited: dict[Key, tuple[dict[str, int], float]] = {}
        self.held: dict[Key, None] = {}
        """Keys that were due and had to wait."""
        self.overdue_total = 0

    def wrote(self, key: Key, written: dict[str, int], now: float) -> None:
        """Await that the caches reach these versions."""
        awaited, _ = self._awaited.get(key, ({}, now))
        for resource, rv in written.items():
            reached = self._reached(resource)
            if reached is not None and rv > max(reached, awaited.get(resource, 0)):
                awaited[resource] = rv
        if awaited:
            self._awaited[key] = (awaited, now)

    def is_open(self, key: Key, now: float) -> bool:
        """Whether the caches show all own writes of the key, or have taken longer than is reasonable."""
        found = self._awaited.get(key)
        if found is None:
            return True
        awaited, since = found
        late = [resource for resource, rv in awaited.items() if (self._reached(resource) or 0) < rv]
        if late and now - since < GATE_MAX_S:
            return False
        self.overdue_total += bool(late)
        del self._awaited[key]
        return True

    def release(self, now: float) -> list[Key]:
        """Return the held keys that may go on, and hold them no longer."""
        free = [key for key in self.held if self.is_open(key, now)]
        for key in free:
            del self.held[key]
        return free
