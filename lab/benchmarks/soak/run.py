"""Run a soak: start the mesh, put load on it, inject faults, take samples, and stop at the end or on Ctrl-C."""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import msgspec

from lab.benchmarks.bench import NOT_THERE, Bench, Reporter, Table, option
from lab.benchmarks.mesh import wait_for_nodes
from lab.benchmarks.running_mesh import RunningMesh, running_mesh
from lab.benchmarks.soak.faults import Fault, faults
from lab.benchmarks.soak.figures import Counts, Sample
from lab.benchmarks.soak.load import DRIVER, Load
from lab.benchmarks.soak.report import HEADINGS, RISING, Soak, page
from lab.benchmarks.soak.samples import of_directory, of_process, read_leases, read_metrics
from lab.scenarios.measures import quantile
from services.api.identity import ADMIN
from services.runtime.config import MeshError
from services.runtime.credentials import admin_tokens

SAMPLES: Final = 240
"""Number of samplings of a soak; their interval is at least five seconds and at most a minute."""
WARM_UP_SHARE: Final = 1 / 3
WARM_UP_MAX_S: Final = 3600.0
DEVICES: Final = 4
EVENT_TTL_SHARE: Final = 0.5
"""Lifetime of Events as a share of the warm-up, so that as many expire as are created when it ends. The
default lifetime is an hour.
"""
ITSELF: Final = "supervisor and load"
OUT_DEFAULT: Final = Path("runs/soak")

Say = Callable[[str], None]


def warm_up_s(hours: float) -> float:
    """Return the warm-up in seconds, in which nothing is judged: the first hour of eight (AS-46), a third of a
    shorter soak.
    """
    return min(WARM_UP_SHARE * 3600 * hours, WARM_UP_MAX_S)


@dataclass
class _Run:
    mesh: RunningMesh
    load: Load
    say: Say
    period_s: float
    begun_s: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)

    @property
    def at_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun_s

    async def watch(self) -> None:
        """Look at everything, for ever."""
        data = Path(self.mesh.supervisor.status()["data_dir"])
        token = admin_tokens(data)[ADMIN.user]
        while True:
            await asyncio.sleep(self.period_s)
            at_s = self.at_s
            processes = {process["name"]: process for process in self.mesh.supervisor.status()["processes"]}
            for name, process in processes.items():
                self.samples += of_process(at_s, name, process["pid"])
            self.samples += of_process(at_s, ITSELF, os.getpid())
            ports = {name: (each["pid"], each["ports"].get("health", 0)) for name, each in processes.items()}
            self.samples += await read_metrics(ports, token, self.begun_s)
            self.samples += await read_leases(self.mesh.api, self.begun_s)
            self.samples += await asyncio.to_thread(of_directory, at_s, data)
            for title, values in zip(("running", "read"), self.load.take(), strict=True):
                for name, q in (("p50", 0.5), ("p99", 0.99)):
                    value = quantile(values, q)
                    if value is not None:
                        self.samples.append(Sample(at_s, f"{title} {name}", "", 0, value))

    async def strike(self, due: list[Fault]) -> None:
        """Bring the faults, each at its time."""
        for fault in due:
            await asyncio.sleep(max(0.0, fault.at_s - self.at_s))
            with contextlib.suppress(MeshError, ProcessLookupError, KeyError):
                if fault.kind == "kill":
                    self.mesh.supervisor.kill(fault.process)
                else:
                    await self._pause(fault)
                self.struck[fault.kind] += 1

    async def _pause(self, fault: Fault) -> None:
        pid = self.mesh.supervisor.child(fault.process).pid
        if not pid:
            return
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.pause_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    async def report_progress(self, hours: float) -> None:
        """Say how far it is, every minute."""
        while True:
            await asyncio.sleep(60)
            largest = sorted(self.mesh.rss_mib().items(), key=lambda item: -item[1])[:4]
            memory = ", ".join(f"{name} {size:.0f}" for name, size in largest)
            done = f"{self.at_s / 60:.0f} of {60 * hours:.0f} min"
            self.say(f"{done}; {self.load.counts.ran:,} pods ran, {self.load.counts.stuck} stuck; MiB: {memory}")


