"""Lists of stored objects as Tables and as metadata alone, assembled from stored bytes.

An object's metadata is a slice of its stored bytes, and the cells of its row change only if they show ages. So
both are computed once for each version of an object, and a long list is written without decoding any object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.json import encode

from apiserver_fake.rest import tables
from apiserver_fake.rest.encoding import metadata_slice
from apiserver_fake.rest.media_types import JSON, Form
from apiserver_fake.storage.records import Record
from services.api.meta import Column, Document, Resource
from services.api.printing import cells, value_at
from services.api.times import duration, parse_time

ROWS_MAX: Final = 20_000
PART: Final = 100
"""Number of objects per part of a list; other tasks run between the parts."""


class _Row(NamedTuple):
    """The row of one object at one version. `cells`: JSON, or the time from which an age is counted."""

    record: Record
    columns: tuple[Column, ...]
    cells: tuple[bytes | float, ...]
    start: int
    end: int


class _Now(float):
    """The current time, with a flag that records whether a cell was computed from it."""

    is_used = False

    def _mark_used(self) -> float:
        self.is_used = True
        return float(self)

    def __sub__(self, other: float) -> float:
        return self._mark_used() - other

    def __rsub__(self, other: float) -> float:
        return other - self._mark_used()

    def __lt__(self, other: float) -> bool:
        return self._mark_used() < other

    def __le__(self, other: float) -> bool:
        return self._mark_used() <= other

    def __gt__(self, other: float) -> bool:
        return self._mark_used() > other

    def __ge__(self, other: float) -> bool:
        return self._mark_used() >= other


class Rows:
    """A cache of rows of listed objects; a row is valid until its object changes."""

    def __init__(self, most: int = ROWS_MAX) -> None:
        self._rows: dict[tuple[str, str, str], _Row] = {}
        self._most = most

    def table(
        self,
        resource: Resource,
        head: Document,
        records: Iterable[Record],
        now_wall_s: float,
        *,
        include: str = "Metadata",
        version: str = "v1",
    ) -> Iterator[bytes]:
        """Yield the Table of the list `head` with these objects, as `tables.table_of` makes it, in short parts.

        `include`: Metadata or None.
        """
        empty = tables.table(resource, [], head.get("metadata") or {}, now_wall_s, version=version)
        columns = tables.columns_of(resource)
        is_bare = include == "None"
        opening, closing = b'],"object":' + _opening(version), b"}}"
        ages: dict[float, bytes] = {}

        def encode_row(record: Record) -> bytes:
            row = self._row(record, columns, now_wall_s)
            cells = b",".join([_age(cell, now_wall_s, ages) if type(cell) is float else cell for cell in row.cells])  # type: ignore[misc]
            if is_bare:
                return b'{"cells":[%b]}' % cells
            return b"".join((b'{"cells":[', cells, opening, record.body[row.start : row.end], closing))

        return _parts(encode(empty), map(encode_row, records))

    def metadata(self, head: Document, records: Iterable[Record], version: str = "v1") -> Iterator[bytes]:
        """Yield the list `head` with these objects' metadata, as `tables.partial_metadata_list` makes it, in short
        parts.
        """
        opening = _opening(version)

        def encode_record(record: Record) -> bytes:
            start, end = metadata_slice(record.body)
            return b"".join((opening, record.body[start:end], b"}"))

        return _parts(encode(tables.partial_metadata_list(head, version)), map(encode_record, records))

    def _row(self, record: Record, columns: tuple[Column, ...], now_wall_s: float) -> _Row:
        key = (record.resource, record.namespace, record.name)
        row = self._rows.get(key)
        if row is None or row.record is not record or row.columns is not columns:
            now = _Now(now_wall_s)
            row = _Row(
                record, columns, _cells(columns, msgspec.json.decode(record.body), now), *metadata_slice(record.body)
            )
            if not now.is_used:
                if len(self._rows) >= self._most:
                    del self._rows[next(iter(self._rows))]
                self._rows[key] = row
        return row


def _opening(version: str) -> bytes:
    return encode({**tables.partial_metadata({}, version), "metadata": 0})[:-2]


def _parts(empty: bytes, items: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a list whose last member is empty with these items."""
    before = empty[:-2]
    while part := list(islice(items, PART)):
        yield before + b",".join(part)
        before = b","
    yield (before if before != b"," else b"") + empty[-2:]


def _cells(columns: tuple[Column, ...], document: Document, now: _Now) -> tuple[bytes | float, ...]:
    try:
        return tuple(_cell(column, document, now) for column in columns)
    except tables.UNREADABLE:
        return tuple(map(encode, tables.cells_of(columns, document, now)))


def _cell(column: Column, document: Document, now: _Now) -> bytes | float:
    if column.is_age and isinstance(column.source, str):
        value: Any = value_at(column.source, document)
        if value is not None and value != "":
            return parse_time(value)
    [cell] = cells((column,), document, now)
    return encode(cell)


def _age(since: float, now_wall_s: float, known: dict[float, bytes]) -> bytes:
    text = known.get(since)
    if text is None:
        text = known[since] = encode(duration(now_wall_s - since))
    return text


def is_made_of_slices(form: Form, include: str) -> bool:
    """Whether a list in that form shows only the metadata and cells of an object."""
    if form.media_type != JSON:
        return False
    return form.convert == "PartialObjectMetadata" or (form.convert == "Table" and include != "Object")
