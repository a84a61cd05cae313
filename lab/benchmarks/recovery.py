"""Benchmark of the downtime of a killed API server: from SIGKILL to the first acknowledged write."""

import asyncio
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from lab.benchmarks.bench import Bench, Reporter, option
from lab.benchmarks.rest import pod
from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import LIMIT_S, cpu_s, many, quiet_arguments, rounded_quantile, running_mesh
from services.api.errors import UnknownOutcome
from services.api.wire import Api, Request
from services.runtime.supervisor import Supervisor

NAMESPACE: Final = "bench"
DOWN_S: Final = 0.2
"""Back-off of the supervisor before its first restart, in seconds. Repeated kills would otherwise make it longer."""
CREATED_AT_ONCE: Final = 200
WITHOUT: Final = frozenset(("scheduler", "controllers", "claim-controller"))


@dataclass
class RecoveryResult(Result):
    """Seconds from SIGKILL to a serving process, and to the first acknowledged write.

    The write is by a client that retries all the time; the back-offs of supervisor and client are included.
    `start_cpu_s`: CPU of a new process until it serves. `rss_mib`: memory of the last process;
    `load_average`: of the machine.
    """

    objects: int
    kills: int
    ready_p50_s: float
    ready_p99_s: float
    first_write_p50_s: float
    first_write_p99_s: float
    first_write_max_s: float
    start_cpu_s: float
    rss_mib: float
    database_mib: float
    load_average: float


def _creation(number: int) -> Request:
    body = msgspec.json.encode(pod(f"pod-{number:06d}"))
    return Request(verb="create", resource="pods", namespace=NAMESPACE, body=body)


async def _fill(api: Api, objects: int) -> None:
    namespace = {"metadata": {"name": NAMESPACE}}
    (await api.call(Request(verb="create", resource="namespaces", body=msgspec.json.encode(namespace)))).unwrap()

    async def create(number: int) -> None:
        (await api.call(_creation(number))).unwrap()

    await many(range(objects), create, CREATED_AT_ONCE)


async def _write(api: Api, number: int) -> float:
    """Try until a write is acknowledged, a new one each time; return when it was."""
    tries = 0
    while True:
        tries += 1
        meta = {"name": f"after-{number}-{tries}", "namespace": "default"}
        body = msgspec.json.encode({"metadata": meta})
        try:
            response = await api.call(
                Request(verb="create", resource="configmaps", namespace="default", body=body, deadline_s=2.0)
            )
        except UnknownOutcome:
            await asyncio.sleep(0.02)
            continue
        if response.is_ok:
            return time.perf_counter()
        await asyncio.sleep(0.02)


async def _ready(supervisor: Supervisor, pid: int) -> float:
    child = supervisor.child("apiserver")
    while child.pid in (0, pid) or not child.is_ready:  # noqa: ASYNC110  another process's state
        await asyncio.sleep(0.01)
    return time.perf_counter()


async def _recovery(objects: int, kills: int) -> RecoveryResult:
    arguments = {**quiet_arguments()}
    arguments["apiserver"] = [*arguments["apiserver"], "--objects-per-namespace-max", str(objects + 1)]
    async with running_mesh(engine="sqlite", arguments=arguments, without=WITHOUT) as mesh:
        await _fill(mesh.api, objects)
        ready, written, spent = [], [], []
        dice = random.Random(1)
        for number in range(kills):
            pid = mesh.pids["apiserver"]
            killed = time.perf_counter()
            mesh.supervisor.kill("apiserver", down_s=DOWN_S)
            async with asyncio.timeout(LIMIT_S):
                served, wrote = await asyncio.gather(_ready(mesh.supervisor, pid), _write(mesh.api, number))
            ready.append(served - killed)
            written.append(wrote - killed)
            spent.append(cpu_s(mesh.pids["apiserver"]))
            await asyncio.sleep(dice.uniform(0.2, 1.0))
        database = Path(mesh.supervisor.status()["data_dir"]) / "apiserver" / "store.db"
        return RecoveryResult(
            objects=objects,
            kills=kills,
            ready_p50_s=rounded_quantile(ready, 0.5, 2),
            ready_p99_s=rounded_quantile(ready, 0.99, 2),
            first_write_p50_s=rounded_quantile(written, 0.5, 2),
            first_write_p99_s=rounded_quantile(written, 0.99, 2),
            first_write_max_s=round(max(written), 2),
            start_cpu_s=rounded_quantile(spent, 0.5, 2),
            rss_mib=mesh.rss_mib()["apiserver"],
            database_mib=round(database.stat().st_size / 2**20, 1),
            load_average=round(os.getloadavg()[0], 1),
        )


def bench_recovery(*, objects: int, kills: int) -> RecoveryResult:
    """Store `objects` pods, then kill the API server `kills` times under the supervisor of `keplab up`."""
    return asyncio.run(_recovery(objects, kills))


@dataclass(frozen=True, kw_only=True)
class RecoveryOptions:
    """The options of `keplab bench recovery`."""

    objects: int = option(20_000, "pods stored", least=1, most=199_000)
    kills: int = option(20, "SIGKILLs of the API server", least=1, most=1_000)


def _run(options: RecoveryOptions, _: Reporter) -> RecoveryResult:
    return bench_recovery(objects=options.objects, kills=options.kills)


def _lines(options: RecoveryOptions, result: RecoveryResult) -> Iterator[str]:
    stored = f"{options.objects:,} pods, {result.database_mib:,.0f} MiB"
    yield f"{stored}; {options.kills} kills; load average {result.load_average:g}"
    yield f"SIGKILL → serving      p50 {result.ready_p50_s:.2f} s, p99 {result.ready_p99_s:.2f} s"
    p50_s, p99_s = result.first_write_p50_s, result.first_write_p99_s
    yield f"SIGKILL → first write  p50 {p50_s:.2f} s, p99 {p99_s:.2f} s, longest {result.first_write_max_s:.2f} s"
    yield f"a start uses {result.start_cpu_s:.2f} s of CPU; the server has {result.rss_mib:,.0f} MiB"


BENCH: Final = Bench(
    name="recovery",
    help="Kill the API server of a mesh again and again, and measure the time until it serves and acknowledges a "
    "write.",
    options=RecoveryOptions,
    run=_run,
    table=_lines,
    document=RecoveryResult.document,
    late="the API server did not come back in time",
)
