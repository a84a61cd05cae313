"""The journal of one API server on one machine: a table of changes in an SQLite database, and the file
`acked`.

Files of the directory: `store.db` with SQLite's `-wal` and `-shm`, `lock`, which its holder keeps locked for
life (S17), and `acked`, which names the newest acknowledged change. SQLite silently reads a damaged or lost log
only up to the damage; `acked` records that there was more. A database that holds a store is refused without
`acked`, so that the loss of both together is refused, too (decision 0042). A refused store is left as it was
found.
"""

import asyncio
import errno
import fcntl
import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from apiserver_fake.storage.journal import EXIT_CORRUPT, Journal, JournalError, Recovered, checksum
from apiserver_fake.storage.records import BaseObject, Entry
from services.runtime.config import EXIT_IO, EXIT_LOCKED
from services.runtime.real import write_atomically

PRUNE_AFTER_CHANGES = 2_000
FREE_PAGES_MAX = 4_096
"""Free pages of 4 KiB that the database keeps; pages above that are returned to the disk."""
FREED_PAGES = 2_048
"""Pages that one pruning returns to the disk, so that no commit waits long for it."""
LOG_BYTES_MAX = 16 << 20
"""Bytes to which the write-ahead log is truncated after a checkpoint, should a large commit have made it longer."""
ACCEPTED_GAP = 1_000_000_000
"""Versions that are skipped when a loss is accepted, so that the next version is above any issued before.

An etcd member is restored in the same way: `etcdutl snapshot restore --bump-revision 1000000000
--mark-compacted`.
"""

STORE_FORMAT = 1
"""Format version of the tables below; raised whenever an older release could not continue with them."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (
    rv INTEGER PRIMARY KEY, type TEXT NOT NULL, group_end INTEGER NOT NULL, previous_rv INTEGER NOT NULL,
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, body BLOB NOT NULL,
    traceparent TEXT NOT NULL, identity TEXT NOT NULL, request_id TEXT NOT NULL, fingerprint BLOB NOT NULL,
    code INTEGER NOT NULL, answer BLOB, checksum BLOB NOT NULL);
"""
_CAUSE = {
    "verb": "TEXT NOT NULL DEFAULT ''",
    "subresource": "TEXT NOT NULL DEFAULT ''",
    "at_s": "REAL NOT NULL DEFAULT 0",
}
"""Columns of the table `changes` that were added later than the others."""
_COLUMNS = tuple(Entry.__struct_fields__)
_INSERT = f"INSERT INTO changes ({','.join(_COLUMNS)}, checksum) VALUES ({','.join('?' * (len(_COLUMNS) + 1))})"
_MAGIC = b"KLA1"
_ACKED_BYTES = len(_MAGIC) + 8 + 8 + 8
_OLD_ACKED_BYTES = 8
"""Size in bytes of the file `acked` before 0042, when it was the version alone."""
_GO_ON = "restore the directory as a whole from a copy, or see `keplab store --help`"


def _acked_content(secret: bytes, rv: int) -> bytes:
    """Return the content of `acked`: whose it is, the version, a checksum. It is never longer than a sector."""
    head = _MAGIC + checksum(b"acked\0" + secret) + rv.to_bytes(8, "big")
    return head + checksum(head)


def _acked_rv(raw: bytes, secret: bytes | None = None) -> int:
    """Return the version in that content; `secret`: of whose store it must be. Raises: ValueError that says why not."""
    if len(raw) == _OLD_ACKED_BYTES and not raw.startswith(_MAGIC):
        return int.from_bytes(raw, "big")
    if len(raw) != _ACKED_BYTES or not raw.startswith(_MAGIC) or checksum(raw[:-8]) != raw[-8:]:
        raise ValueError("damaged")
    rv = int.from_bytes(raw[-16:-8], "big")
    if secret is not None and _acked_content(secret, rv) != raw:
        raise ValueError("of another store")
    return rv


def _columns_of(database: sqlite3.Connection) -> list[str]:
    """Return the columns of a change that the table has; one that an earlier release made lacks the last."""
    known = {row[1] for row in database.execute("PRAGMA table_info(changes)")}
    return [name for name in _COLUMNS if name in known]


