"""Which Events are old enough, or too many, to go."""

from collections import OrderedDict

from apiserver_fake.storage.records import DELETED, Change

EVENTS_TTL_S = 3_600.0
EVENTS_MAX = 50_000
EVENTS_SWEEP_MAX = 500


class EventExpiry:
    """When each Event was last written, oldest first; pure. Source: guarantees L-OBJ (TTL 1 h, 50,000)."""

    def __init__(self, ttl_s: float = EVENTS_TTL_S, count_max: int = EVENTS_MAX) -> None:
        self._ttl_s, self._max = ttl_s, count_max
        self._written: OrderedDict[tuple[str, str], float] = OrderedDict()

    def note(self, change: Change, now_s: float) -> None:
        """Remember a change of an Event."""
        key = (change.record.namespace, change.record.name)
        self._written.pop(key, None)
        if change.type != DELETED:
            self._written[key] = now_s

    def due(self, now_s: float, most: int = EVENTS_SWEEP_MAX) -> list[tuple[str, str]]:
        """Return `(namespace, name)` of Events that should go now, oldest first."""
        excess = len(self._written) - self._max
        found: list[tuple[str, str]] = []
        for key, at_s in self._written.items():
            if len(found) >= most or (excess <= len(found) and now_s - at_s < self._ttl_s):
                break
            found.append(key)
        return found
