"""A mesh from nothing, at rest, and called one by one."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fan_out import config_map
from benchmarks.mesh import LIMIT_S, Stopwatch, create_pods
from benchmarks.procfs import rss_mib
from services.api.wire import Api, Request
from services.client.rpc import RpcTransport
from services.runtime.supervisor import MeshOptions, Supervisor
from services.scenarios.measures import quantile


@dataclass
class StartResult:
    """A mesh from nothing: seconds until its nodes are Ready and until the first pod runs; MiB when at rest.

    `call_p50_ms` and `call_p99_ms`: one caller that asks and waits, 300 times each, creating and reading.
    """

    nodes: int
    engine: str
    ready_s: float
    first_running_s: float
    idle_rss_mib: dict[str, float]
    call_p50_ms: dict[str, float]
    call_p99_ms: dict[str, float]


CALLS = 300


async def _start(options: MeshOptions, nodes: int) -> StartResult:
    begun = time.perf_counter()
    supervisor = Supervisor(options)
    await supervisor.start()
    ready_s = time.perf_counter() - begun
    transport: RpcTransport = supervisor.client_transport()
    try:
        api = transport.api()
        watch, ready = Stopwatch(1), asyncio.Event()
        following = asyncio.create_task(watch.follow(api, ready))
        await create_pods(api, watch, 1)
        async with asyncio.timeout(LIMIT_S):
            await watch.done.wait()
        first_running_s = max(watch.running.values()) - begun
        following.cancel()
        await asyncio.sleep(2.0)
        pids = {p["name"]: p["pid"] for p in supervisor.status()["processes"]}
        idle = {name: round(rss_mib(pid), 1) for name, pid in pids.items()}
        times = await _call_one_by_one(api)
        return StartResult(
            nodes=nodes,
            engine=options.engine,
            ready_s=round(ready_s, 2),
            first_running_s=round(first_running_s, 2),
            idle_rss_mib=idle,
            call_p50_ms={verb: round(quantile(each, 0.5) or 0.0, 2) for verb, each in times.items()},
            call_p99_ms={verb: round(quantile(each, 0.99) or 0.0, 2) for verb, each in times.items()},
        )
    finally:
        await transport.close()
        await supervisor.stop()


async def _call_one_by_one(api: Api) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"create": [], "get": []}
    for number in range(CALLS):
        for verb, request in (
            ("create", Request(verb="create", resource="configmaps", namespace="default", body=config_map(number))),
            ("get", Request(verb="get", resource="configmaps", namespace="default", name=f"bench-{number:06d}")),
        ):
            asked = time.perf_counter()
            (await api.call(request)).unwrap()
            times[verb].append(1000 * (time.perf_counter() - asked))
    return times


def bench_start(*, nodes: int, engine: str = "sqlite") -> StartResult:
    """Start a mesh as users do, everything on, run one pod, look at it at rest, and call it one by one."""
    with tempfile.TemporaryDirectory(prefix="keplab-bench-") as folder:
        options = MeshOptions(data_dir=Path(folder), nodes=nodes, hosts=1, engine=engine, log_level="warning")
        return asyncio.run(_start(options, nodes))
