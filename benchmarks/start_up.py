"""A mesh from nothing, at rest, and called one by one."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from benchmarks.fan_out import creation
from benchmarks.mesh import Stopwatch
from benchmarks.result import Result
from benchmarks.running_mesh import rounded, running_mesh
from services.api.wire import Api, Request

CALLS: Final = 300
ENGINE: Final = "sqlite"


@dataclass
class StartResult(Result):
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


async def _start(nodes: int) -> StartResult:
    begun = time.perf_counter()
    async with running_mesh(is_traced=True, nodes=nodes, hosts=1, engine=ENGINE) as mesh:
        watch = Stopwatch(mesh.api, 1)
        async with watch.watching():
            await watch.create_all()
            first_running_s = max(watch.running.values()) - begun
        await asyncio.sleep(2.0)
        idle = mesh.rss_mib()
        times = await _call_one_by_one(mesh.api)
        return StartResult(
            nodes=nodes,
            engine=ENGINE,
            ready_s=round(mesh.start_s, 2),
            first_running_s=round(first_running_s, 2),
            idle_rss_mib=idle,
            call_p50_ms={verb: rounded(each, 0.5, 2) for verb, each in times.items()},
            call_p99_ms={verb: rounded(each, 0.99, 2) for verb, each in times.items()},
        )


async def _call_one_by_one(api: Api) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"create": [], "get": []}
    for number in range(CALLS):
        get = Request(verb="get", resource="configmaps", namespace="default", name=f"bench-{number:06d}")
        for request in (creation(number), get):
            asked = time.perf_counter()
            (await api.call(request)).unwrap()
            times[request.verb].append(1000 * (time.perf_counter() - asked))
    return times


def bench_start(*, nodes: int) -> StartResult:
    """Start a mesh as users do, everything on, run one pod, look at it at rest, and call it one by one."""
    return asyncio.run(_start(nodes))
