"""Creations and deletions that a controller has requested but not yet seen in its cache.

Without them a stale cache makes a controller ask twice. They are set before the calls are made and lowered as
the informer brings each result, or at once for calls that failed (controllers 1.2). Unbinding is a MODIFIED
without deletionTimestamp and lowers nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.api.meta import Key

TTL_S = 300.0
"""Lifetime of a record in seconds; an older one is dropped, as its changes were lost (upstream ExpectationsTimeout)."""


@dataclass
class _Record:
    set_at_s: float
    creations: int = 0
    deletions: dict[str, None] = field(default_factory=dict)


class Expectations:
    """A controller's expectations, by the keys it reconciles.

    Invariant: while a record is younger than the TTL and anything in it is awaited, `are_satisfied` is False and
    the controller must neither create nor delete for that key.
    """

    def __init__(self) -> None:
        self._records: dict[Key, _Record] = {}

    def expect(self, key: Key, *, creations: int = 0, deletions: Iterable[str] = (), now_s: float) -> None:
        """Set the key's expectations; earlier ones are replaced.

        `deletions`: uids of the objects whose deletion is requested.
        """
        self._records[key] = _Record(now_s, creations, dict.fromkeys(deletions))

    def creation_observed(self, key: Key) -> None:
        """Count one awaited creation as seen, or as failed."""
        if record := self._records.get(key):
            record.creations -= 1

    def deletion_observed(self, key: Key, uid: str) -> None:
        """Count an awaited deletion as seen (DELETED, or deletionTimestamp set), or as failed.

        By uid, so that both forms of one deletion count once.
        """
        if record := self._records.get(key):
            record.deletions.pop(uid, None)

    def are_satisfied(self, key: Key, now_s: float) -> bool:
        """Whether the key has no record, awaits nothing, or has a record older than the TTL."""
        record = self._records.get(key)
        if record is None:
            return True
        return (record.creations <= 0 and not record.deletions) or now_s - record.set_at_s > TTL_S

    def pending_counts(self, key: Key) -> tuple[int, int]:
        """Return the numbers of awaited creations and deletions."""
        record = self._records.get(key)
        return (max(0, record.creations), len(record.deletions)) if record else (0, 0)

    def forget(self, key: Key) -> None:
        """Drop the record: the object is gone."""
        self._records.pop(key, None)

    def __len__(self) -> int:
        return len(self._records)
