"""Values decoded from all objects of a kind, each once until the object changes."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from apiserver_fake.storage.records import Record, Selection
from apiserver_fake.storage.store import Store
from services.api.meta import Key

T = TypeVar("T")


class Decoded(Generic[T]):
    """The decoded objects of one kind. `read`: returns the wanted value from an object's JSON."""

    def __init__(self, store: Store, resource: str, read: Callable[[bytes], T]) -> None:
        self._store, self._resource, self._read = store, resource, read
        self._known: dict[Key, tuple[Record, T]] = {}

    def __iter__(self) -> Iterator[tuple[Record, T]]:
        """Yield each object's record and its decoded value, in key order."""
        before, self._known = self._known, {}
        for record in self._store.select(self._resource, Selection()).records:
            known = before.get(record.key)
            if known is None or known[0] is not record:
                known = record, self._read(record.body)
            self._known[record.key] = known
        return iter(list(self._known.values()))
