"""API servers that are born quickly and die by SIGKILL: a process that has everything imported forks one per line.

`python -m tests.durability.lives WATERMARK [MUTANT] < lines`: each line is the JSON list of one server's arguments; answered
are `pid N` when it runs and `exit N` when it has ended. The server is the product's, with one part wired in: before a
change counts as acknowledged, the journal writes down how far the log was synced (guarantees 12.3, step 1).
"""

import errno
import gc
import json
import os
import signal
import sqlite3
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import apiserver_fake.wiring as wiring
from apiserver_fake.config import ApiServerConfig
from apiserver_fake.storage import sqlite as product
from services.runtime.process import run

WATERMARK = struct.Struct(">QQ8s")
"""Newest change, bytes of the log up to its commit, and the salt of that log: it begins anew after it was written back."""
ACKNOWLEDGE_BEFORE_SYNC = "acknowledge-before-sync"
FOLD_OFTEN = "fold-often"
FAILING_SYNC = "failing-sync-"
_FULL = 2
WRITTEN_BACK_AT = 1_000 * 4_096
"""Bytes of the log from which on it is written back; SQLite's own `wal_autocheckpoint` is 1,000 pages."""


def log_end(directory: Path) -> tuple[int, bytes]:
    """Return where the last commit in the log ends, and the log's salt. The header of the WAL-index in SQLite's file
    format, https://www.sqlite.org/walformat.html."""
    with open(directory / "store.db-shm", "rb") as index:
        header = index.read(48)
    (page,) = struct.unpack_from("=H", header, 14)
    (frames,) = struct.unpack_from("=I", header, 16)
    return 32 + frames * (24 + (page if page != 1 else 65_536)), header[32:40]


class WatchedJournal(product.SqliteJournal):
    """The product's journal, which says how far it was synced.

    SQLite writes a long log back within the commit that made it so long: pages of a commit that is synced, but of which
    the harness does not know yet, would be in the database while it takes the commit out of the log. So here it is
    written back as soon as the commit is reported and acknowledged.
    """

    watermark: int

    def _connect(self, last_rv: int) -> None:
        super()._connect(last_rv)
        assert self._database is not None
        self._database.execute("PRAGMA wal_autocheckpoint=0")

    def _acknowledge(self, rv: int) -> None:
        assert self._database is not None
        # A journal that does not sync has no watermark: the harness may take all of it.
        if self._database.execute("PRAGMA synchronous").fetchone()[0] >= _FULL:
            self._report(rv)
        super()._acknowledge(rv)
        if log_end(self._directory)[0] >= WRITTEN_BACK_AT:
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _report(self, rv: int) -> None:
        os.pwrite(self.watermark, WATERMARK.pack(rv, *log_end(self._directory)), 0)


class AcknowledgingBeforeSync(WatchedJournal):
    """The mutant M1: a commit is answered when it is written, and synced by the next one."""

    _unsynced = 0

    def _connect(self, last_rv: int) -> None:
        super()._connect(last_rv)
        assert self._database is not None
        self._database.execute("PRAGMA synchronous=OFF")

    def _append(self, *arguments: object) -> None:
        if self._unsynced:
            with open(self._path.with_name("store.db-wal"), "rb") as log:
                os.fdatasync(log.fileno())
            self._report(self._unsynced)
        super()._append(*arguments)  # type: ignore[arg-type]

    def _acknowledge(self, rv: int) -> None:
        super()._acknowledge(rv)
        self._unsynced = rv


class FailingSync(WatchedJournal):
    """The sync of one commit of each life fails; what it should have synced is written."""

    at = 0
    _commits = 0

    def _append(self, *arguments: object) -> None:
        self._commits += 1
        if self._commits == self.at:
            assert self._database is not None
            self._database.execute("PRAGMA synchronous=OFF")
        super()._append(*arguments)  # type: ignore[arg-type]

    def _acknowledge(self, rv: int) -> None:
        if self._commits == self.at:
            raise OSError(errno.EIO, "Input/output error")
        super()._acknowledge(rv)


def _wire(watermark: Path, mutants: list[str]) -> None:
    journal: type[WatchedJournal] = AcknowledgingBeforeSync if ACKNOWLEDGE_BEFORE_SYNC in mutants else WatchedJournal
    for mutant in mutants:
        if mutant.startswith(FAILING_SYNC):
            journal, FailingSync.at = FailingSync, int(mutant.removeprefix(FAILING_SYNC))
    journal.watermark = os.open(watermark, os.O_RDWR | os.O_CREAT, 0o600)
    if FOLD_OFTEN in mutants:
        product.PRUNE_AFTER_CHANGES = 1
        product.FREE_PAGES_MAX = 8
    product.SqliteJournal = journal  # type: ignore[misc]


def _live(arguments: list[str]) -> int:
    return run("apiserver", ApiServerConfig, wiring.build, arguments, os.environ)


def serve(watermark: Path, mutants: list[str], live: Callable[[list[str]], int] = _live) -> None:
    """Fork a server for each line of standard input, one after the other."""
    _wire(watermark, mutants)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        arguments = json.loads(line)
        pid = os.fork()
        if not pid:
            code = 70
            try:
                code = live(arguments)
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(f"pid {pid}", flush=True)  # noqa: T201
        _, status = os.waitpid(pid, 0)
        print(f"exit {os.waitstatus_to_exitcode(status)}", flush=True)  # noqa: T201


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert sqlite3.sqlite_version_info >= (3, 35)
    serve(Path(sys.argv[1]), sys.argv[2:])
