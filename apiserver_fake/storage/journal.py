"""The durable journal: every change, in version order, with the answers that repeated request ids get
again.

Three journals implement one interface: `Journal` itself keeps nothing, `DiskJournal` is a checksummed log over
the `Disk` seam (the simulation's faulty disks), `storage.sqlite` is one table in a write-ahead-logged database.
`append` returns when the batch is durable; an OSError means that no part of it is.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from apiserver_fake.storage.records import BaseObject, Entry
from services.api.seams import Disk
from services.runtime.config import EXIT_CONFIG, StartError

EXIT_CORRUPT = EXIT_CONFIG
SNAPSHOT_AFTER_BYTES = 64 << 20


class JournalError(StartError):
    """The store cannot be opened or trusted; the process ends with its `exit_code` (S15, S16, S17)."""


@dataclass
class Recovered:
    """The content of a journal: the state at `base_rv` and every change after it.

    `is_first_start`: the journal was empty. `bytes_cut`: length of a torn tail that was dropped. `is_copy`: the
    state was copied from another store, so no event log has lines of it.
    """

    secret: bytes
    base_rv: int = 0
    base: list[BaseObject] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    is_first_start: bool = False
    bytes_cut: int = 0
    is_copy: bool = False


class OvertakenError(Exception):
    """Another API server has committed first, or may have: no part of the batch was or will be written.

    The others' changes are in `Journal.news`; the operations must be evaluated again on top of them.
    """


Base = Callable[[], tuple[int, list[BaseObject]]]
"""Function that returns the base state for a journal: the window's start, and the objects at that version."""


class Journal:
    """The journal makes changes durable. This one keeps nothing (`store.durability=memory`); subclasses override it."""

    is_durable = False
    is_shared = False
    """Whether other API servers write to it as well. The members below, up to `append`, only matter if they do."""
    changes_max = bytes_max = 1 << 62
    """Limits of one `append`: changes, and bytes as `size` counts them."""
    conflicts = failures = 0
    """Number of times that `append` was overtaken, and that the journal's storage did not answer."""

    @property
    def unavailable(self) -> str:
        """The reason why nothing can be written at present; empty if writes are possible."""
        return ""

    def size(self, entries: Sequence[Entry]) -> int:
        """Return the bytes that the entries take, of `bytes_max`."""
        return 0

    def on_news(self, notify: Callable[[], None]) -> None:
        """Register `notify`, which is called whenever `news` has something."""

    def news(self) -> list[list[Entry]]:
        """Return the batches that other servers have committed since the last call. Not to be called during an
        `append`.
        """
        return []

    def on_published(self) -> None:
        """Note that readers see everything that `append` and `news` have returned."""

    async def confirm(self) -> None:
        """Wait until readers see everything that was committed before the call. Raises: ApiError."""

    async def check(self) -> str:
        """Return why the journal's storage does not answer; empty if it does, or if there is no separate storage."""
        return ""

    async def follow(self) -> None:
        """Follow the commits of other servers, until cancelled. Raises: JournalError."""

    async def open(self, new_secret: bytes) -> Recovered:
        """Lock the journal and read all of it; `new_secret` is stored if there is no secret yet. Raises:
        JournalError.
        """
        return Recovered(secret=new_secret, is_first_start=True)

    async def append(self, entries: Sequence[Entry], window_start: int) -> None:
        """Make the entries durable, together; changes up to `window_start` may be folded into the base.

        Without entries, a shared journal checks whether readers see the newest state.

        Raises: OSError (ENOSPC: nothing was written; EIO: the journal is unusable from now on); OvertakenError.
        """

    async def probe(self) -> None:
        """Check whether there is disk space again. Raises: OSError."""

    async def fold(self, base: Base) -> None:
        """Shorten the journal that the next start must read, if it is worth it."""

    async def close(self) -> None:
        """Release everything."""


_MAGIC = b"KLJ1"
_HEAD = len(_MAGIC) + 4 + 8


def checksum(payload: bytes | bytearray) -> bytes:
    """Return the eight-byte checksum by which a torn record is recognised."""
    return hashlib.blake2b(payload, digest_size=8).digest()


def frame(payload: bytes) -> bytes:
    """Return the payload prefixed with magic, length and checksum."""
    return _MAGIC + len(payload).to_bytes(4, "big") + checksum(payload) + payload


def _frame_at(data: bytes, offset: int) -> bytes | None:
    if data[offset : offset + 4] != _MAGIC:
        return None
    length = int.from_bytes(data[offset + 4 : offset + 8], "big")
    payload = data[offset + _HEAD : offset + _HEAD + length]
    return payload if len(payload) == length and checksum(payload) == data[offset + 8 : offset + 16] else None


def frames(data: bytes, name: str) -> tuple[list[bytes], int]:
    """Return the payloads and the total length of their frames; the rest is a torn tail.

    Raises: JournalError (78) when a bad frame is followed by a good one: that is damage, not a tear. Source:
    guarantees S15.
    """
    payloads: list[bytes] = []
    offset = 0
    while offset < len(data):
        payload = _frame_at(data, offset)
        if payload is None:
            later = data.find(_MAGIC, offset + 1)
            while later >= 0:
                if _frame_at(data, later) is not None:
                    raise JournalError(f"{name}: bad record at offset {offset}, good one at {later}", EXIT_CORRUPT)
                later = data.find(_MAGIC, later + 1)
            break
        payloads.append(payload)
        offset += _HEAD + len(payload)
    return payloads, offset


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    base_rv: int
    base: list[BaseObject]
    entries: list[Entry]
    is_copy: bool = False


