"""The interface of etcd for the engine: keys at revisions, one conditional transaction, the changes since a
revision.

`client.EtcdClient` implements it for a real etcd. Source: etcd's `Documentation/learning/api.md`.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    """One key at a revision; `revision` is that of its last change."""

    key: bytes
    value: bytes
    revision: int


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of one key; `value` None: the key was removed."""

    key: bytes
    value: bytes | None
    revision: int


class Txn(msgspec.Struct, frozen=True):
    """Writes that are applied together, and only if `key` was last changed at `revision` (0: it does not exist)."""

    key: bytes
    revision: int
    puts: Sequence[tuple[bytes, bytes]]
    deletes: Sequence[bytes] = ()


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a transaction. `revision`: the one it made, or the revision of the key's last change if it
    failed.
    """

    is_committed: bool
    revision: int


class Head(msgspec.Struct, frozen=True):
    """A key read linearizably; `store_revision` is etcd's revision at the read."""

    value: bytes | None
    revision: int
    store_revision: int


class EtcdError(Exception):
    """etcd did not do the operation; the text is etcd's own if it answered."""


class UnreachableError(EtcdError):
    """No member answered, or only one without a leader: a transaction may have been committed or may yet be."""


class NoSpaceError(EtcdError):
    """The quota of etcd's database is used up; a transaction may have been committed, but will not be later."""


class CompactedError(EtcdError):
    """The requested history is gone; `revision` is the oldest that can be read, 0 if etcd did not say."""

    def __init__(self, text: str, revision: int = 0) -> None:
        super().__init__(text)
        self.revision = revision


class TooLargeError(EtcdError):
    """The transaction has more bytes or operations than this etcd accepts; nothing was written."""


class DeniedError(EtcdError):
    """The user or the certificate lacks the permission; nothing was written."""


class Etcd(Protocol):
    """An etcd of one or several members. Every method may raise EtcdError."""

    async def read(self, key: bytes) -> Head:
        """Return the key, linearizably: at or after everything that was committed before the call."""
        ...

    async def range(self, prefix: bytes, revision: int, after: bytes = b"", limit: int = 0) -> list[KeyValue]:
        """Return the keys below the prefix as they were at a revision, in order, beginning after the key `after`."""
        ...

    async def commit(self, txn: Txn) -> Outcome:
        """Try a transaction once. Raises: UnreachableError and NoSpaceError leave open whether it was committed."""
        ...

    async def compact(self, revision: int) -> None:
        """Discard the history before a revision; it is no error if it is gone already."""
        ...

    def watch(self, prefix: bytes, start: int) -> AsyncIterator[list[Event]]:
        """Yield the changes below the prefix from a revision on, one or more whole revisions at a time. Raises:
        CompactedError.
        """
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...
