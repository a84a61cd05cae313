"""The in-memory store of all objects: versions, the window of changes, indexes, snapshots at a version.

Pure. Writes are staged in a `Staged` batch, which sees its own changes while readers see only published
changes; publishing moves the visible version in one step (S2). Documents are encoded once and kept as bytes;
lists, gets and watches return those bytes.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from apiserver_fake.storage.change_log import BLOCK, Block, ChangeLog
from apiserver_fake.storage.records import (
    ADDED,
    DELETED,
    MODIFIED,
    BaseObject,
    Cause,
    Change,
    Entry,
    Page,
    Record,
    Selection,
    beside,
    fields_of,
    head_of,
    record_of,
    undefined_resource,
)
from services.api.errors import Expired, RequestEntityTooLarge
from services.api.meta import Document, Key, Resource

WINDOW_S = 300.0
WINDOW_CHANGES = 20_000
WINDOW_BYTES_MAX = 256 << 20
OBJECT_BYTES_MAX = 1_536 << 10
LINGERING = BLOCK
"""Number of changes of one kind that are kept after they have left the window, so that they are dropped together."""
KIND_BITS = 20
KIND_MASK = (1 << KIND_BITS) - 1
SAMPLED = 4
"""Number of objects by which the size of a kind's objects is estimated."""
INDEXED_FIELDS: dict[str, tuple[str, ...]] = {"pods": ("spec.nodeName",)}
"""Fields by resource whose equality selectors are answered from an index; `metadata.name` always is."""


class _Table:
    """All objects of one kind and the changes of the window, oldest first."""

    __slots__ = ("by_field", "changes", "counts", "indexed", "keys", "number", "objects")

    def __init__(self, number: int, indexed: tuple[str, ...] = ()) -> None:
        self.number = number
        self.objects: dict[Key, Record] = {}
        self.keys: list[Key] = []
        self.changes = ChangeLog()
        self.indexed = indexed
        self.by_field: dict[tuple[str, str], dict[Key, Record]] = {}
        self.counts: dict[str, int] = {}

    @property
    def is_cluster_scoped(self) -> bool:
        """Whether no object is in a namespace."""
        return self.counts.get("", 0) == len(self.objects)

    def put(self, record: Record, previous: Record | None) -> None:
        key = Key(record.namespace, record.name)
        self.objects[key] = record
        if previous is None:
            # A Store that is loaded in key order appends; everything else finds its place.
            if self.keys and self.keys[-1] > key:
                insort(self.keys, key)
            else:
                self.keys.append(key)
            self.counts[record.namespace] = self.counts.get(record.namespace, 0) + 1
        for field in self.indexed:
            value = record.fields.get(field, "")
            if previous is not None and previous.fields.get(field, "") != value:
                self._forget(field, previous)
            if value:
                self.by_field.setdefault((field, value), {})[key] = record

    def remove(self, previous: Record) -> None:
        key = previous.key
        del self.objects[key]
        del self.keys[bisect_left(self.keys, key)]
        self.counts[previous.namespace] -= 1
        for field in self.indexed:
            self._forget(field, previous)

    def _forget(self, field: str, previous: Record) -> None:
        value = previous.fields.get(field, "")
        found = self.by_field.get((field, value))
        if found is not None:
            found.pop(previous.key, None)
            if not found:
                del self.by_field[(field, value)]


