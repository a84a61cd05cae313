"""The start of a watch: the state of its kind, or the changes it missed, in pieces that all watches share.

A start costs the same however large the state is. The state is cut into pieces once, and the next start reuses
every piece in which nothing has changed since. Events that a watch does not select are left out when it takes a
piece. So two hundred starts hold one state between them, and an event and its encoded form are made once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar
from weakref import WeakValueDictionary

from apiserver_fake.storage.change_log import Block
from apiserver_fake.storage.records import ADDED, DELETED, Change, Record, Selection
from apiserver_fake.storage.store import Store
from apiserver_fake.storage.watch_events import event_for, event_of, transition_type
from services.api.errors import Expired
from services.api.meta import Key
from services.api.wire import WatchEvent

T = TypeVar("T")

PIECE_ITEMS = 100
PIECE_BYTES = 128 << 10
SMALL = 500
"""Number of objects or changes up to which the start of a watch is made at once, for that watch alone."""
SELECTIONS_KEPT = 4
"""Number of selections for which a piece caches its events."""
ENCODED_BYTES_MAX = 64 << 20


class Shared:
    """The total bytes of encoded pieces that are cached besides the store, and their limit."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int = ENCODED_BYTES_MAX) -> None:
        self.bytes, self.bytes_max = 0, bytes_max


class Events(list[WatchEvent]):
    """The events of one piece, shared by several watches, with their encoded forms."""

    __slots__ = ("_encoded", "_shared")

    def __init__(self, events: Iterable[WatchEvent], shared: Shared) -> None:
        super().__init__(events)
        self._encoded: dict[Hashable, bytes] = {}
        self._shared = shared

    def encoded_bytes(self, form: Hashable, encode: Callable[[WatchEvent], bytes]) -> bytes:
        """Return all events encoded in a form, concatenated; cached as long as the piece, within the byte limit."""
        content = self._encoded.get(form)
        if content is None:
            content = b"".join(map(encode, self))
            if self._shared.bytes + len(content) <= self._shared.bytes_max:
                self._shared.bytes += len(content)
                self._encoded[form] = content
        return content

    def __del__(self) -> None:
        """Subtract the cached bytes from the total."""
        self._shared.bytes -= sum(map(len, self._encoded.values()))


class _Piece:
    """One piece: neighbouring objects of a state, or consecutive changes."""

    __slots__ = ("_kept", "changes", "records", "size")

    def __init__(self, records: Sequence[Record], changes: Sequence[Change] = ()) -> None:
        self.records, self.changes = records, changes
        self._kept: dict[Selection, Events] = {}

    def events(self, selection: Selection, shared: Shared) -> Events:
        """Return what the piece holds for watches with that selection."""
        events = self._kept.get(selection)
        if events is None:
            events = Events(_state(self.records, selection) or _changes(self.changes, selection), shared)
            if len(self._kept) < SELECTIONS_KEPT:
                self._kept[selection] = events
        return events


def _state(records: Iterable[Record], selection: Selection) -> list[WatchEvent]:
    return [event_of(ADDED, record, "") for record in records if selection.matches(record)]


def _changes(changes: Iterable[Change], selection: Selection) -> list[WatchEvent]:
    seen = ((transition_type(change, selection), change) for change in changes)
    return [event_for(kind, change) for kind, change in seen if kind]