async def _soak(
    hours: float, *, nodes: int, rate: float, fault_period_s: float, seed: int, engine: str, say: Say
) -> Soak:
    random, warm_s = Random(seed), warm_up_s(hours)
    before = os.getloadavg()[0]
    definitions = {
        f"h{host}": [{"name": f"node-{host}-{number}", "cpu": "16", "memory": "64Gi", "drivers": f"{DRIVER}:{DEVICES}"}
                     for number in range(nodes // 3 + (host < nodes % 3))]
        for host in range(min(3, nodes))
    }  # fmt: skip
    arguments = {"apiserver": ["--event-ttl", f"{EVENT_TTL_SHARE * warm_s:.0f}s"]}
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopped.set)
    soak = Soak(hours, warm_s, 0.0, nodes, seed, (before, before), Counts(), {})
    async with running_mesh(is_traced=True, definitions=definitions, engine=engine, arguments=arguments) as mesh:
        await wait_for_nodes(mesh.api, nodes)
        load = Load(mesh.api, random, rate)
        await load.set_up()
        period_s = min(60.0, max(5.0, 3600 * hours / SAMPLES))
        run = _Run(mesh, load, say, period_s)
        names = [name for name in mesh.pids if not name.startswith("dra-driver/")]
        due = faults(names, period_s=fault_period_s, warm_up_s=warm_s, hours=hours, random=random)
        work: list[Coroutine[Any, Any, None]] = [load.run(), run.watch(), run.strike(due), run.report_progress(hours)]
        soak.is_interrupted = await _until(stopped, 3600 * hours, work)
        soak.took_s, soak.counts, soak.faults, soak.samples = run.at_s, load.counts, dict(run.struck), run.samples
    soak.load_average = (before, os.getloadavg()[0])
    return soak


async def _until(stopped: asyncio.Event, seconds: float, work: list[Coroutine[Any, Any, None]]) -> bool:
    """Work until the time is over (False) or it is stopped (True). Raises: what the work raises."""
    stopping: asyncio.Future[Any] = asyncio.create_task(stopped.wait())
    working: asyncio.Future[Any] = asyncio.gather(*work)
    try:
        done, _ = await asyncio.wait({stopping, working}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working in done:
            working.result()
        return stopping in done
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.gather(stopping, working, return_exceptions=True)


def bench_soak(
    *,
    hours: float,
    nodes: int,
    rate: float,
    fault_period_s: float,
    seed: int,
    engine: str = "sqlite",
    say: Say = lambda _: None,
) -> Soak:
    """Run a mesh for `hours` under churn and faults; Ctrl-C ends it early. `rate`: bare pods a second."""
    return asyncio.run(
        _soak(hours, nodes=nodes, rate=rate, fault_period_s=fault_period_s, seed=seed, engine=engine, say=say)
    )


@dataclass(frozen=True, kw_only=True)
class SoakOptions:
    """The options of `keplab bench soak`. `rate`: bare pods a second; `fault_every`: seconds, on average."""

    hours: float = option(1.0, "length in hours", least=0.02, most=1_000)
    nodes: int = option(6, "emulated nodes", least=1, most=1_000)
    rate: float = option(1.0, "bare pods a second", least=0.05, most=100)
    fault_every: float = option(20.0, "seconds between faults, on average", least=1)
    engine: Literal["memory", "sqlite"] = option(
        "sqlite", "storage engine of the API server", choices=("memory", "sqlite")
    )
    seed: int = option(0, "seed of load and faults")
    out: Path = option(OUT_DEFAULT, "directory for soak.json and soak.md")


def _run_bench(options: SoakOptions, reporter: Reporter) -> Soak:
    """Measure, and write the page and the JSON document with all samples."""
    soak = bench_soak(
        hours=options.hours,
        nodes=options.nodes,
        rate=options.rate,
        fault_period_s=options.fault_every,
        seed=options.seed,
        engine=options.engine,
        say=reporter.say,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "soak.json").write_bytes(msgspec.json.encode(soak.document()))
    (options.out / "soak.md").write_text(page(soak))
    return soak


def _table(options: SoakOptions, soak: Soak) -> Iterator[str | Table]:
    yield Table(HEADINGS, [row.cells() for row in soak.rows()])
    yield soak.summary
    yield f"wrote {options.out}/soak.json and {options.out}/soak.md"


def _document(soak: Soak) -> dict[str, Any]:
    return {key: value for key, value in soak.document().items() if key != "samples"}


BENCH: Final = Bench(
    name="soak",
    help="""Run a mesh for hours under churn and faults, and judge after a warm-up whether anything grows.

    Pods, Deployments, Jobs and claims come and go, and processes are killed and paused. The judgement covers memory,
    files, threads, tasks, queues, watches, the store, latencies and lease ages.

    Ctrl-C ends the soak early and judges the samples so far. The exit code is 1 when a slope is above its limit.
    """,
    options=SoakOptions,
    run=_run_bench,
    table=_table,
    document=_document,
    late=NOT_THERE,
    is_failed=lambda soak: any(row.result in RISING for row in soak.rows()),
    is_interrupted=lambda soak: soak.is_interrupted,
)
