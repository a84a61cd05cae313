"""The host's runtime record on disk: one append for everybody who waits (group commit), compacted when long.

`runtime.snapshot` begins with the number of the log that continues it; a crash between any two steps of a
compaction leaves either the old pair or the new one (guarantees N2, N4; FM-K5, FM-K6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec
import structlog

from kubelet.pods.fake_cri import PodRecord, encode_record, replay
from kubelet.view import WorkerKey
from services.api.seams import Disk

SNAPSHOT = "runtime.snapshot"
COMPACT_BYTES = 16 << 20
BATCH_MAX = 4096
RETRY_S = 1.0

log = structlog.get_logger()

Saved = Callable[[WorkerKey, int], None]


def _log_name(number: int) -> str:
    return f"runtime-{number}.log"


class Journal:
    """Appends records in the order they are put; whoever put one hears when it is durable."""

    def __init__(self, disk: Disk, nodes: frozenset[str]) -> None:
        self._disk = disk
        self._nodes = nodes
        self._waiting: list[tuple[str, WorkerKey, int, bytes, Saved]] = []
        self._wake = asyncio.Event()
        self._number = 0
        self._bytes = 0
        self._live: dict[tuple[str, WorkerKey], bytes] = {}
        self.has_trouble = False
        self.on_trouble: Callable[[], None] = lambda: None
        self.on_batch: Callable[[], None] = lambda: None
        self.batches = 0
        self.useless_lines = 0

    def load(self) -> dict[tuple[str, WorkerKey], PodRecord]:
        """Return what the runtime of every node holds; unreadable lines are skipped and counted."""
        lines: list[bytes] = []
        head, _, rest = (self._disk.read(SNAPSHOT) or b"").partition(b"\n")
        try:
            self._number = int(msgspec.json.decode(head, type=dict[str, int])["log"])
            lines += rest.split(b"\n")
        except (msgspec.DecodeError, KeyError):
            self._number = 0
        continued = self._disk.read(_log_name(self._number)) or b""
        lines += continued.split(b"\n")
        self._bytes = len(continued)
        found, self.useless_lines = replay(lines, self._nodes)
        if self.useless_lines:
            log.warning("checkpoint.useless_lines", lines=self.useless_lines, reason="torn, or of nodes elsewhere")
        self._live = {where: encode_record(record) for where, record in found.items()}
        if continued and not continued.endswith(b"\n"):
            # A torn tail would swallow the next record: begin a new log at the first write.
            self._bytes = COMPACT_BYTES
        return found

    def put(self, node: str, key: WorkerKey, seq: int, data: bytes, saved: Saved) -> None:
        """Make a record durable soon."""
        self._waiting.append((node, key, seq, data, saved))
        self._wake.set()

    def of(self, node: str) -> dict[tuple[str, WorkerKey], PodRecord]:
        """Return what one node's runtime holds, as far as it is durable."""
        found, _ = replay((line for where, line in self._live.items() if where[0] == node), self._nodes)
        return found

    async def flushed(self) -> None:
        """Return when everything put before is durable."""
        done = asyncio.Event()
        self.put("", WorkerKey("", 0), 0, b"", lambda key, seq: done.set())
        await done.wait()

    async def replace(self, records: Mapping[tuple[str, WorkerKey], PodRecord]) -> None:
        """Have the record say this and nothing else; return when that is durable."""
        self._live = {where: encode_record(record) for where, record in records.items()}
        await self._insisted(self._compact)

    async def keep(self, files: Mapping[str, bytes]) -> None:
        """Write small files beside the record, in order; return when they are durable."""
        for name, data in files.items():
            await self._insisted(partial(self._disk.write, name, data))

    async def _insisted(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
                return
            except OSError as error:
                log.warning("checkpoint.failed", reason=str(error))
                await asyncio.sleep(RETRY_S)

    async def run(self) -> None:
        """Write until cancelled; a disk that refuses is tried again every second, and nothing starts meanwhile."""
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
            while True:
                try:
                    if self._bytes >= COMPACT_BYTES:
                        await self._compact()
                    data = b"".join(item[3] for item in batch)
                    await self._disk.append(_log_name(self._number), data)
                    break
                except OSError as error:
                    log.warning("checkpoint.failed", reason=str(error))
                    self._set_trouble(True)
                    await asyncio.sleep(RETRY_S)
                    # Part of the append may be there: continue behind a snapshot, in a new log.
                    self._bytes = COMPACT_BYTES
            self._set_trouble(False)
            self._bytes += len(data)
            self.batches += 1
            for node, key, _, line, _ in batch:
                self._live.pop((node, key), None)
                if line and not line.endswith(b",true]\n"):  # the last field of a record is `is_gone`
                    self._live[node, key] = line
            for _, key, seq, _, saved in batch:
                saved(key, seq)
            self.on_batch()

    def _set_trouble(self, has_trouble: bool) -> None:
        if has_trouble != self.has_trouble:
            self.has_trouble = has_trouble
            self.on_trouble()

    async def _compact(self) -> None:
        number = self._number + 1
        head = msgspec.json.encode({"log": number}) + b"\n"
        await self._disk.remove(_log_name(number))
        await self._disk.write(SNAPSHOT, head + b"".join(self._live.values()))
        old, self._number, self._bytes = self._number, number, 0
        await self._disk.remove(_log_name(old))
