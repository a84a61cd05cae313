"""Benchmark of the API server as clients see it: start from nothing, calls one by one, and changes to many watchers."""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import msgspec

from apiserver_fake.storage.watch_hub import WATCHERS_PER_IDENTITY
from lab.benchmarks.mesh import Stopwatch
from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import LIMIT_S, many, quiet_arguments, rounded_quantile, running_mesh
from services.api.identity import MASTERS_GROUP, Identity
from services.api.wire import Api, Request, WatchRequest

WRITERS: Final = 8
CALLS: Final = 300
ENGINE: Final = "sqlite"
READER: Final = "bench:watcher"
"""Prefix of the users that open the watches; one identity may have at most `WATCHERS_PER_IDENTITY`."""


def creation(number: int) -> Request:
    """Return the request that creates a small ConfigMap, to which no component reacts."""
    meta = {"name": f"bench-{number:06d}", "namespace": "default"}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b" * 1000}}
    return Request(verb="create", resource="configmaps", namespace="default", body=msgspec.json.encode(document))


@dataclass
class FanOutResult(Result):
    """Figures of one kind's changes sent to many watchers. `server_us_per_event`: CPU of the API server per
    event sent.
    """

    watchers: int
    changes: int
    events: int
    events_per_s: float
    server_us_per_event: float


async def _fan_out(watchers: int, changes: int) -> FanOutResult:
    without = frozenset(("scheduler", "controllers", "claim-controller"))
    readers = tuple(
        Identity(f"{READER}-{number}", (MASTERS_GROUP,)) for number in range(-(-watchers // WATCHERS_PER_IDENTITY))
    )
    async with (
        running_mesh(
            is_traced=True, engine="memory", arguments=quiet_arguments(), without=without, identities=readers
        ) as mesh,
        AsyncExitStack() as connections,
    ):
        api, seen = mesh.api, [0] * watchers
        apis: list[Api] = []
        for reader in readers:
            transport = mesh.supervisor.client_transport(reader.user)
            connections.push_async_callback(transport.close)
            apis.append(transport.api(reader.user))

        async def follow(place: int) -> None:
            reading = apis[place % len(apis)]
            async for batch in reading.watch(WatchRequest(resource="configmaps", resource_version="")):
                seen[place] += sum(event.type == "ADDED" for event in batch)

        async def write(number: int) -> None:
            (await api.call(creation(number))).unwrap()

        following = [asyncio.create_task(follow(place)) for place in range(watchers)]
        await asyncio.sleep(1.0)
        meter, first = mesh.meter(), time.perf_counter()
        async with asyncio.timeout(LIMIT_S):
            await many(range(changes), write, WRITERS)
            while min(seen) < changes:
                ended = [task for task in following if task.done()]
                if ended:
                    raise RuntimeError(f"{len(ended)} of {watchers} watchers were cut: {ended[0].exception()}")
                await asyncio.sleep(0.01)
        took_s, used_s = time.perf_counter() - first, meter.spent_s()["apiserver"]
        for task in following:
            task.cancel()
        events = sum(seen)
        return FanOutResult(watchers, changes, events, round(events / took_s, 1), round(1e6 * used_s / events, 2))


def bench_fan_out(*, watchers: int, changes: int) -> FanOutResult:
    """Deliver every change of one kind to each of many watchers, and return the figures."""
    return asyncio.run(_fan_out(watchers, changes))


@dataclass
class StartResult(Result):
    """Figures of a mesh started from nothing.

    `ready_s`: seconds until its nodes are Ready; `first_running_s`: until the first pod runs. `idle_rss_mib`:
    resident memory at rest; `idle_pss_mib`: the same with shared pages divided among those that share them.
    `call_p50_ms` and `call_p99_ms`: latency of one client that makes 300 creates and 300 gets, one call at a time.
    """

    nodes: int
    engine: str
    ready_s: float
    first_running_s: float
    idle_rss_mib: dict[str, float]
    idle_pss_mib: dict[str, float]
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
        idle, proportional = mesh.rss_mib(), mesh.pss_mib()
        times = await _call_one_by_one(mesh.api)
        return StartResult(
            nodes=nodes,
            engine=ENGINE,
            ready_s=round(mesh.start_s, 2),
            first_running_s=round(first_running_s, 2),
            idle_rss_mib=idle,
            idle_pss_mib=proportional,
            call_p50_ms={verb: rounded_quantile(each, 0.5, 2) for verb, each in times.items()},
            call_p99_ms={verb: rounded_quantile(each, 0.99, 2) for verb, each in times.items()},
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
    """Start a mesh as users do, with all components; run one pod, measure memory at rest, then make calls one by
    one.
    """
    return asyncio.run(_start(nodes))
