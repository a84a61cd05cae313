"""What the engine asks of etcd, whoever answers: keys at revisions, one conditional transaction, the changes since.

`client.EtcdClient` asks a real one. Source: etcd's `Documentation/learning/api.md`.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    """One key as it is at a revision; `revision` is that of its last change."""

    key: bytes
    value: bytes
    revision: int


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of one key; `value` None: it was removed."""

    key: bytes
    value: bytes | None
    revision: int


class Txn(msgspec.Struct, frozen=True):
    """Writes that happen together, and only if `key` was last changed at `revision` (0: it does not exist)."""

    key: bytes
    revision: int
    puts: Sequence[tuple[bytes, bytes]]
    deletes: Sequence[bytes] = ()


class Outcome(msgspec.Struct, frozen=True):
    """What became of a transaction. `revision`: the one it made, or where the key was last changed instead."""

    is_committed: bool
    revision: int


class Head(msgspec.Struct, frozen=True):
    """A key as the whole of etcd agrees on it at the moment of asking; `store_revision` is that moment."""

    value: bytes | None
    revision: int
    store_revision: int


class EtcdError(Exception):
    """etcd did not do what it was asked; the text is its own where it has spoken."""


class UnreachableError(EtcdError):
    """No member answered, or one without a leader: a transaction may have been committed or may yet be."""


class NoSpaceError(EtcdError):
    """The quota of its database is used up; a transaction may have been committed and will not be later."""


class CompactedError(EtcdError):
    """The history asked for is gone; `revision` is the oldest that can be read, 0 if etcd did not say."""

    def __init__(self, text: str, revision: int = 0) -> None:
        super().__init__(text)
        self.revision = revision


class TooLargeError(EtcdError):
    """The transaction has more bytes or operations than this etcd takes; nothing was written."""


class DeniedError(EtcdError):
    """The user or the certificate may not do this; nothing was written."""


class Etcd(Protocol):
    """An etcd of one or several members. Every method may raise EtcdError."""

    async def read(self, key: bytes) -> Head:
        """Return the key, linearizably: at or after everything that was committed before the call."""
        ...

    async def range(self, prefix: bytes, revision: int, after: bytes = b"", limit: int = 0) -> list[KeyValue]:
        """Return the keys below the prefix as they were at a revision, in order, from behind `after` on."""
        ...

    async def commit(self, txn: Txn) -> Outcome:
        """Try once. Raises: UnreachableError and NoSpaceError leave open whether it was committed."""
        ...

    async def compact(self, revision: int) -> None:
        """Let the history before a revision go; one that is gone already is no error."""
        ...

    def watch(self, prefix: bytes, start: int) -> AsyncIterator[list[Event]]:
        """Yield what changes below the prefix, from a revision on, whole revisions each. Raises: CompactedError."""
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...