def _add_causes(database: sqlite3.Connection) -> None:
    """Have the table say which request brought a change; one that an earlier release made does not."""
    old = _columns_of(database)
    if len(old) == len(_COLUMNS):
        return
    sums = []
    for row in database.execute(f"SELECT {','.join(old)}, checksum FROM changes"):
        entry = Entry(*row[:-1])
        if checksum(msgspec.msgpack.encode(row[:-1])) == row[-1]:  # a bad one stays bad
            sums.append((checksum(msgspec.msgpack.encode(entry)), entry.rv))
    database.execute("BEGIN IMMEDIATE")
    for name, kind in _CAUSE.items():
        database.execute(f"ALTER TABLE changes ADD COLUMN {name} {kind}")
    database.executemany("UPDATE changes SET checksum = ? WHERE rv = ?", sums)
    database.execute("COMMIT")


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def _entry_of_kept(kept: BaseObject) -> Entry:
    metadata = msgspec.json.decode(kept.body)["metadata"]
    namespace = metadata.get("namespace", "")
    return Entry(
        kept.rv, "ADDED", kept.rv, 0, kept.resource, namespace, metadata["name"], metadata.get("uid", ""), kept.body
    )


def _last_rv(found: Recovered) -> int:
    return found.entries[-1].rv if found.entries else found.base_rv


