"""Faults of the machine that a process runs on: network, disk, wall clock, sudden ends.

A process with `--faults-file` reads its machine's faults from that file, at its start and on every SIGURG. No
component knows: a fault comes in through the seams, as in the simulation. A *strike* stops the process in the
middle of what a line of its event log reports, or before or after one of its calls. A *late request* is one
that the network delays; it is written to a file beside, and the scenario runner delivers it.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import structlog

from services.api.seams import Clock, Disk, EventLog, Random
from services.api.wire import Request
from services.client.gate import Gates
from services.client.link_faults import LinkFaults
from services.runtime.config import EXIT_USAGE, StartError
from services.runtime.real import write_atomically

DISK_ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}
LATE_SUFFIX = ".late"
READ_AGAIN = signal.SIGURG
"""Signal to a process when its file has changed; a process that does not listen yet ignores it."""

_log = structlog.get_logger()


def disk_error(name: str) -> OSError | None:
    """Return the disk error of that name; None for "". Raises: ValueError for an unknown name."""
    if not name:
        return None
    if name not in DISK_ERRORS:
        raise ValueError(f"{name!r} is no error of a disk; there are: {', '.join(DISK_ERRORS)}")
    return OSError(DISK_ERRORS[name], os.strerror(DISK_ERRORS[name]))


class Strike(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A strike: kill or pause the process with this pid at its `count`-th passing of a site; each `number` is
    unique.

    `site`: the name of an event, such as `kubelet.start`, or `before:` or `after:` and a call, such as
    `before:pods/status`.
    """

    number: int
    pid: int
    site: str
    count: int = 1
    kind: Literal["kill", "pause"] = "kill"


class MachineFaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All faults of a machine. `links`: by node, "" is the process's own; `disk_error`: of `DISK_ERRORS`; seconds."""

    wall_offset_s: float = 0.0
    disk_error: str = ""
    disk_slow_s: float = 0.0
    links: dict[str, LinkFaults] = {}
    strikes: tuple[Strike, ...] = ()


class LateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node's request that arrives `late_s` seconds after it was sent."""

    node: str
    request: Request
    late_s: float


class Machine:
    """Current machine faults, as the seams of one process read them."""

    def __init__(self, path: str, random: Random) -> None:
        self._path = Path(path)
        self.faults = MachineFaults()
        self.gates = Gates(random)
        self.gates.on_late_request = self._keep_late
        self._late_total = 0
        self._left: dict[Strike, int] = {}
        self.read()

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the file again on each signal."""
        loop.add_signal_handler(READ_AGAIN, self._read_again)
        self._read_again()  # what was written before the handler was there

    def read(self) -> None:
        """Apply the file's contents. Raises: StartError naming the file; a missing file means no faults."""
        try:
            self.faults = msgspec.json.decode(self._path.read_bytes(), type=MachineFaults)
            for faults in self.faults.links.values():
                faults.check()
            disk_error(self.faults.disk_error)
        except FileNotFoundError:
            self.faults = MachineFaults()
        except (OSError, ValueError) as error:
            raise StartError(f"--faults-file {self._path}: {error}", EXIT_USAGE) from None
        self.gates.set_all(self.faults.links)
        mine = [strike for strike in self.faults.strikes if strike.pid == os.getpid()]
        self._left = {strike: self._left.get(strike, strike.count) for strike in mine}
        self.gates.on_call = (lambda when, what: self.on_reached(f"{when}:{what}")) if mine else None

    def _read_again(self) -> None:
        try:
            self.read()
        except StartError as error:
            _log.error("machine.faults_unreadable", error=error.message)

    def on_reached(self, site: str) -> None:
        """Perform the strike at this site, if there is one."""
        for strike, left in list(self._left.items()):
            if strike.site != site or left <= 0:
                continue
            self._left[strike] = left - 1
            if left == 1:
                os.kill(os.getpid(), signal.SIGKILL if strike.kind == "kill" else signal.SIGSTOP)

    def _keep_late(self, node: str, request: Request, late_s: float) -> None:
        self._late_total += 1
        path = self._path.with_name(f"{self._path.name}.{os.getpid()}-{self._late_total}{LATE_SUFFIX}")
        write_atomically(path, msgspec.json.encode(LateRequest(node, request, late_s)))


class ClosableDisk(Disk, Protocol):
    """A disk that can be closed."""

    def close(self) -> None:
        """Wait for pending operations."""
        ...


class OffClock:
    """A clock whose wall time has the offset in the machine's file."""

    def __init__(self, inner: Clock, machine: Machine) -> None:
        self._inner, self._machine = inner, machine

    def now(self) -> float:
        """Monotonic seconds, without an offset."""
        return self._inner.now()

    def wall(self) -> float:
        """Seconds since the epoch, with the offset."""
        return self._inner.wall() + self._machine.faults.wall_offset_s


class FailingDisk:
    """A disk that fails when the machine's file says so."""

    def __init__(self, inner: ClosableDisk, machine: Machine) -> None:
        self._inner, self._machine = inner, machine

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes, or None when there is none."""
        return self._inner.read(name)

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return self._inner.names()

    async def _refuse(self) -> None:
        faults = self._machine.faults
        if faults.disk_slow_s > 0:
            await asyncio.sleep(faults.disk_slow_s)
        if (error := disk_error(faults.disk_error)) is not None:
            raise error

    async def write(self, name: str, data: bytes) -> None:
        """Replace the file. Raises: OSError."""
        await self._refuse()
        await self._inner.write(name, data)

    async def append_all(self, parts: Mapping[str, bytes]) -> None:
        """Add to the ends of several files. Raises: OSError."""
        await self._refuse()
        await self._inner.append_all(parts)

    async def remove(self, name: str) -> None:
        """Remove the file if it is there. Raises: OSError."""
        await self._refuse()
        await self._inner.remove(name)

    def close(self) -> None:
        """Wait for pending operations."""
        self._inner.close()


class StrikingLog:
    """An event log with strikes: a line may be the process's last."""

    def __init__(self, inner: EventLog, machine: Machine) -> None:
        self._inner, self._machine = inner, machine

    def write(self, ev: str, **fields: Any) -> None:
        """Append one line; a strike may follow."""
        self._inner.write(ev, **fields)
        self._machine.on_reached(ev)

    def close(self) -> None:
        """Close the file."""
        if (close := getattr(self._inner, "close", None)) is not None:
            close()
