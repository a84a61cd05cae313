"""The changes of one kind that the window has, oldest first; old ones are packed.

Most of the window is read by nobody. A hundred old changes, with the records before and after each, compress to a
twentieth. They are unpacked for who asks for them: a watch that resumes there, a read at an old version, the history
of an object. What is unpacked equals what was packed, and nothing else can tell the two apart.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import Final

import msgspec

from apiserver_fake.storage.records import Cause, Change, Record
from services.api.meta import Key

BLOCK: Final = 128
"""Number of changes that are packed together, and let go together after they have left the window."""
NEWEST: Final = 512
"""Number of newest changes of a kind that are never packed: watches that resume need them."""
WAIT_S: Final = 30.0
"""Seconds for which a block waits to be superseded: three periods of a node's lease."""
WAITING_MAX: Final = 8_192
PACKED_AT_ONCE: Final = 2
LEVEL: Final = 1
"""Compression level of zlib: neighbours of a kind repeat each other so much that more effort finds little more."""

_NO_PREVIOUS: Final = -1
_DIGEST_BYTES: Final = 32


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A packed change; `record` and `previous` are places in the block's records."""

    rv: int
    type: str
    record: int
    previous: int
    group_end: int
    traceparent: str
    cause: Cause | None


class _Content(msgspec.Struct, frozen=True, array_like=True):
    rows: list[_Row]
    records: list[Record]
    digests: list[bytes]
    """The records' digests, which are wider than an integer of msgpack; none if no state hash is kept."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_CONTENT: Final = msgspec.msgpack.Decoder(_Content)


def pack(changes: Sequence[Change]) -> bytes:
    """Return the changes in a form from which `unpack` makes equal ones. Each record stands there once."""
    places: dict[int, int] = {}
    records: list[Record] = []
    rows: list[_Row] = []
    for change in changes:
        previous, before = change.previous, _NO_PREVIOUS
        if previous is not None:
            before = places.get(previous.rv, _NO_PREVIOUS)
            if before == _NO_PREVIOUS:
                before = places[previous.rv] = len(records)
                records.append(previous)
        places[change.rv] = len(records)
        rows.append(
            _Row(change.rv, change.type, len(records), before, change.group_end, change.traceparent, change.cause)
        )
        records.append(change.record)
    digests: list[bytes] = []
    if any(record.digest for record in records):
        digests = [record.digest.to_bytes(_DIGEST_BYTES, "big") for record in records]
        records = [msgspec.structs.replace(record, digest=0) for record in records]
    return zlib.compress(_ENCODER.encode(_Content(rows, records, digests)), LEVEL)


def unpack(packed: bytes) -> list[Change]:
    """Return the changes that were packed."""
    content = _CONTENT.decode(zlib.decompress(packed))
    records = content.records
    if content.digests:
        records = [
            msgspec.structs.replace(record, digest=int.from_bytes(digest, "big"))
            for record, digest in zip(records, content.digests, strict=True)
        ]
    return [
        Change(
            row.rv,
            row.type,
            records[row.record],
            None if row.previous == _NO_PREVIOUS else records[row.previous],
            row.group_end,
            row.traceparent,
            row.cause,
        )
        for row in content.rows
    ]


class Block:
    """Neighbouring changes, packed or as they are; `count` of them."""

    __slots__ = ("_changes", "_packed", "count", "first_rv", "last_rv")

    def __init__(self, changes: Sequence[Change], packed: bytes = b"") -> None:
        self.first_rv, self.last_rv, self.count = changes[0].rv, changes[-1].rv, len(changes)
        self._packed = packed
        self._changes = () if packed else tuple(changes)

    def changes(self) -> Sequence[Change]:
        """Return the changes, oldest first."""
        return unpack(self._packed) if self._packed else self._changes

    def with_each_replaced(self, function: Callable[[Change], Change]) -> Block:
        """Return the block with each change replaced by the function of it."""
        changes = [function(change) for change in self.changes()]
        return Block(changes, pack(changes) if self._packed else b"")


class ChangeLog:
    """All changes of one kind in the window, oldest first.

    The newest stand in a list. Those before them stand in blocks of `block` changes. A block of which most records
    have been superseded is packed; one that still shows the present state after `WAIT_S` stays as it is, because its
    bodies are kept for the present state anyway.
    """

    __slots__ = ("_block", "_blocks", "_filled", "_head", "_least", "due", "newest", "packed_bytes")

    def __init__(self, block: int = BLOCK, newest: int = NEWEST) -> None:
        self._block, self._least = block, newest
        self._blocks: deque[Block] = deque()
        self._filled: deque[float] = deque()
        """The times at which the blocks in `newest` were full."""
        self._head = 0
        """Number of oldest changes that have left the window and are still held."""
        self.newest: list[Change] = []
        self.due = block
        """Length of `newest` at which `arrange` has something to do."""
        self.packed_bytes = 0
        """Bytes of the bodies that were packed since the log was made."""

    def __len__(self) -> int:
        return len(self._blocks) * self._block + len(self.newest)

    def arrange(self, objects: Mapping[Key, Record], now_s: float) -> None:
        """Move what is old from the newest changes into blocks. `objects`: the present state of the kind.

        To be called whenever `newest` has `due` changes. It packs at most two blocks, so that no write waits long.
        """
        newest, size = self.newest, self._block
        self._filled.append(now_s)
        packed = 0
        while len(newest) - size >= self._least and packed < PACKED_AT_ONCE:
            changes = newest[:size]
            if _is_superseded(changes, objects):
                self._blocks.append(Block(changes, pack(changes)))
                self.packed_bytes += sum([len(change.record.body) for change in changes])
                packed += 1
            elif now_s - self._filled[0] >= WAIT_S or len(newest) > WAITING_MAX:
                self._blocks.append(Block(changes))
            else:
                break
            del newest[:size]
            self._filled.popleft()
        self.due = (len(newest) // size + 1) * size

    def drop_oldest(self) -> None:
        """Let the oldest change of the window go; it is held until the rest of its block has left, too."""
        self._head += 1
        if self._head < self._block:
            return
        self._head = 0
        if self._blocks:
            self._blocks.popleft()
            return
        del self.newest[: self._block]
        self._filled.popleft()
        self.due -= self._block

    def after(self, rv: int) -> list[Change]:
        """Return the changes above `rv`, oldest first."""
        if not self._blocks or rv >= self._blocks[-1].last_rv:
            return self.newest[self._place(rv) :]
        return [*chain.from_iterable(block.changes() for block in self.blocks_after(rv))]

    def first_after(self, rv: int) -> Change:
        """Return the first change above `rv`, of which there is one."""
        if not self._blocks or rv >= self._blocks[-1].last_rv:
            return self.newest[self._place(rv)]
        return self.blocks_after(rv)[0].changes()[0]

    def count_after(self, rv: int) -> int:
        """Return the number of changes above `rv`."""
        if not self._blocks or rv >= self._blocks[-1].last_rv:
            return len(self.newest) - self._place(rv)
        return sum([block.count for block in self.blocks_after(rv)])

    def blocks_after(self, rv: int) -> list[Block]:
        """Return the changes above `rv` as blocks, of which at most the first is unpacked."""
        first = bisect_right(self._blocks, rv, key=_last_rv)
        blocks = [*islice(self._blocks, first, None)]
        if blocks and (rv >= blocks[0].first_rv or (self._head and not first)):
            changes = blocks[0].changes()
            start = max(0 if first else self._head, bisect_right(changes, rv, key=_rv))
            blocks[0] = Block(changes[start:])
        if rest := self.newest[self._place(rv) :]:
            blocks.append(Block(rest))
        return blocks

    def replace(self, function: Callable[[Change], Change]) -> None:
        """Replace each change by the function of it."""
        self._blocks = deque(block.with_each_replaced(function) for block in self._blocks)
        self.newest[:] = [function(change) for change in self.newest]

    def _place(self, rv: int) -> int:
        head = 0 if self._blocks else self._head
        return bisect_right(self.newest, rv, lo=head, key=_rv)


def _rv(change: Change) -> int:
    return change.rv


def _last_rv(block: Block) -> int:
    return block.last_rv


def _is_superseded(changes: Sequence[Change], objects: Mapping[Key, Record]) -> bool:
    """Whether at least half of the records are not what the kind has now, so that nobody else keeps their bodies."""
    present = 0
    for change in changes:
        record = change.record
        present += objects.get((record.namespace, record.name)) is record  # type: ignore[call-overload]
    return present * 2 <= len(changes)