def copied_files(rv: int, objects: list[BaseObject]) -> dict[str, bytes]:
    """Return the files of a `DiskJournal` that holds the objects of another store at a version, without its changes."""
    return {"snapshot": frame(msgspec.msgpack.encode(_Snapshot(rv, objects, [], is_copy=True)))}


_ENTRIES = msgspec.msgpack.Decoder(list[Entry])
_SNAPSHOT = msgspec.msgpack.Decoder(_Snapshot)


class DiskJournal(Journal):
    """A log of batches with occasional snapshots, over the `Disk` seam.

    Files: `secret`, `snapshot` (replaced atomically), `log-<first rv, 20 digits>` (appended). A log whose changes
    the snapshot holds is removed after the snapshot is durable, never before (S18).
    """

    is_durable = True

    def __init__(self, disk: Disk, *, snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES) -> None:
        self._disk, self._limit = disk, snapshot_after_bytes
        self._log = ""
        self._log_bytes = self._bytes = self._snapshot_bytes = self._rv = 0

    async def open(self, new_secret: bytes) -> Recovered:
        """Read snapshot and logs; cut a torn tail off the last one."""
        secret = self._disk.read("secret")
        if secret is None:
            await self._disk.write("secret", new_secret)
        recovery = Recovered(secret=secret or new_secret)
        raw = self._disk.read("snapshot")
        if raw is not None:
            payloads, _ = frames(raw, "snapshot")
            if len(payloads) != 1:
                raise JournalError("snapshot: bad checksum", EXIT_CORRUPT)
            snapshot = _SNAPSHOT.decode(payloads[0])
            recovery.base_rv, recovery.base, recovery.entries = snapshot.base_rv, snapshot.base, list(snapshot.entries)
            recovery.is_copy = snapshot.is_copy
            self._snapshot_bytes = len(raw)
        self._rv = recovery.entries[-1].rv if recovery.entries else recovery.base_rv
        logs = [name for name in self._disk.names() if name.startswith("log-")]
        for name in logs:
            data = self._disk.read(name) or b""
            payloads, end = frames(data, name)
            if end < len(data):
                if name != logs[-1]:
                    raise JournalError(f"{name}: bad record at offset {end}, but {logs[-1]} follows", EXIT_CORRUPT)
                recovery.bytes_cut = len(data) - end
                await self._disk.write(name, data[:end])
            for payload in payloads:
                self._take(_ENTRIES.decode(payload), recovery, name)
            self._bytes += end
        recovery.is_first_start = raw is None and not self._rv
        return recovery

    def _take(self, entries: list[Entry], recovery: Recovered, name: str) -> None:
        for entry in entries:
            if entry.rv <= self._rv:
                continue  # the snapshot was written before this log could be removed
            if entry.rv != self._rv + 1:
                raise JournalError(f"{name}: change {entry.rv} follows {self._rv}", EXIT_CORRUPT)
            recovery.entries.append(entry)
            self._rv = entry.rv

    async def append(self, entries: Sequence[Entry], window_start: int) -> None:
        """Append the batch as one checksummed record."""
        if not self._log:
            self._log, self._log_bytes = f"log-{entries[0].rv:020d}", 0
        data = frame(msgspec.msgpack.encode(entries))
        await self._disk.append_all({self._log: data})
        self._bytes += len(data)
        self._log_bytes += len(data)
        self._rv = entries[-1].rv

    async def probe(self) -> None:
        """Truncate the remains of a failed append from the log; this needs space as well."""
        name = self._log
        data = self._disk.read(name) if name else None
        if data is not None and len(data) > self._log_bytes:
            await self._disk.write(name, data[: self._log_bytes])
            return
        await self._disk.write("probe", b"room")
        await self._disk.remove("probe")

    async def fold(self, base: Base) -> None:
        """Write a snapshot when the logs have outgrown the last one, then drop them."""
        if self._bytes < max(self._limit, 2 * self._snapshot_bytes):
            return
        rv, objects = base()
        data = frame(msgspec.msgpack.encode(_Snapshot(rv, objects, self._entries_after(rv))))
        logs = [name for name in self._disk.names() if name.startswith("log-")]
        await self._disk.write("snapshot", data)
        self._log, self._bytes, self._snapshot_bytes = "", 0, len(data)
        for name in logs:
            await self._disk.remove(name)

    def _entries_after(self, rv: int) -> list[Entry]:
        """Return the durable changes above a version, as the disk has them: kept here, too, they would stand twice."""
        raw = self._disk.read("snapshot")
        sources = [] if raw is None else [_SNAPSHOT.decode(frames(raw, "snapshot")[0][0]).entries]
        for name in self._disk.names():
            if name.startswith("log-"):
                payloads, _ = frames(self._disk.read(name) or b"", name)
                sources += [_ENTRIES.decode(payload) for payload in payloads]
        entries: list[Entry] = []
        for source in sources:
            for entry in source:
                # A log may begin with what the snapshot has, if it could not be removed.
                if entry.rv > rv:
                    entries.append(entry)
                    rv = entry.rv
        return entries
