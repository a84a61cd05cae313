"""Sort rows on disk, so that a trace may be longer than the memory: a nameless SQLite database does it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

CACHE_KIB: Final = 8 << 10
BATCH: Final = 1000


class Sorter:
    """Rows to sort by group and time; rows of one group and time stay in the order in which they were added."""

    def __init__(self) -> None:
        # An empty name is a database in a temporary file that is gone when it is closed.
        self._database = sqlite3.connect("")
        self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._database.execute("CREATE TABLE rows (place TEXT, at REAL, row BLOB)")
        self._waiting: list[tuple[str, float, bytes]] = []
        self._encoder, self.count = msgspec.msgpack.Encoder(), 0

    def put(self, group: str, at: float, row: Sequence[Any]) -> None:
        """Keep a row of plain values."""
        self._waiting.append((group, at, self._encoder.encode(row)))
        self.count += 1
        if len(self._waiting) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        self._database.executemany("INSERT INTO rows VALUES (?, ?, ?)", self._waiting)
        self._waiting.clear()

    def by_time(self) -> Iterator[tuple[str, float, list[Any]]]:
        """Yield (group, time, row), sorted by time."""
        return self._rows_in_order("at, rowid")

    def by_group(self) -> Iterator[tuple[str, float, list[Any]]]:
        """Yield (group, time, row), sorted by group, and by time within a group."""
        return self._rows_in_order("place, at, rowid")

    def _rows_in_order(self, order: str) -> Iterator[tuple[str, float, list[Any]]]:
        self._flush()
        for group, at, row in self._database.execute(f"SELECT place, at, row FROM rows ORDER BY {order}"):
            yield group, at, msgspec.msgpack.decode(row)

    def first(self) -> float:
        """Return the earliest time; 0 if there are no rows."""
        self._flush()
        found = self._database.execute("SELECT min(at) FROM rows").fetchone()[0]
        return float(found) if found is not None else 0.0
