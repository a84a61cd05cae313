"""A mesh to be measured: its data is in a temporary folder, and the kernel counts what its processes use."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from lab.scenarios.measures import quantile
from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import Identity
from services.api.wire import Api, WatchEvent, WatchRequest
from services.runtime.mesh.options import MeshOptions
from services.runtime.supervisor import Supervisor

IN_FLIGHT: Final = 256
LIMIT_S: Final = 300.0
LOAD: Final = "load"
"""Name of the load generator's process among the others."""
SAMPLER: Final = "OTEL_TRACES_SAMPLER"
TICK: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
T = TypeVar("T")


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process in seconds; 0 if it has exited."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB; 0 if it has exited."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20
    except OSError:
        return 0.0


def pss_mib(pid: int) -> float:
    """Return the proportional memory of a process in MiB; 0 if it has exited.

    A page that several processes share is divided among them: those of a mesh share what their common importer loaded.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


class Meter:
    """CPU time of processes since the meter was created, by process name."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._began_s = time.perf_counter()
        self._before = {name: cpu_s(pid) for name, pid in pids.items()}

    def shares(self) -> dict[str, float]:
        """Return the CPU use since the start, in cores."""
        took_s = time.perf_counter() - self._began_s
        return {name: round(spent / took_s, 4) for name, spent in self.spent_s().items()}

    def us_per(self, count: int) -> dict[str, float]:
        """Return the CPU microseconds since the start, divided by `count`."""
        return {name: round(1e6 * spent / count, 1) for name, spent in self.spent_s().items()}

    def spent_s(self) -> dict[str, float]:
        """Return the CPU seconds since the start."""
        return {name: cpu_s(pid) - self._before[name] for name, pid in self._pids.items()}


@dataclass
class RunningMesh:
    """A running mesh with a client. `start_s`: seconds until its processes were ready."""

    api: Api
    supervisor: Supervisor
    start_s: float

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by process name."""
        return {process["name"]: process["pid"] for process in self.supervisor.status()["processes"]}

    def rss_mib(self) -> dict[str, float]:
        """Return the resident memory of each process in MiB."""
        return {name: round(rss_mib(pid), 1) for name, pid in self.pids.items()}

    def pss_mib(self) -> dict[str, float]:
        """Return the proportional memory of each process in MiB."""
        return {name: round(pss_mib(pid), 1) for name, pid in self.pids.items()}

    def meter(self, *, with_load: bool = False) -> Meter:
        """Start a meter for the processes; `with_load`: include this process, which generates the load."""
        return Meter(self.pids | ({LOAD: os.getpid()} if with_load else {}))


@asynccontextmanager
async def running_mesh(
    *,
    is_traced: bool = False,
    nodes: int = 0,
    hosts: int = 0,
    definitions: Mapping[str, Sequence[Mapping[str, object]]] | None = None,
    engine: str = "sqlite",
    apiservers: int = 1,
    switches: tuple[str, ...] = (),
    arguments: Mapping[str, Sequence[str]] | None = None,
    identities: tuple[Identity, ...] = (),
    without: frozenset[str] = frozenset(),
    serves_clients: bool = False,
    security: Literal["tokens", "strict"] = "tokens",
) -> AsyncIterator[RunningMesh]:
    """Run a mesh with these `MeshOptions` inside the context. Unless `is_traced`, its processes start no traces
    themselves.
    """
    was_set = is_traced or SAMPLER in os.environ
    if not was_set:
        os.environ[SAMPLER] = "parentbased_always_off"
    try:
        with tempfile.TemporaryDirectory(prefix="keplab-bench-") as folder:
            begun = time.perf_counter()
            options = MeshOptions(
                data_dir=Path(folder),
                nodes=nodes,
                hosts=hosts,
                definitions=definitions or {},
                engine=engine,
                apiservers=apiservers,
                switches=switches,
                log_level="warning",
                arguments=arguments or {},
                identities=identities,
                without=without,
                serves_clients=serves_clients,
                security=security,
            )
            supervisor = Supervisor(options)
            await supervisor.start()
            start_s = time.perf_counter() - begun
            transport = supervisor.client_transport()
            try:
                yield RunningMesh(transport.api(), supervisor, start_s)
            finally:
                await transport.close()
                await supervisor.stop()
    finally:
        if not was_set:
            del os.environ[SAMPLER]


def quiet_arguments() -> dict[str, list[str]]:
    """Return the flags of a mesh to be measured: no event files, no spans, containers that start in no time."""
    silent = ["--events-dir", "", "--spans-dir", ""]
    kubelet = [*silent, "--latency", "all=constant:0", "--status-qps", "0", "--pod-events", "warnings"]
    return {
        "apiserver": silent,
        "scheduler": silent,
        "controllers": silent,
        "claim-controller": silent,
        "kubelet": kubelet,
    }


async def many(items: Iterable[T], do: Callable[[T], Awaitable[None]], at_once: int = IN_FLIGHT) -> None:
    """Call `do` for each item, at most `at_once` at a time."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await do(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(worker())


async def follow(api: Api, resource: str, note: Callable[[WatchEvent, float], None], then: Callable[[], None]) -> None:
    """Watch all objects of a resource, and resume when the watch ends. Call `note` with each event and its time, and
    `then` after each batch.
    """
    rv = ""
    while True:
        try:
            async for batch in api.watch(WatchRequest(resource=resource, resource_version=rv)):
                now = time.perf_counter()
                for event in batch:
                    rv = str(event.rv) if event.rv else rv
                    note(event, now)
                then()
        except (ApiError, UnknownOutcome):
            await asyncio.sleep(0.1)


def rounded_quantile(values: Sequence[float], q: float, digits: int = 1) -> float:
    """Return a rounded quantile; 0 if there are no values."""
    return round(quantile(list(values), q) or 0.0, digits)
