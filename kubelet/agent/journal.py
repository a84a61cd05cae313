"""The records of a host's pods on disk: the runtime's record and the kubelet's checkpoint, side by side.

All waiting lines are appended at once (group commit). The lines of both files go to the disk together, so a
pod that starts waits once. A pod's line goes into the checkpoint only when something was decided about it,
which is when it is admitted, resized, or given devices. Source: guarantees N2, N4; FM-K5, FM-K6.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

import msgspec
import structlog

from kubelet.runtime.line_file import LineFile, Lines, Where
from kubelet.runtime.records import (
    Checkpoint,
    PodRecord,
    Reading,
    checkpoint_of,
    encode_checkpoint,
    encode_record,
    join_records,
    newest,
)
from kubelet.view import WorkerKey
from services.api.seams import Disk

RUNTIME, CHECKPOINT = "runtime", "checkpoint"
BATCH_MAX = 4096
RETRY_S = 1.0

log = structlog.get_logger()


def files_of(records: Iterable[PodRecord]) -> dict[str, bytes]:
    """Return the files of a host that holds exactly these records."""
    known = list(records)
    return {
        f"{RUNTIME}-0.log": b"".join(encode_record(record) for record in known),
        f"{CHECKPOINT}-0.log": b"".join(encode_checkpoint(checkpoint_of(record)) for record in known),
    }


class Journal:
    """Appends lines in order, and reports when they are durable."""

    def __init__(self, disk: Disk, nodes: frozenset[str]) -> None:
        self._disk = disk
        self._nodes = nodes
        self._runtime, self._checkpoint = LineFile(disk, RUNTIME), LineFile(disk, CHECKPOINT)
        self._waiting: list[tuple[Lines, Callable[[], None] | None]] = []
        """Lines of pods (empty ones say nothing new), and who waits for them."""
        self._wake = asyncio.Event()
        self._decided: dict[Where, bytes] = {}
        """The checkpoint's newest line of each pod, durable or not."""
        self.silent: dict[str, int] = {}
        """How many pods of which node ran that the checkpoint did not know."""
        self.has_error = False
        self.on_error: Callable[[], None] = lambda: None
        self.on_batch: Callable[[], None] = lambda: None
        self.batches = 0
        self.syncs = 0
        self.useless_lines = 0

    def load(self) -> dict[Where, PodRecord]:
        """Return the known pods of every node; the decisions about pods that run are taken as known again."""
        runtime = newest(PodRecord, self._runtime.lines(), self._nodes)
        checkpoint = newest(Checkpoint, self._checkpoint.lines(), self._nodes)
        self._warn(RUNTIME, runtime)
        self._warn(CHECKPOINT, checkpoint)
        self._runtime.live = {where: encode_record(record) for where, record in runtime.found.items()}
        self._checkpoint.live = {where: encode_checkpoint(each) for where, each in checkpoint.found.items()}
        self._decided = dict(self._checkpoint.live)
        known, silent = join_records(runtime.found, checkpoint.found)
        for where in silent:
            self.silent[where[0]] = self.silent.get(where[0], 0) + 1
            line = self._decided[where] = encode_checkpoint(checkpoint_of(known[where]))
            self._enqueue(Lines(where, b"", line, False))
        for node, pods in self.silent.items():
            reason = "they run on, with the resources that the runtime was given for them"
            log.warning("checkpoint.lost", node=node, pods=pods, reason=reason)
        return known

    def _warn(self, file: str, reading: Reading[PodRecord] | Reading[Checkpoint]) -> None:
        lines_elsewhere = sum(reading.elsewhere.values())
        self.useless_lines += reading.torn + lines_elsewhere
        if reading.torn:
            log.warning("record.torn", file=file, lines=reading.torn, reason="they cannot be read and are left out")
        if reading.elsewhere:
            log.error(
                "record.refused",
                file=file,
                lines=lines_elsewhere,
                nodes=sorted(reading.elsewhere),
                reason=f"it names nodes that do not run here; there are {len(self._nodes)}, "
                f"such as {min(self._nodes, default='none')}",
            )

    def of(self, node: str) -> dict[Where, PodRecord]:
        """Return the durable records of one node's pods."""
        record = (line for where, line in self._runtime.live.items() if where[0] == node)
        decided = (line for where, line in self._checkpoint.live.items() if where[0] == node)
        runtime, checkpoint = newest(PodRecord, record, self._nodes), newest(Checkpoint, decided, self._nodes)
        return join_records(runtime.found, checkpoint.found)[0]

    def put(self, lines: Lines, saved: Callable[[], None] | None = None) -> None:
        """Append a pod's lines soon; call `saved` once they are durable."""
        where = lines.where
        if self._decided.get(where) == lines.checkpoint or (lines.is_gone and where not in self._decided):
            lines = msgspec.structs.replace(lines, checkpoint=b"")
        elif lines.is_gone:
            del self._decided[where]
        else:
            self._decided[where] = lines.checkpoint
        self._enqueue(lines, saved)

    def _enqueue(self, lines: Lines, saved: Callable[[], None] | None = None) -> None:
        self._waiting.append((lines, saved))
        self._wake.set()

    async def flush(self) -> None:
        """Return when everything put before is durable."""
        done = asyncio.Event()
        nowhere = "", WorkerKey("", 0)
        self._enqueue(Lines(nowhere, b"", b"", True), done.set)
        await done.wait()

    async def replace(self, records: Mapping[Where, PodRecord]) -> None:
        """Replace the runtime's record by these records; return when that is durable."""
        self._runtime.live = {where: encode_record(record) for where, record in records.items()}
        await self._retry(self._runtime.fold)

    async def keep(self, files: Mapping[str, bytes]) -> None:
        """Write small files beside the records, in order; return when they are durable."""
        for name, data in files.items():
            await self._retry(partial(self._disk.write, name, data))

    async def _retry(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
                return
            except OSError as error:
                log.warning("checkpoint.failed", reason=str(error))
                await asyncio.sleep(RETRY_S)

    async def run(self) -> None:
        """Write until cancelled; retry every second on a disk error, and start nothing meanwhile."""
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
            parts = {
                self._checkpoint: b"".join(lines.checkpoint for lines, _ in batch),
                self._runtime: b"".join(lines.runtime for lines, _ in batch),
            }
            while True:
                try:
                    await self._append(parts)
                    break
                except OSError as error:
                    log.warning("checkpoint.failed", reason=str(error))
                    self._set_error(True)
                    await asyncio.sleep(RETRY_S)
                    for file in parts:
                        file.distrust()
            self._set_error(False)
            entries = [lines for lines, _ in batch]
            self._checkpoint.on_appended(parts[self._checkpoint], ((s.where, s.checkpoint, s.is_gone) for s in entries))
            self._runtime.on_appended(parts[self._runtime], ((s.where, s.runtime, s.is_gone) for s in entries))
            for _, saved in batch:
                if saved is not None:
                    saved()
            self.on_batch()

    async def _append(self, parts: Mapping[LineFile, bytes]) -> None:
        for file in parts:
            if file.is_long:
                await file.fold()
        wanted = {file.log: data for file, data in parts.items() if data}
        await self._disk.append_all(wanted)
        self.batches += 1
        self.syncs += len(wanted)

    def _set_error(self, has_error: bool) -> None:
        if has_error != self.has_error:
            self.has_error = has_error
            self.on_error()
