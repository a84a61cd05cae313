"""Creations and deletions a controller has asked for and has not yet seen in its cache.

Without them a stale cache makes a controller ask twice. They are set before the calls are made and
lowered as the informer brings each result, or at once for calls that failed (controllers 1.2).
Unbinding is a MODIFIED without deletionTimestamp and lowers nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.api.meta import Key

TTL_S = 300.0
"""A record older than this is given up: what it awaits was lost on the way (upstream ExpectationsTimeout)."""


@dataclass
class _Record:
    set_at_s: float
    creations: int = 0
    deletions: dict[str, None] = field(default_factory=dict)


class Expectations:
    """One memory per controller; keys are those it reconciles.

    Invariant: while a record is younger than the TTL and anything in it is awaited, `are_satisfied` is
    False and the controller must neither create nor delete for that key.
    """

    def __init__(self) -> None:
        self._records: dict[Key, _Record] = {}

    def expect(self, key: Key, *, creations: int = 0, deletions: Iterable[str] = (), now_s: float) -> None:
        """Await exactly this for the key from now on; what was awaited before is replaced.

        `deletions`: uids of the objects that are asked to go.
        """
        self._records[key] = _Record(now_s, creations, dict.fromkeys(deletions))

    def creation_observed(self, key: Key) -> None:
        """One awaited creation was seen, or its call failed."""
        if record := self._records.get(key):
            record.creations -= 1

    def deletion_observed(self, key: Key, uid: str) -> None:
        """An awaited deletion was seen (DELETED, or deletionTimestamp set), or its call failed.

        By uid, so that seeing both forms of one deletion counts once.
        """
        if record := self._records.get(key):
            record.deletions.pop(uid, None)

    def are_satisfied(self, key: Key, now_s: float) -> bool:
        """Whether nothing is awaited, or what is awaited is older than the TTL, or was never set."""
        record = self._records.get(key)
        if record is None:
            return True
        return (record.creations <= 0 and not record.deletions) or now_s - record.set_at_s > TTL_S

    def awaited(self, key: Key) -> tuple[int, int]:
        """Return how many creations and deletions are still awaited."""
        record = self._records.get(key)
        return (max(0, record.creations), len(record.deletions)) if record else (0, 0)

    def forget(self, key: Key) -> None:
        """Drop the record: the object is gone."""
        self._records.pop(key, None)

    def __len__(self) -> int:
        return len(self._records)
