"""One kind's changes, watched by many on one connection."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.mesh import LIMIT_S, quiet_arguments
from benchmarks.procfs import cpu_s
from services.api.wire import Request, WatchRequest
from services.client.rpc import RpcTransport
from services.runtime.supervisor import MeshOptions, Supervisor


def config_map(number: int) -> bytes:
    """Return a small object without any effect."""
    meta = {"name": f"bench-{number:06d}", "namespace": "default"}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b" * 1000}})


@dataclass
class FanOutResult:
    """One kind's changes to many watchers. `server_us_per_event`: CPU of the API server for each event sent."""

    watchers: int
    changes: int
    events: int
    events_per_s: float
    server_us_per_event: float


async def _fan_out(options: MeshOptions, watchers: int, changes: int) -> FanOutResult:
    supervisor = Supervisor(options)
    await supervisor.start()
    transport: RpcTransport = supervisor.client_transport()
    try:
        api = transport.api()
        seen = [0] * watchers

        async def follow(place: int) -> None:
            async for batch in api.watch(WatchRequest(resource="configmaps", resource_version="")):
                seen[place] += sum(event.type == "ADDED" for event in batch)

        following = [asyncio.create_task(follow(place)) for place in range(watchers)]
        await asyncio.sleep(1.0)
        pid = next(p["pid"] for p in supervisor.status()["processes"] if p["name"] == "apiserver")
        before, first = cpu_s(pid), time.perf_counter()
        numbers = iter(range(changes))

        async def write() -> None:
            for number in numbers:
                body = config_map(number)
                request = Request(verb="create", resource="configmaps", namespace="default", body=body)
                (await api.call(request)).unwrap()

        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*(write() for _ in range(WRITERS)))
            while min(seen) < changes:
                ended = [task for task in following if task.done()]
                if ended:
                    raise RuntimeError(f"{len(ended)} of {watchers} watchers were cut: {ended[0].exception()}")
                await asyncio.sleep(0.01)
        took_s, used_s = time.perf_counter() - first, cpu_s(pid) - before
        for task in following:
            task.cancel()
        events = sum(seen)
        return FanOutResult(watchers, changes, events, round(events / took_s, 1), round(1e6 * used_s / events, 2))
    finally:
        await transport.close()
        await supervisor.stop()


WRITERS = 8


def bench_fan_out(*, watchers: int, changes: int) -> FanOutResult:
    """Let every one of many watchers on one connection see every change of one kind."""
    with tempfile.TemporaryDirectory(prefix="keplab-bench-") as folder:
        options = MeshOptions(
            data_dir=Path(folder),
            engine="memory",
            arguments=quiet_arguments(),
            without=frozenset(("scheduler", "controllers")),
            log_level="warning",
        )
        return asyncio.run(_fan_out(options, watchers, changes))