class Store:
    """Objects of all kinds under one version counter.

    Invariant: `rv` is the visible version; every change in `(window_start, rv]` is in the window, and readers see
    no object with a higher version.
    """

    def __init__(
        self, *, hashing: bool = False, window_s: float = WINDOW_S, window_changes: int = WINDOW_CHANGES
    ) -> None:
        self.rv = self.window_start = self.window_bytes = self.count = self.state_hash = 0
        self.hashing = hashing
        self._window_s, self._window_changes = window_s, window_changes
        self._tables: dict[str, _Table] = {}
        self._kept: deque[int] = deque()
        """One number for each change of the window, whose versions are dense: its size, then its kind's number."""
        self._window: deque[tuple[int, float]] = deque()
        """The last version of each batch of the window, and the batch's time."""
        self._numbered: list[_Table] = []
        self._leaving: Callable[[int], None] | None = None
        self.bytes_left = 0
        """Bytes of changes that have left the window since it was made."""

    def _table(self, resource: str) -> _Table:
        table = self._tables.get(resource)
        if table is None:
            table = self._tables[resource] = _Table(len(self._numbered), INDEXED_FIELDS.get(resource, ()))
            self._numbered.append(table)
        return table

    def get(self, resource: str, namespace: str, name: str) -> Record | None:
        """Return the visible object, or None."""
        table = self._tables.get(resource)
        return table.objects.get(Key(namespace, name)) if table is not None else None

    def counts(self) -> dict[str, int]:
        """Return the number of objects by resource, in name order."""
        return {name: len(self._tables[name].objects) for name in sorted(self._tables)}

    def size_of(self, resource: str) -> tuple[int, int]:
        """Return the number of objects of a kind, and their approximate total bytes, estimated from the first few."""
        table = self._tables.get(resource)
        if table is None or not table.objects:
            return 0, 0
        few = [len(table.objects[key].body) for key in table.keys[:SAMPLED]]
        return len(table.objects), len(table.objects) * (sum(few) // len(few))

    def count_in(self, resource: str, namespace: str) -> int:
        """Return the number of objects of a kind in one namespace."""
        table = self._tables.get(resource)
        return table.counts.get(namespace, 0) if table is not None else 0

    @property
    def is_window_full(self) -> bool:
        """Whether the window can neither shrink nor take more bytes (L-HIST)."""
        return self.window_bytes > WINDOW_BYTES_MAX and len(self._kept) <= self._window_changes

    def count_after(self, resource: str, rv: int) -> int:
        """Return the number of a kind's changes above `rv`. Raises: Expired when some have left the window."""
        if rv < self.window_start:
            raise Expired(f"too old resource version: {rv} ({self.rv})")
        table = self._tables.get(resource)
        if table is None:
            return 0
        return table.changes.count_after(rv)

    def changes_after(self, resource: str, rv: int) -> list[Change]:
        """Return a kind's changes above `rv`, oldest first. Raises: Expired when some have left the window."""
        if rv < self.window_start:
            raise Expired(f"too old resource version: {rv} ({self.rv})")
        table = self._tables.get(resource)
        if table is None:
            return []
        return table.changes.after(rv)

    def blocks_after(self, resource: str, rv: int) -> list[Block]:
        """Return a kind's changes above `rv` as blocks. Raises: Expired when some have left the window."""
        if rv < self.window_start:
            raise Expired(f"too old resource version: {rv} ({self.rv})")
        table = self._tables.get(resource)
        return [] if table is None else table.changes.blocks_after(rv)

    def get_at(self, resource: str, namespace: str, name: str, at: int) -> Record | None:
        """Return the object as it was at version `at`; None if it did not exist.

        Raises: Expired when `at` is below the window.
        """
        key = Key(namespace, name)
        later = (change.previous for change in self.changes_after(resource, at) if change.record.key == key)
        return next(later, self.get(resource, namespace, name))

    def body_at(self, resource: str, rv: int) -> bytes:
        """Return the body of the kind's change at a version that the window has."""
        return self._tables[resource].changes.first_after(rv - 1).record.body

    def on_leaving(self, notify: Callable[[int], None]) -> None:
        """Register `notify`, which is called with the version of each change that is about to leave the window."""
        self._leaving = notify

    @property
    def bytes_packed(self) -> int:
        """Bytes of old bodies that were packed since the store was made."""
        return sum(table.changes.packed_bytes for table in self._tables.values())

    def changes_of(self, resource: str, namespace: str, name: str) -> list[Change]:
        """Return the changes in the window of all objects that had that name, oldest first."""
        key = Key(namespace, name)
        return [change for change in self.changes_after(resource, self.window_start) if change.record.key == key]

    def select(
        self,
        resource: str,
        selection: Selection,
        *,
        at: int | None = None,
        after: Key | None = None,
        limit: int = 0,
        bytes_max: int = 0,
    ) -> Page:
        """Return the selected objects in key order, as they are or as they were at version `at`.

        Raises: Expired when `at` is below the window. `after` starts behind that key; `limit` and `bytes_max`
        of 0 mean no limit.
        """
        # What the keys that changed above `at` held then.
        undone: dict[Key, Record | None] = {}
        if at is not None and at != self.rv:
            for change in self.changes_after(resource, at):
                undone.setdefault(change.record.key, change.previous)
        table = self._tables.get(resource)
        if table is None:
            return Page([])
        candidates = self._candidates(table, selection, after, undone)
        if not limit and not bytes_max:
            if not selection.is_filtered:
                return Page(list(candidates))
            return Page([record for record in candidates if selection.matches(record)])
        records: list[Record] = []
        size = 0
        for record in candidates:
            if not selection.matches(record):
                continue
            if (limit and len(records) >= limit) or (bytes_max and records and size + len(record.body) > bytes_max):
                remaining = None if selection.is_filtered else 1 + sum(1 for _ in candidates)
                return Page(records, records[-1].key, remaining)
            records.append(record)
            size += len(record.body)
        return Page(records)

    def _candidates(
        self, table: _Table, selection: Selection, after: Key | None, undone: dict[Key, Record | None]
    ) -> Iterator[Record]:
        objects = table.objects
        keys = self._keys(table, selection, after)
        if not undone:
            return (objects[key] for key in keys)
        start = _range(table.keys, selection.namespace, after)[2]
        gone = sorted(k for k, was in undone.items() if was is not None and k not in objects and k >= start)
        if selection.namespace:
            gone = [k for k in gone if k.namespace == selection.namespace]
        # An indexed shortcut shows today's values, which is not where changed objects were then.
        all_keys = self._keys(table, Selection(selection.namespace), after)
        merged = heapq.merge(all_keys, gone)
        then = ((undone[key] if key in undone else objects[key]) for key in merged)
        return (record for record in then if record is not None)

    def _keys(self, table: _Table, selection: Selection, after: Key | None) -> Iterable[Key]:
        low, high, start = _range(table.keys, selection.namespace, after)
        name = selection.exact("metadata.name") if selection.fields else None
        if name is not None and (selection.namespace or table.is_cluster_scoped):
            key = Key(selection.namespace, name)
            return [key] if key in table.objects and key >= start else []
        for field in table.indexed:
            value = selection.exact(field) if selection.fields else None
            if value:
                return sorted(key for key in table.by_field.get((field, value), ()) if key >= start)
        return islice(table.keys, low, high)

    def most(self, resource: str, selection: Selection) -> int:
        """Return an upper bound of the number of objects in a selection, without reading them."""
        table = self._tables.get(resource)
        if table is None:
            return 0
        if selection.fields:
            if selection.exact("metadata.name") and (selection.namespace or table.is_cluster_scoped):
                return 1
            for field in table.indexed:
                if value := selection.exact(field):
                    return len(table.by_field.get((field, value), ()))
        return table.counts.get(selection.namespace, 0) if selection.namespace else len(table.objects)

    def state_at(self, rv: int) -> list[Record]:
        """Return every object as it was at `rv`, by resource and key. Raises: Expired."""
        return [
            record for resource in sorted(self._tables) for record in self.select(resource, Selection(), at=rv).records
        ]

    def reindex(self, resource: Resource) -> None:
        """Compute the selectable fields of a kind's objects and changes again, because the kind's fields have
        changed.
        """
        table = self._tables.get(resource.name)
        if table is None:
            return

        def reindex_record(record: Record | None) -> Record | None:
            if record is None:
                return None
            fields = fields_of(resource, msgspec.json.decode(record.body))
            return record if fields == record.fields else msgspec.structs.replace(record, fields=fields)

        for key, record in table.objects.items():
            new_record = reindex_record(record)
            assert new_record is not None, "an object has a record"
            table.objects[key] = new_record

        def reindex_change(change: Change) -> Change:
            return msgspec.structs.replace(
                change, record=reindex_record(change.record) or change.record, previous=reindex_record(change.previous)
            )

        table.changes.replace(reindex_change)

    def stage(self) -> Staged:
        """Return an empty batch on top of the visible state. Only one may be published on each state."""
        return Staged(self)

    def publish(self, changes: Sequence[Change], now_s: float) -> None:
        """Make durable changes visible, all at once, and drop old changes from the window."""
        if not changes:
            return
        assert changes[0].rv == self.rv + 1, f"change {changes[0].rv} does not follow {self.rv}"
        for change in changes:
            self._apply(change, now_s)
        self.rv = changes[-1].rv
        self._window.append((self.rv, now_s))
        if len(self._kept) > self._window_changes:
            self.trim(now_s)

    def _apply(self, change: Change, now_s: float) -> None:
        record, previous = change.record, change.previous
        table = self._tables.get(record.resource) or self._table(record.resource)
        if change.type == DELETED:
            assert previous is not None
            table.remove(previous)
            self.count -= 1
        else:
            table.put(record, previous)
            self.count += previous is None
            self.state_hash += record.digest
        if previous is not None:
            self.state_hash -= previous.digest
        self.state_hash %= 1 << 256
        log = table.changes
        log.newest.append(change)
        if len(log.newest) >= log.due:
            log.arrange(table.objects, now_s)
        self._kept.append(len(record.body) << KIND_BITS | table.number)
        self.window_bytes += len(record.body)

    def trim(self, now_s: float) -> None:
        """Drop changes that are older than the window and not among its last (5 min and 20,000 changes)."""
        kept, batches = self._kept, self._window
        while len(kept) > self._window_changes:
            rv = self.window_start + 1
            while batches[0][0] < rv:
                batches.popleft()
            if now_s - batches[0][1] < self._window_s and self.window_bytes <= WINDOW_BYTES_MAX:
                return
            if self._leaving is not None:
                self._leaving(rv)
            leaving = kept.popleft()
            size = leaving >> KIND_BITS
            self.window_bytes -= size
            self.bytes_left += size
            self._numbered[leaving & KIND_MASK].changes.drop_oldest()
            self.window_start = rv

    def load(self, base: Iterable[Record], base_rv: int) -> None:
        """Fill the empty store with these objects as the state at `base_rv`."""
        assert self.count == 0
        assert not self._kept
        for record in sorted(base, key=lambda r: (r.resource, r.key)):
            self._table(record.resource).put(record, None)
            self.count += 1
            self.state_hash = (self.state_hash + record.digest) % (1 << 256)
        self.rv = self.window_start = base_rv


def _range(keys: list[Key], namespace: str, after: Key | None) -> tuple[int, int, Key]:
    start = Key(namespace, "")
    if after is not None and (after.namespace, after.name + "\0") > start:
        start = Key(after.namespace, after.name + "\0")
    low = bisect_left(keys, start)
    high = bisect_left(keys, Key(namespace + "\0", "")) if namespace else len(keys)
    return low, high, start


class Gap(Exception):
    """The journal's entries do not follow each other; the message names both versions (S15)."""


def restore(
    store: Store,
    base: Iterable[BaseObject],
    base_rv: int,
    entries: Iterable[Entry],
    now_s: float,
    resources: Mapping[str, Resource],
) -> None:
    """Rebuild the state of before a restart; `resources`: the kinds by wire name.

    Raises: Gap when an RV is missing or repeated, does not match its previous version, or is of an unknown kind.
    """
    store.load((_record(store, resources, each.resource, each.rv, each.body) for each in base), base_rv)
    for entry in entries:
        store.publish(changes_of(store, (entry,), resources), now_s)


def _record(store: Store, resources: Mapping[str, Resource], name: str, rv: int, body: bytes) -> Record:
    """Return the record of a stored object; its kind may be one that a definition defines, or defined once."""
    document = msgspec.json.decode(body) if store.hashing else head_of(name, body)
    resource = resources.get(name) or undefined_resource(name, document)
    if resource is None:
        raise Gap(f"change {rv} is of kind {name}, which this server does not know")
    return record_of(resource, document, rv, body, hashing=store.hashing)


def changes_of(store: Store, entries: Iterable[Entry], resources: Mapping[str, Resource]) -> list[Change]:
    """Return the changes that a sequence of entries makes to the visible state.

    Raises: Gap when an RV is missing or repeated, does not match its previous version, or is of an unknown kind.
    """
    changes: list[Change] = []
    newest: dict[tuple[str, str, str], Record | None] = {}
    rv = store.rv
    for entry in entries:
        if entry.rv != rv + 1:
            raise Gap(f"change {entry.rv} follows {rv}")
        rv = entry.rv
        record = _record(store, resources, entry.resource, rv, entry.body)
        place = (entry.resource, entry.namespace, entry.name)
        previous = newest[place] if place in newest else store.get(*place)
        if (previous.rv if previous else 0) != entry.previous_rv:
            raise Gap(
                f"change {rv} follows version {entry.previous_rv} of {entry.resource} "
                f"{entry.namespace}/{entry.name}, but version {previous.rv if previous else 0} is there"
            )
        newest[place] = None if entry.type == DELETED else record
        changes.append(Change(rv, entry.type, record, previous, entry.group_end, entry.traceparent, entry.cause))
    return changes


class Staged:
    """A batch of changes that are not yet in the journal: they see each other, readers do not see them (S2)."""

    def __init__(self, store: Store) -> None:
        self._store, self._tables = store, store._tables
        self.rv = store.rv
        self.cause: Cause | None = None
        self.changes: list[Change] = []
        self.bytes = self._news = 0
        self._news_in: dict[tuple[str, str], int] = {}
        self._overlay: dict[str, dict[Key, Record | None]] = {}

    def get(self, resource: str, namespace: str, name: str) -> Record | None:
        """Return the newest object, staged or visible."""
        key, staged = Key(namespace, name), self._overlay.get(resource)
        if staged is not None and key in staged:
            return staged[key]
        table = self._tables.get(resource)
        return table.objects.get(key) if table is not None else None

    def select(self, resource: str, selection: Selection) -> list[Record]:
        """Return the newest selected objects: visible ones in key order, then newly staged ones."""
        overlay = self._overlay.get(resource)
        if not overlay:
            return self._store.select(resource, selection).records
        staged = dict(overlay)
        visible = self._store.select(resource, Selection(selection.namespace)).records
        records = [staged.pop(record.key) if record.key in staged else record for record in visible]
        records.extend(staged.values())
        return [record for record in records if record is not None and selection.matches(record)]

    def count(self) -> int:
        """Return the number of objects after the batch."""
        return self._store.count + self._news

    def count_in(self, resource: str, namespace: str) -> int:
        """Return the number of objects of a kind in a namespace after the batch."""
        table = self._tables.get(resource)
        visible = table.counts.get(namespace, 0) if table is not None else 0
        return visible + self._news_in.get((resource, namespace), 0)

    def _note(self, change: Change, sign: int) -> None:
        news = sign * ((change.previous is None) - (change.type == DELETED))
        if news:
            place = (change.record.resource, change.record.namespace)
            self._news += news
            self._news_in[place] = self._news_in.get(place, 0) + news

    def remove(self, resource: Resource, document: Document, traceparent: str = "") -> Record:
        """Stage a removal; `document` is the last content and gets the removal's resourceVersion."""
        return self.put(resource, document, traceparent, is_removal=True)

    def put(self, resource: Resource, document: Document, traceparent: str = "", *, is_removal: bool = False) -> Record:
        """Stage a write, versioning `document`. Raises: RequestEntityTooLarge above 1.5 MiB, nothing staged."""
        rv, name = self.rv + 1, resource.name
        document["metadata"]["resourceVersion"] = str(rv)
        body = msgspec.json.encode(document)
        if len(body) > OBJECT_BYTES_MAX:
            object_name = document["metadata"].get("name", "")
            text = f'{resource.plural} "{object_name}" has {len(body)} bytes, at most {OBJECT_BYTES_MAX} can be stored'
            raise RequestEntityTooLarge(text)
        record = record_of(resource, document, rv, body, hashing=self._store.hashing)
        key, overlay = Key(record.namespace, record.name), self._overlay.setdefault(name, {})
        if key in overlay:
            previous = overlay[key]
        else:
            table = self._tables.get(name)
            previous = table.objects.get(key) if table is not None else None
        if previous is not None:
            record = beside(record, previous)
        change_type = DELETED if is_removal else ADDED if previous is None else MODIFIED
        change = Change(rv, change_type, record, previous, rv, traceparent, self.cause)
        self.changes.append(change)
        if change_type != MODIFIED:
            self._note(change, 1)
        overlay[key] = None if is_removal else record
        self.rv = rv
        self.bytes += len(body)
        return record

    def rollback(self, mark: int) -> None:
        """Undo all changes staged after the first `mark` changes."""
        if len(self.changes) == mark:
            return
        for change in reversed(self.changes[mark:]):
            record = change.record
            self._overlay[record.resource][record.key] = change.previous
            self.bytes -= len(record.body)
            self._note(change, -1)
        del self.changes[mark:]
        self.rv = self.changes[-1].rv if self.changes else self._store.rv

    def seal(self, mark: int) -> None:
        """Make all changes staged after the first `mark` changes one group (S4)."""
        if len(self.changes) - mark < 2:
            return
        end = self.changes[-1].rv
        self.changes[mark:] = [msgspec.structs.replace(change, group_end=end) for change in self.changes[mark:]]