def _cut(items: Sequence[T], size_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Yield neighbours, so many that they are sent in a moment."""
    start = 0
    while start < len(items):
        end = start + first_of(map(size_of, islice(items, start, None)), PIECE_ITEMS, PIECE_BYTES)
        yield items[start:end]
        start = end


def _size(event: WatchEvent) -> int:
    return len(event.body)


def _record_size(record: Record) -> int:
    return len(record.body)


def _change_size(change: Change) -> int:
    return max(len(change.record.body), len(change.previous.body) if change.previous is not None else 0)


class _State:
    """All objects of a kind at one version, in key order."""

    __slots__ = ("__weakref__", "first_keys", "pieces", "rv")

    def __init__(self, rv: int, pieces: list[_Piece]) -> None:
        self.rv, self.pieces = rv, pieces
        self.first_keys = [piece.records[0].key for piece in pieces]

    def of(self, namespace: str) -> list[_Piece]:
        """Return the pieces in which objects of a namespace may stand; "" is all."""
        if not namespace:
            return self.pieces
        low = max(0, bisect_right(self.first_keys, Key(namespace, "")) - 1)
        return self.pieces[low : bisect_left(self.first_keys, Key(namespace + "\0", ""))]

    def with_changes(self, rv: int, changes: Sequence[Change]) -> _State:
        """Return the state after these changes, which shares every piece that they do not touch."""
        last = {change.record.key: change for change in changes}
        if not self.pieces:
            return _State(rv, [])
        touched: dict[int, list[Change]] = {}
        for key, change in last.items():
            touched.setdefault(max(0, bisect_right(self.first_keys, key) - 1), []).append(change)
        pieces: list[_Piece] = []
        for number, piece in enumerate(self.pieces):
            piece_changes = touched.get(number)
            if piece_changes is None:
                pieces.append(piece)
                continue
            records = {record.key: record for record in piece.records}
            for change in piece_changes:
                records.pop(change.record.key, None)
                if change.type != DELETED:
                    records[change.record.key] = change.record
            pieces += map(_Piece, _cut([records[key] for key in sorted(records)], _record_size))
        return _State(rv, pieces)


class _Part:
    """Neighbouring changes, which are read and cut into pieces when the first watch takes them."""

    __slots__ = ("_block", "_pieces")

    def __init__(self, block: Block) -> None:
        self._block = block
        self._pieces: list[_Piece] | None = None

    @property
    def last_rv(self) -> int:
        """The version of the last change."""
        return self._block.last_rv

    @property
    def count(self) -> int:
        """The number of changes."""
        return self._block.count

    def pieces(self) -> list[_Piece]:
        """Return the changes in pieces, the same for all watches."""
        if self._pieces is None:
            self._pieces = [_Piece((), part) for part in _cut(self._block.changes(), _change_size)]
        return self._pieces

    def changes_above(self, rv: int) -> list[Change]:
        """Return the changes above `rv`, oldest first."""
        return [change for change in self._block.changes() if change.rv > rv]

    def above(self, rv: int) -> _Part:
        """Return the part without the changes up to `rv`, of which it has at least one more."""
        return self if self._block.first_rv > rv else _Part(Block(self.changes_above(rv)))


class _Missed:
    """The changes of a kind above one version, oldest first."""

    __slots__ = ("__weakref__", "after", "parts", "rv")

    def __init__(self, after: int, rv: int, parts: list[_Part]) -> None:
        self.after, self.rv, self.parts = after, rv, parts

    def above(self, rv: int) -> list[_Part]:
        """Return the parts with changes above `rv`; all but the first are those of other watches."""
        first, *others = self.parts[bisect_right(self.parts, rv, key=_last_rv_of) :]
        return [first.above(rv), *others]


def _last_rv_of(part: _Part) -> int:
    return part.last_rv


class Backlog:
    """The rest of one watch's start, which it has not taken yet: by whole pieces, or by a number of events."""

    __slots__ = ("_last", "_pieces", "_rest")

    def __init__(self, pieces: Iterator[Events] | None, last: Sequence[WatchEvent] = ()) -> None:
        self._pieces = pieces
        self._rest: list[WatchEvent] = []
        self._last = list(last)

    def __bool__(self) -> bool:
        """Whether there may be more events."""
        return self._pieces is not None or bool(self._rest) or bool(self._last)

    def piece(self) -> list[WatchEvent]:
        """Return the next piece; it may be empty if the watch selects none of its events."""
        if self._rest:
            rest, self._rest = self._rest, []
            return rest
        events = next(self._pieces, None) if self._pieces is not None else None
        if events is not None:
            return events
        self._pieces = None
        last, self._last = self._last, []
        return last

    def take(self, events_max: int, bytes_max: int) -> list[WatchEvent]:
        """Return the next events within the limits, at least one if there is any; pieces are joined and cut for
        that.
        """
        while (self._pieces or self._last) and len(self._rest) <= events_max and _bytes(self._rest) <= bytes_max:
            rest, self._rest = self._rest, []
            self._rest = [*rest, *self.piece()]
        count = first_of(map(_size, self._rest), events_max, bytes_max)
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


def first_of(sizes: Iterable[int], events_max: int, bytes_max: int) -> int:
    """Return how many of the first events of these sizes fit into one batch; at least one if there is any."""
    count = total = 0
    for size in sizes:
        total += size
        if count and (count >= events_max or total > bytes_max):
            break
        count += 1
    return count


def _bytes(events: Iterable[WatchEvent]) -> int:
    return sum(map(_size, events))


class Backlogs:
    """Makes backlogs. Shared pieces live as long as a watch that uses them."""

    def __init__(self, store: Store) -> None:
        self._store, self.shared = store, Shared()
        self._states: WeakValueDictionary[str, _State] = WeakValueDictionary()
        self._missed: WeakValueDictionary[str, _Missed] = WeakValueDictionary()

    def size(self, resource: str, selection: Selection, after: int | None) -> int:
        """Return the most objects (`after` None) or changes that a watch begins with; 0 for a watch that would be
        refused.
        """
        if after is None:
            return self._store.most(resource, selection)
        try:
            return self._store.count_after(resource, after)
        except Expired:
            return 0

    def state(self, resource: str, selection: Selection, last: Sequence[WatchEvent]) -> Backlog | None:
        """Return a backlog of the current state, followed by `last`; None if there are no events."""
        if self._store.most(resource, selection) <= SMALL:
            found = _state(self._store.select(resource, selection).records, selection)
            return self._own(found, last)
        state = self._state_of(resource)
        return Backlog(self._piece_events(state, state.of(selection.namespace), selection), last)

    def backlog_after(self, resource: str, selection: Selection, after: int) -> Backlog | None:
        """Return a backlog of the changes above a version; None if there are none. Raises: Expired."""
        if self._store.count_after(resource, after) <= SMALL:
            events = _changes(self._store.changes_after(resource, after), selection)
            return self._own(events, ())
        missed = self._missed_of(resource, after)
        pieces = chain.from_iterable(part.pieces() for part in missed.above(after))
        return Backlog(self._piece_events(missed, pieces, selection))

    def _own(self, events: list[WatchEvent], last: Sequence[WatchEvent]) -> Backlog | None:
        parts = (Events(part, self.shared) for part in _cut(events, _size))
        return Backlog(parts if events else None, last) if events or last else None

    def _piece_events(self, held: object, pieces: Iterable[_Piece], selection: Selection) -> Iterator[Events]:
        """Yield the pieces' events; what they are pieces of stays for others as long as this watch has not ended."""
        for piece in pieces:
            yield piece.events(selection, self.shared)
        del held

    def _state_of(self, resource: str) -> _State:
        store, known = self._store, self._states.get(resource)
        if known is not None:
            try:
                changes = store.changes_after(resource, known.rv)
            except Expired:
                changes = None
            if changes is not None and len(changes) * 4 < store.most(resource, Selection()):
                if not changes:
                    return known
                known = self._states[resource] = known.with_changes(store.rv, changes)
                return known
        records = store.select(resource, Selection()).records
        state = self._states[resource] = _State(store.rv, list(map(_Piece, _cut(records, _record_size))))
        return state

    def _missed_of(self, resource: str, after: int) -> _Missed:
        store, known = self._store, self._missed.get(resource)
        parts: list[_Part] = []
        if known is not None and known.after <= after and known.rv >= store.window_start:
            blocks = store.blocks_after(resource, known.rv)
            if not blocks:
                return known
            parts = known.parts[bisect_right(known.parts, store.window_start, key=_last_rv_of) :]
            after = max(known.after, store.window_start)
            if parts and parts[-1].count < PIECE_ITEMS:
                blocks[0] = Block([*parts.pop().changes_above(after), *blocks[0].changes()])
        else:
            blocks = store.blocks_after(resource, after)
        parts += map(_Part, blocks)
        missed = self._missed[resource] = _Missed(after, store.rv, parts)
        return missed
