"""The control planes that are measured: processes on this machine, and a client."""

import asyncio
import os
import shlex
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from lab.benchmarks.running_mesh import Meter, RunningMesh, rss_mib, running_mesh
from lab.benchmarks.side_by_side.client import PlaneClient
from lab.benchmarks.side_by_side.objects import Objects
from lab.exchange.rest.kubeconfig import read_access
from lab.exchange.stream import Refused

OTHER: Final = "other"
"""Name of the plane that is not started here."""
ENGINES: Final = ("sqlite", "memory")
"""The planes of keplab that are measured, by their engines."""
SCHEDULER: Final = "scheduler"
STOP_MAX_S: Final = 20.0


class Processes(Protocol):
    """The processes of a plane. `has_scheduler`: whether pods are scheduled; `can_restart`: whether its scheduler can
    be stopped and started here.
    """

    has_scheduler: bool
    can_restart: bool

    def pids(self) -> dict[str, int]:
        """Return the process ids by name. Raises: Refused, when one has ended."""
        ...

    async def stop_scheduler(self) -> None:
        """Stop the scheduler."""
        ...

    async def start_scheduler(self) -> None:
        """Start the scheduler; it need not be ready yet."""
        ...


class MeshProcesses:
    """The processes of a mesh that the benchmark started."""

    has_scheduler = can_restart = True

    def __init__(self, mesh: RunningMesh) -> None:
        self._mesh = mesh

    def pids(self) -> dict[str, int]:
        """Return the process ids by name."""
        return {name: pid for name, pid in self._mesh.pids.items() if pid}

    async def stop_scheduler(self) -> None:
        """Stop the scheduler; the supervisor does not restart it."""
        await self._mesh.supervisor.child(SCHEDULER).stop()

    async def start_scheduler(self) -> None:
        """Start the scheduler, and return when it is ready."""
        await self._mesh.supervisor.restart(SCHEDULER)


class NamedProcesses:
    """The processes that a user has named, and a scheduler that a command of the user starts."""

    def __init__(self, pids: Mapping[str, int], command: str = "") -> None:
        """Raises: Refused, when there is no such process, or the command cannot be read."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise Refused(f"--scheduler {command}: {error}") from None
        self.can_restart = bool(command)
        self.has_scheduler = bool(command) or any(is_scheduler(name) for name in pids)
        self._pids, self._command = dict(pids), command
        self._births = {name: _birth(pid) for name, pid in pids.items()}
        for name, birth in self._births.items():
            if not birth:
                raise Refused(f"--process {name}={pids[name]}: there is no process {pids[name]}")
        self._scheduler: asyncio.subprocess.Process | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115

    def pids(self) -> dict[str, int]:
        """Return the process ids by name. Raises: Refused, when one has ended."""
        for name, pid in self._pids.items():
            if _birth(pid) != self._births[name]:
                raise Refused(f"{name}, process {pid}, has ended")
        if self._scheduler is None:
            return dict(self._pids)
        if self._scheduler.returncode is not None:
            raise Refused(f"--scheduler: {self._command} ended with {self._scheduler.returncode}{self._last_words()}")
        return {**self._pids, SCHEDULER: self._scheduler.pid}

    async def start_scheduler(self) -> None:
        """Start the scheduler. Raises: Refused, when it cannot be executed."""
        try:
            self._scheduler = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            raise Refused(f"--scheduler: {self._words[0]}: {error.strerror}") from None

    async def stop_scheduler(self) -> None:
        """Stop the scheduler with its process group, by force after a while."""
        process, self._scheduler = self._scheduler, None
        if process is None or process.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_MAX_S):
                    await process.wait()
                    return

    def _last_words(self) -> str:
        self._log.seek(0)
        written = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return f": {written[-1]}" if written else ""


@dataclass
class Plane:
    """A plane that is measured."""

    name: str
    client: PlaneClient
    objects: Objects
    processes: Processes

    def meter(self, *, has_scheduler: bool) -> Meter:
        """Start a meter of the server's processes, and with `has_scheduler` of the schedulers too.

        Raises: Refused, when one has ended.
        """
        return Meter(self._chosen_pids(servers=True, schedulers=has_scheduler))

    def rss_mib(self, *, of_schedulers: bool) -> float:
        """Return the resident memory of the schedulers, or of the others together. Raises: Refused."""
        return sum(
            rss_mib(pid) for pid in self._chosen_pids(servers=not of_schedulers, schedulers=of_schedulers).values()
        )

    def _chosen_pids(self, *, servers: bool, schedulers: bool) -> dict[str, int]:
        pids = self.processes.pids().items()
        return {name: pid for name, pid in pids if (schedulers if is_scheduler(name) else servers)}


def is_scheduler(name: str) -> bool:
    """Whether a process is a scheduler, by its name; any other is counted as part of the API server."""
    return SCHEDULER in name


def pids_of(assignments: Sequence[str]) -> dict[str, int]:
    """Return the process ids of `--process` by name. Raises: Refused."""
    pids: dict[str, int] = {}
    for text in assignments:
        name, _, number = text.partition("=")
        if not name or not number.isdecimal():
            raise Refused(f"--process {text}: want NAME=PID, such as kube-apiserver=4242")
        if name in pids:
            raise Refused(f"--process {text}: {name} is named twice")
        pids[name] = int(number)
    if not any(not is_scheduler(name) for name in pids):
        raise Refused("--process: name the processes of the other API server, such as kube-apiserver=4242 etcd=4243")
    return pids


def _birth(pid: int) -> str:
    """Return when a process began, in ticks since the machine did; empty when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


@asynccontextmanager
async def keplab_plane(engine: str, mark: str) -> AsyncIterator[Plane]:
    """Run a plane of keplab inside the context, as `keplab up` starts its API server and its scheduler: TLS, RBAC,
    cluster objects, event files and spans.
    """
    async with (
        running_mesh(
            is_traced=True,
            engine=engine,
            without=frozenset(("controllers", "claim-controller")),
            serves_clients=True,
            arguments={"apiserver": ["--cluster-objects"]},
        ) as mesh,
        PlaneClient(read_access(mesh.supervisor.kubeconfig)) as client,
    ):
        yield Plane(engine, client, Objects(client, mark), MeshProcesses(mesh))
