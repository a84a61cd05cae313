"""One incarnation of a simulated process: what ends with it, its clock, its event log and its disk.

A SIGKILL is a `Lifetime` that ends: from that instant nothing the old incarnation does reaches the disk, the wire or
the event log, even if its `finally` blocks still run.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.api.seams import EventLog, Random


class Lifetime:
    """One incarnation of one component; severed by a kill and never mended."""

    def __init__(self, component: str, incarnation: int) -> None:
        self.component = component
        self.incarnation = incarnation
        self.is_over = False
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Make a task part of this incarnation: it dies with it."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if self.is_over:
            task.cancel()

    def end(self) -> None:
        """Sever every seam at once, then cancel what still runs."""
        self.is_over = True
        for task in list(self._tasks):
            task.cancel()


@dataclass
class SimClock:
    """Virtual time plus this process's own errors. `wall_base_s`: what the wall says at virtual zero."""

    loop: asyncio.AbstractEventLoop
    wall_base_s: float
    wall_skew_s: float = 0.0

    def now(self) -> float:
        """Return monotonic seconds."""
        return self.loop.time()

    def wall(self) -> float:
        """Return seconds since the epoch, skewed."""
        return self.wall_base_s + self.loop.time() + self.wall_skew_s


class LivingLog:
    """An event log that falls silent the instant its process is killed."""

    def __init__(self, log: EventLog, life: Lifetime) -> None:
        self._log, self._life = log, life

    def write(self, ev: str, **fields: Any) -> None:
        """Append one line, unless the process is dead."""
        if not self._life.is_over:
            self._log.write(ev, **fields)


@dataclass
class DiskImage:
    """What survives: synced files of one component, and how long a sync takes (seconds)."""

    files: dict[str, bytearray] = field(default_factory=dict)
    sync_min_s: float = 0.0002
    sync_max_s: float = 0.001
    slow_s: float = 0.0
    broken: OSError | None = None
    """When set, every sync fails with it (FM-A7, FM-A8)."""


class SimDisk:
    """`Disk` over a disk image. A kill during a sync keeps all, none or a torn prefix of an append."""

    def __init__(self, image: DiskImage, random: Random, life: Lifetime) -> None:
        self._image, self._random, self._life = image, random, life

    def read(self, name: str) -> bytes | None:
        """Return a file's synced bytes, or None."""
        data = self._image.files.get(name)
        return None if data is None else bytes(data)

    def names(self) -> list[str]:
        """Return all file names, sorted."""
        return sorted(self._image.files)

    async def _sync(self) -> bool:
        """Wait for the disk; return whether the process lived to see it done."""
        image = self._image
        await asyncio.sleep(self._random.uniform(image.sync_min_s, image.sync_max_s) + image.slow_s)
        if self._image.broken is not None:
            raise self._image.broken
        return not self._life.is_over

    async def write(self, name: str, data: bytes) -> None:
        """Replace a file; after a kill in the middle the old or the new content is there, never a mix."""
        try:
            alive = await self._sync()
        except asyncio.CancelledError:
            if self._life.is_over and self._random.random() < 0.5:
                self._image.files[name] = bytearray(data)
            raise
        if alive:
            self._image.files[name] = bytearray(data)

    async def append(self, name: str, data: bytes) -> None:
        """Append; after a kill in the middle any prefix of `data` may be there."""
        await self.append_all({name: data})

    async def append_all(self, parts: Mapping[str, bytes]) -> None:
        """Append to several files; after a kill in the middle any prefix of each part may be there."""
        try:
            alive = await self._sync()
        except asyncio.CancelledError:
            if self._life.is_over:
                for name, data in parts.items():
                    kept = self._random.randrange(0, len(data) + 1)
                    self._image.files.setdefault(name, bytearray()).extend(data[:kept])
            raise
        if alive:
            for name, data in parts.items():
                self._image.files.setdefault(name, bytearray()).extend(data)

    async def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if await self._sync():
            self._image.files.pop(name, None)
