"""Selection of Events to delete, because they are too old or too many."""

from collections import OrderedDict

from apiserver_fake.storage.records import DELETED, Change
from services.api.meta import Key

EVENTS_TTL_S = 3_600.0
EVENTS_MAX = 50_000
EVENTS_BYTES_MAX = 24 << 20
"""Limit of the total JSON bytes of Events. An Event of 1 KB takes 2.6 KB of memory (its selectable fields
0.5 KB, its entries in indexes and in the window of changes the rest). A deleted Event takes as much
again while its change is kept. With this bound a churn of Events stays below 150 MB (`python -m
lab.benchmarks.server.events`).
"""
EVENTS_SWEEP_MAX = 500


class EventExpiry:
    """The time of each Event's last write, oldest first; pure. Source: guarantees L-OBJ (TTL 1 h, 50,000), L-MEM."""

    def __init__(
        self, ttl_s: float = EVENTS_TTL_S, count_max: int = EVENTS_MAX, bytes_max: int = EVENTS_BYTES_MAX
    ) -> None:
        self._ttl_s, self._max, self._bytes_max = ttl_s, count_max, bytes_max
        self._written: OrderedDict[Key, tuple[float, int]] = OrderedDict()
        self._bytes = 0

    def note(self, change: Change, now_s: float) -> None:
        """Record a change of an Event."""
        record = change.record
        key = Key(record.namespace, record.name)
        _, before = self._written.pop(key, (0.0, 0))
        self._bytes -= before
        if change.type != DELETED:
            size = len(record.body)
            self._written[key] = now_s, size
            self._bytes += size

    def due(self, now_s: float, most: int = EVENTS_SWEEP_MAX) -> list[Key]:
        """Return `(namespace, name)` of Events to delete now, oldest first."""
        excess, bytes_left = len(self._written) - self._max, self._bytes
        keys: list[Key] = []
        for key, (at_s, size) in self._written.items():
            is_surplus = excess > len(keys) or bytes_left > self._bytes_max
            if len(keys) >= most or (not is_surplus and now_s - at_s < self._ttl_s):
                break
            keys.append(key)
            bytes_left -= size
        return keys
