"""One kind's changes, watched by many on one connection."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import msgspec

from benchmarks.result import Result
from benchmarks.running_mesh import LIMIT_S, many, quiet_arguments, running_mesh
from services.api.wire import Request, WatchRequest

WRITERS: Final = 8


def creation(number: int) -> Request:
    """Return the request that creates a small object without any effect."""
    meta = {"name": f"bench-{number:06d}", "namespace": "default"}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b" * 1000}}
    return Request(verb="create", resource="configmaps", namespace="default", body=msgspec.json.encode(document))


@dataclass
class FanOutResult(Result):
    """One kind's changes to many watchers. `server_us_per_event`: CPU of the API server for each event sent."""

    watchers: int
    changes: int
    events: int
    events_per_s: float
    server_us_per_event: float


async def _fan_out(watchers: int, changes: int) -> FanOutResult:
    without = frozenset(("scheduler", "controllers"))
    async with running_mesh(is_traced=True, engine="memory", arguments=quiet_arguments(), without=without) as mesh:
        api, seen = mesh.api, [0] * watchers

        async def follow(place: int) -> None:
            async for batch in api.watch(WatchRequest(resource="configmaps", resource_version="")):
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
    """Let every one of many watchers on one connection see every change of one kind."""
    return asyncio.run(_fan_out(watchers, changes))
