"""What is read of all objects of a kind, of each one once for as long as it stays as it is."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from apiserver_fake.storage.records import Record, Selection
from apiserver_fake.storage.store import Store
from services.api.meta import Key

T = TypeVar("T")


class Decoded(Generic[T]):
    """The objects of one kind. `read`: from an object's JSON to what is wanted of it."""

    def __init__(self, store: Store, resource: str, read: Callable[[bytes], T]) -> None:
        self._store, self._resource, self._read = store, resource, read
        self._known: dict[Key, tuple[Record, T]] = {}

    def __iter__(self) -> Iterator[tuple[Record, T]]:
        """Yield each object's record, and what was read of it, in key order."""
        before, self._known = self._known, {}
        for record in self._store.select(self._resource, Selection()).records:
            known = before.get(record.key)
            if known is None or known[0] is not record:
                known = record, self._read(record.body)
            self._known[record.key] = known
        return iter(list(self._known.values()))
