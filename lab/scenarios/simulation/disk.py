"""The disk of a simulated process: synced data survives a kill, data of an unfinished sync may be torn."""

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lab.scenarios.simulation.lifetime import Lifetime
from services.api.seams import Random

BLOCK_BYTES: Final = 128 * 1024
"""Bytes of a file that are compressed together."""


class DiskFile:
    """Content of one file. Whole blocks of it are kept compressed, because a log is only read after a kill; `bytes`
    returns what was appended, all of it.
    """

    def __init__(self, data: bytes = b"") -> None:
        self._blocks: list[bytes] = []
        self._tail = bytearray()
        self.append(data)

    def append(self, data: bytes) -> None:
        """Append bytes."""
        self._tail += data
        if len(self._tail) >= BLOCK_BYTES:
            self._blocks.append(zlib.compress(self._tail, 1))
            self._tail = bytearray()

    def __bytes__(self) -> bytes:
        return b"".join((*map(zlib.decompress, self._blocks), self._tail))


@dataclass
class DiskImage:
    """Surviving content of a disk: synced files of one component, and the duration of a sync (seconds)."""

    files: dict[str, DiskFile] = field(default_factory=dict)
    sync_min_s: float = 0.0002
    sync_max_s: float = 0.001
    slow_s: float = 0.0
    broken: OSError | None = None
    """When set, every sync fails with it (FM-A7, FM-A8)."""


class SimDisk:
    """`Disk` on top of a disk image. After a kill during a sync, all, none or a torn prefix of an append is there."""

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
        """Replace a file; after a kill in the middle it has the old or the new content, never a mix."""
        try:
            alive = await self._sync()
        except asyncio.CancelledError:
            if self._life.is_over and self._random.random() < 0.5:
                self._image.files[name] = DiskFile(data)
            raise
        if alive:
            self._image.files[name] = DiskFile(data)

    async def append_all(self, parts: Mapping[str, bytes]) -> None:
        """Append to several files; after a kill in the middle each file has any prefix of its part."""
        try:
            alive = await self._sync()
        except asyncio.CancelledError:
            if self._life.is_over:
                for name, data in parts.items():
                    kept = self._random.randrange(0, len(data) + 1)
                    self._append(name, data[:kept])
            raise
        if alive:
            for name, data in parts.items():
                self._append(name, data)

    def _append(self, name: str, data: bytes) -> None:
        file = self._image.files.get(name)
        if file is None:
            file = self._image.files[name] = DiskFile()
        file.append(data)

    async def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        if await self._sync():
            self._image.files.pop(name, None)