class SqliteJournal(Journal):
    """One table of changes keyed by RV. SQLite syncs every transaction (WAL, `synchronous=FULL`).

    Rows at or below `folded_rv` are exactly the objects of that state; rows above it are the window, dense.
    SQLite checks its log's records but not its pages, so every row carries a checksum.
    """

    is_durable = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "store.db"
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._lock: int | None = None
        self._acked: int | None = None
        self._secret = b""
        self._folded_rv = 0
        self._database: sqlite3.Connection | None = None

    async def open(self, new_secret: bytes) -> Recovered:
        """Lock the directory, check the database and read it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._open, new_secret)

    def _open(self, new_secret: bytes) -> Recovered:
        try:
            self._take_lock()
            recovery = self._read()
            if recovery is None:
                self._refuse_what_is_left()
                recovery = Recovered(new_secret, is_first_start=True)
            else:
                self._check_acked(recovery)
            self._secret = recovery.secret
            self._connect(_last_rv(recovery))
        except OSError as error:
            raise JournalError(f"cannot use {self._directory}: {error.strerror}", EXIT_IO) from error
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{self._path}: {error}", EXIT_CORRUPT) from error
        return recovery

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"{self._directory} is in use by another API server (its lock is held)"
            raise JournalError(text, EXIT_LOCKED) from None

    def _read(self) -> Recovered | None:
        """Return what the database holds, None when no store was begun in it. Nothing is changed: the log is neither
        written back nor cut, as closing a connection that may write does."""
        if not self._path.exists() or not self._path.stat().st_size:
            return None
        database = sqlite3.connect(f"file:{quote(str(self._path.absolute()))}?mode=ro", uri=True)
        try:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'changes'").fetchone():
                return None
            result = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if result != "ok":
                raise JournalError(f"{self._path}: {result}", EXIT_CORRUPT)
            meta: dict[str, bytes] = dict(database.execute("SELECT key, value FROM meta"))
            if "secret" not in meta:
                return None
            recovery = Recovered(meta["secret"], int(meta["folded_rv"]))
            columns = _columns_of(database)
            encoder, packed = msgspec.msgpack.Encoder(), bytearray()
            for row in database.execute(f"SELECT {','.join(columns)}, checksum FROM changes ORDER BY rv"):
                entry = Entry(*row[:-1])
                encoder.encode_into(row[:-1], packed)
                if checksum(packed) != row[-1]:
                    raise JournalError(f"{self._path}: bad checksum in change {entry.rv}", EXIT_CORRUPT)
                if entry.rv <= recovery.base_rv:
                    recovery.base.append(BaseObject(entry.resource, entry.rv, entry.body))
                else:
                    recovery.entries.append(entry)
            return recovery
        finally:
            database.close()

    def _raw_acked(self) -> bytes | None:
        try:
            return (self._directory / "acked").read_bytes()
        except FileNotFoundError:
            return None

    def _refuse_what_is_left(self) -> None:
        """Refuse to begin a store where one was. Raises: JournalError."""
        log, raw = self._path.with_name("store.db-wal"), self._raw_acked()
        if log.exists() and log.stat().st_size and not self._path.exists():
            raise JournalError(f"{self._path}: missing, but {log.name} is there: {_GO_ON}", EXIT_CORRUPT)
        try:
            acked = _acked_rv(raw) if raw else 0
        except ValueError as error:
            text = f"{self._path}: missing or empty, and {self._directory / 'acked'}: {error}: {_GO_ON}"
            raise JournalError(text, EXIT_CORRUPT) from None
        if acked:
            text = f"{self._path}: missing or empty; change {acked} was acknowledged: {_GO_ON}"
            raise JournalError(text, EXIT_CORRUPT)

    def _check_acked(self, recovery: Recovered) -> None:
        """Compare what is there with what was acknowledged. Raises: JournalError when it is less or cannot be known."""
        last, raw = _last_rv(recovery), self._raw_acked()
        try:
            if raw is None:
                raise ValueError("missing")
            acked = _acked_rv(raw, recovery.secret)
        except ValueError as error:
            text = f"{self._directory / 'acked'}: {error}; changes after {last} may be lost with it: {_GO_ON}"
            raise JournalError(text, EXIT_CORRUPT) from None
        if last < acked:
            text = f"{self._path}-wal: damaged; change {acked} was acknowledged, the log ends at {last}: {_GO_ON}"
            raise JournalError(text, EXIT_CORRUPT)

    def _connect(self, last_rv: int) -> None:
        """Open the database for writing; what there is not yet is made, `acked` first: no database is without it."""
        place, raw = self._directory / "acked", self._raw_acked()
        if raw is None or raw[:-16] != _acked_content(self._secret, 0)[:-16]:
            # Only when it must be: a store on a full disk is read, too.
            write_atomically(place, _acked_content(self._secret, last_rv), mode=0o600)
        self._acked = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        database = self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA auto_vacuum=INCREMENTAL")
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute(f"PRAGMA journal_size_limit={LOG_BYTES_MAX}")
        database.executescript(_SCHEMA)
        _add_causes(database)
        cursor = database.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?), ('folded_rv', 0)", (self._secret,))
        if cursor.rowcount:
            # Into the database itself, so that it is known as a store without its log.
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._folded_rv = int(database.execute("SELECT value FROM meta WHERE key = 'folded_rv'").fetchone()[0])
        self._sync_log()
        self._acknowledge(last_rv)

    def _sync_log(self) -> None:
        """Make durable what is about to be served: a killed server's last commit may be in the log and not synced, and
        SQLite, which reads it all the same, syncs it with the next commit only (S2)."""
        try:
            log = os.open(self._path.with_name("store.db-wal"), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fdatasync(log)
        finally:
            os.close(log)

    async def append(self, entries: Sequence[Entry], window_start: int) -> None:
        """Commit the entries in one transaction."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._append, entries, window_start)

    def _append(self, entries: Sequence[Entry], window_start: int) -> None:
        database = self._database
        assert database is not None
        rows = ((*msgspec.structs.astuple(entry), checksum(msgspec.msgpack.encode(entry))) for entry in entries)
        prunes = window_start - self._folded_rv >= PRUNE_AFTER_CHANGES
        try:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(_INSERT, rows)
            if prunes:
                self._prune(database, window_start)
            database.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up(database, error)
        self._acknowledge(entries[-1].rv)
        if prunes:
            self._folded_rv = window_start
            self._shrink(database)

    def _acknowledge(self, rv: int) -> None:
        """Note that a change is about to be acknowledged. Raises: OSError, never ENOSPC: the change is durable, and the
        journal must not be asked to take it again."""
        assert self._acked is not None
        try:
            os.pwrite(self._acked, _acked_content(self._secret, rv), 0)
        except OSError as error:
            raise OSError(errno.EIO, f"{self._directory / 'acked'} cannot be written: {error.strerror}") from error

    def _prune(self, database: sqlite3.Connection, upto: int) -> None:
        """Leave, of the changes up to `upto`, those that are the objects' state at it."""
        between = (self._folded_rv, upto)
        database.execute(
            "DELETE FROM changes WHERE rv IN (SELECT previous_rv FROM changes WHERE rv > ? AND rv <= ?)", between
        )
        database.execute("DELETE FROM changes WHERE rv > ? AND rv <= ? AND type = 'DELETED'", between)
        database.execute("UPDATE meta SET value = ? WHERE key = 'folded_rv'", (upto,))

    def _shrink(self, database: sqlite3.Connection) -> None:
        """Give pages back that have been free for long. Raises: OSError, never ENOSPC: the commit stands."""
        (free,) = database.execute("PRAGMA freelist_count").fetchone()
        if free <= FREE_PAGES_MAX:
            return
        try:
            # As a script: `execute` takes one step of this statement, which is one page.
            database.executescript(f"PRAGMA incremental_vacuum({min(FREED_PAGES, free - FREE_PAGES_MAX)})")
        except sqlite3.Error as error:
            if not _is_full(error):
                self._give_up(database, error)

    @staticmethod
    def _give_up(database: sqlite3.Connection, error: sqlite3.Error) -> None:
        if _is_full(error):
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise OSError(errno.ENOSPC, f"the store is full: {error}") from error
        raise OSError(errno.EIO, f"the store cannot be written: {error}") from error

    async def probe(self) -> None:
        """Write and remove one small row's worth of space."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._probe)

    def _probe(self) -> None:
        database = self._database
        assert database is not None
        try:
            database.execute("INSERT OR REPLACE INTO meta VALUES ('probe', zeroblob(65536))")
            database.execute("DELETE FROM meta WHERE key = 'probe'")
        except sqlite3.Error as error:
            self._give_up(database, error)

    async def close(self) -> None:
        """Close the database, then unlock the directory."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        for number in (self._acked, self._lock):
            if number is not None:
                os.close(number)
        self._acked = self._lock = None

    # -- by hand, while no server runs

    def read(self) -> Recovered:
        """Return the content from which a server would start, without changing anything.

        Raises: JournalError when there is none, or a server would refuse it.
        """
        try:
            self._take_lock()
            recovery = self._read()
            if recovery is None:
                raise JournalError(f"{self._path}: no store was begun there", EXIT_CORRUPT)
            self._check_acked(recovery)
        except OSError as error:
            raise JournalError(f"cannot use {self._directory}: {error.strerror}", EXIT_IO) from error
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{self._path}: {error}", EXIT_CORRUPT) from error
        return recovery

    def survey(self) -> "Survey":
        """Return a summary of the store, and whether a server would serve it. Raises: JournalError (74, 75) when it
        cannot be read.
        """
        refused = ""
        try:
            self._take_lock()
            recovery = self._read()
            if recovery is None:
                self._refuse_what_is_left()
                return Survey()
        except (JournalError, sqlite3.DatabaseError) as error:
            if isinstance(error, JournalError) and error.exit_code != EXIT_CORRUPT:
                raise
            return Survey(refused=str(error))
        except OSError as error:
            raise JournalError(f"cannot use {self._directory}: {error.strerror}", EXIT_IO) from error
        try:
            self._check_acked(recovery)
        except JournalError as error:
            refused = error.message
        return Survey(
            _last_rv(recovery), recovery.base_rv, len(recovery.base), len(recovery.entries), refused, is_readable=True
        )

    def accept_loss(self) -> int:
        """Accept a loss, so that servers continue with the stored content; return the version from which they count
        on.

        Every version that was ever issued is below it, and no watch or list may begin there: a client that has seen
        lost changes gets 410 and lists anew. Raises: JournalError when nothing is missing, or nothing can be read.
        """
        survey = self.survey()
        if not survey.refused:
            raise JournalError(f"{self._directory}: nothing is missing; there is no loss to accept")
        recovery = self._read() if survey.is_readable else None
        if recovery is None:
            raise JournalError(f"{survey.refused}: there is nothing to go on with; restore a copy")
        self._secret = recovery.secret
        last_rv = _last_rv(recovery)
        goes_on = last_rv + ACCEPTED_GAP
        self._connect(last_rv)
        database = self._database
        assert database is not None
        database.execute("BEGIN IMMEDIATE")
        self._prune(database, last_rv)
        database.execute("UPDATE meta SET value = ? WHERE key = 'folded_rv'", (goes_on,))
        database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        write_atomically(self._directory / "acked", _acked_content(self._secret, goes_on), mode=0o600)
        return goes_on

    def begin_from(self, secret: bytes, rv: int, objects: Sequence[BaseObject]) -> None:
        """Create a store with the objects of another store at a version, without its changes; versions continue
        from there.

        Raises: JournalError when there is a store already, or the disk refuses.
        """
        try:
            self._take_lock()
            if self._read() is not None:
                raise JournalError(f"{self._path}: a store was begun there already", EXIT_CORRUPT)
            self._refuse_what_is_left()
            self._secret = secret
            self._connect(rv)
            database = self._database
            assert database is not None
            entries = sorted(map(_entry_of_kept, objects), key=lambda entry: entry.rv)
            rows = ((*msgspec.structs.astuple(each), checksum(msgspec.msgpack.encode(each))) for each in entries)
            database.execute("BEGIN IMMEDIATE")
            database.executemany(_INSERT, rows)
            database.execute("UPDATE meta SET value = ? WHERE key = 'folded_rv'", (rv,))
            database.execute("COMMIT")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except OSError as error:
            raise JournalError(f"cannot use {self._directory}: {error.strerror}", EXIT_IO) from error
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: {error}", EXIT_IO) from error

    def release(self) -> None:
        """Unlock the directory after `read`, `survey`, `accept_loss` or `begin_from`."""
        self._close()
        self._thread.shutdown()


@dataclass(frozen=True)
class Survey:
    """A summary of a store. `refused`: why a server would not serve it; "" if it would.

    `changes`: the number of changes in the window, above `window_start`; `objects`: the number of objects at that
    version.
    """

    resource_version: int = 0
    window_start: int = 0
    objects: int = 0
    changes: int = 0
    refused: str = ""
    is_readable: bool = False
