"""Real implementations of the seams: this machine's clock, randomness, files and parents of processes."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from services.api.wire import Api
from services.runtime.config import EXIT_OK, PARENT_VARIABLE, StartError
from services.telemetry.kernel import end_with_parent
from services.telemetry.pieces import make_private

T = TypeVar("T")

_TEMPORARY = ".tmp"


class RealClock:
    """The real clock: CLOCK_MONOTONIC, which the event loop uses too, and the wall clock."""

    def now(self) -> float:
        """Monotonic seconds, comparable between the processes of one machine."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def seeded_random(seed: int | None) -> random.Random:
    """Return a generator with this seed, or with one from the system's entropy."""
    return random.Random(seed if seed is not None else random.SystemRandom().getrandbits(128))


class FileDisk:
    """Files below one directory; data survives a power cut once `write` or `append_all` has returned.

    Syncs run in one thread, in the order of the calls. Names may contain `/`.
    """

    def __init__(self, directory: Path) -> None:
        make_private(directory)
        self._directory = directory
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes, or None when there is none."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        found = (p for p in self._directory.rglob("*") if p.is_file() and not p.name.endswith(_TEMPORARY))
        return sorted(str(p.relative_to(self._directory)) for p in found)

    async def write(self, name: str, data: bytes) -> None:
        """Replace the file atomically. Raises: OSError."""
        await self._do(lambda: self._replace(self._path(name), data))

    async def append_all(self, parts: Mapping[str, bytes]) -> None:
        """Append to these files, in order. Raises: OSError; then any of the ends may be torn."""
        await self._do(lambda: self._extend({self._path(name): data for name, data in parts.items()}))

    async def remove(self, name: str) -> None:
        """Remove the file if it exists."""
        await self._do(lambda: self._unlink(self._path(name)))

    def close(self) -> None:
        """Wait for pending operations."""
        self._executor.shutdown(wait=True)

    async def _do(self, work: Callable[[], T]) -> T:
        # Shielded: a cancelled caller must not leave us guessing whether the bytes are down.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._executor, work))

    def _path(self, name: str) -> Path:
        path = self._directory / name
        if not name or ".." in Path(name).parts or Path(name).is_absolute():
            raise ValueError(f"{name!r} is no name for a file of this disk")
        return path

    def _replace(self, path: Path, data: bytes) -> None:
        is_new_folder = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
        if is_new_folder:
            sync_directory(path.parent.parent)

    def _extend(self, parts: Mapping[Path, bytes]) -> None:
        for path, data in parts.items():
            is_new = not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                _write_all(fd, data)
                os.fdatasync(fd)
            finally:
                os.close(fd)
            if is_new:
                sync_directory(path.parent)

    def _unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        if path.parent.exists():
            sync_directory(path.parent)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `data` to `path`, durably: a reader sees the old file or the new one, never a part. Raises: OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{_TEMPORARY}")
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        _write_all(fd, data)
        os.fsync(fd)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    os.replace(temporary, path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames and new files in this directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class MemoryDisk:
    """Files in memory, for a process without a directory; they are gone when it ends."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes, or None when there is none."""
        return self._files.get(name)

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return sorted(self._files)

    async def write(self, name: str, data: bytes) -> None:
        """Replace the file."""
        self._files[name] = data

    async def append_all(self, parts: Mapping[str, bytes]) -> None:
        """Append to these files."""
        for name, data in parts.items():
            self._files[name] = self._files.get(name, b"") + data

    async def remove(self, name: str) -> None:
        """Remove the file if it exists."""
        self._files.pop(name, None)

    def close(self) -> None:
        """Do nothing."""


class NoTransport:
    """The transport of the API server itself, which has no server above it."""

    def api(self, identity: str = "") -> Api:
        """Raise KeyError: there is no server above the server."""
        raise KeyError(f"this process has no credential of {identity or 'any identity'}")

    async def node_api(self, node: str) -> Api:
        """Raise KeyError: there is no server above the server."""
        return self.api(node)


def die_with_parent(environ: Mapping[str, str]) -> None:
    """Ask the kernel to kill this process when its parent dies: a SIGKILLed supervisor leaves no orphan.

    Raises: StartError when the parent is already dead.
    """
    end_with_parent()
    # It may have died before the line above; then another process is our parent by now.
    expected = environ.get(PARENT_VARIABLE, "")
    if expected.isdigit() and os.getppid() != int(expected):
        raise StartError("the process that started this one is gone", EXIT_OK)
