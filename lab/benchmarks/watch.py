"""Cost of watches for other clients: changes sent to many watchers, and a healthy client while 200 watches
start or stall.

The watchers that start or stall run in a process of their own at low priority, so that they take no CPU
from the healthy client. Each phase reports the API server's CPU besides wall times.
"""

import asyncio
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec
import yaml

from lab.benchmarks.apiserver import FanOutResult, bench_fan_out
from lab.benchmarks.bench import Bench, Reporter, Table, option
from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import RunningMesh, many, quiet_arguments, rounded_quantile, running_mesh
from services.api.wire import Request, WatchRequest

FAN_OUT: Final = ((1, 2_000), (10, 2_000), (100, 1_000), (1_000, 200))
"""Pairs of (number of watchers, number of changes)."""
CREATORS: Final = 64
PACE_S: Final = 0.01
"""Pause between two calls of the healthy client, in seconds."""
REST_S, STALLED_S = 4.0, 12.0
WRITES_PER_S, WRITTEN_BYTES = 60, 3_000
START_LIMIT_S: Final = 180.0
JSON: Final = "application/json"


@dataclass
class Phase:
    """Figures of the healthy client in one phase: each call is a get of one pod, over REST and gRPC in turn;
    times in ms.

    `begun` and `refused`: number of watches. `took_s`: length of the phase; `server_cpu_s`: CPU of the API
    server.
    """

    calls: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    took_s: float
    server_cpu_s: float
    server_rss_mib: float
    begun: int = 0
    refused: int = 0
    delivered_p99_ms: float = 0.0


@dataclass
class WatchResult(Result):
    """Figures of watches. `fan_out`: by number of watchers; `phases`: by what the watches did."""

    watchers: int
    objects: int
    load_average: float
    fan_out: dict[int, FanOutResult]
    phases: dict[str, Phase]


def _pod(number: int) -> bytes:
    containers = [{"name": "c", "image": "registry.example/web:1.2.0", "resources": {"requests": {"cpu": "100m"}}}]
    meta = {"name": f"pod-{number:06d}", "namespace": "default", "labels": {"app": f"a{number % 10}"}}
    return msgspec.json.encode(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}}
    )


class _Healthy:
    """A client that gets one pod a hundred times a second and notes how long each response takes."""

    def __init__(self, mesh: RunningMesh, session: aiohttp.ClientSession) -> None:
        self._mesh, self._session, self.times_s = mesh, session, list[float]()
        self.delivered_s: list[float] = []

    async def run(self) -> None:
        url = f"{self._mesh.supervisor.rest_url}/api/v1/namespaces/default/pods/pod-000000"
        get = Request(verb="get", resource="pods", namespace="default", name="pod-000000")
        while True:
            asked = time.perf_counter()
            async with self._session.get(url) as answer:
                await answer.read()
            self.times_s.append(time.perf_counter() - asked)
            await asyncio.sleep(PACE_S)
            asked = time.perf_counter()
            (await self._mesh.api.call(get)).unwrap()
            self.times_s.append(time.perf_counter() - asked)
            await asyncio.sleep(PACE_S)

    @asynccontextmanager
    async def measure_phase(self, phases: dict[str, Phase], name: str) -> AsyncIterator[Phase]:
        """Measure what happens inside."""
        self.times_s, self.delivered_s = [], []
        meter, begun = self._mesh.meter(), time.perf_counter()
        calling = asyncio.create_task(self.run())
        phase = phases[name] = Phase(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        try:
            yield phase
        finally:
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            times = [1000 * each for each in self.times_s]
            phase.calls, phase.max_ms = len(times), round(max(times, default=0.0), 1)
            phase.p50_ms, phase.p99_ms = rounded_quantile(times, 0.5), rounded_quantile(times, 0.99)
            phase.took_s = round(time.perf_counter() - begun, 2)
            phase.server_cpu_s = round(meter.spent_s()["apiserver"], 2)
            phase.server_rss_mib = self._mesh.rss_mib()["apiserver"]
            phase.delivered_p99_ms = rounded_quantile([1000 * each for each in self.delivered_s], 0.99)


class _Watchers:
    """A number of watches of pods in a process of their own."""

    def __init__(self, mesh: RunningMesh, token: str, count: int, query: str, *, reads: bool) -> None:
        self._arguments = [mesh.supervisor.rest_url, str(mesh.supervisor.authority), str(count), query]
        self._token, self._reads = token, reads

    async def __aenter__(self) -> "_Watchers":
        module = "lab.benchmarks.watchers"
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *self._arguments,
            "read" if self._reads else "stall",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(self._token.encode() + b"\n")
        return self

    async def line(self) -> list[int]:
        """Return the next numbers that it reports."""
        assert self._process.stdout is not None
        async with asyncio.timeout(START_LIMIT_S):
            return [int(text) for text in (await self._process.stdout.readline()).split()]

    async def __aexit__(self, *error: object) -> None:
        self._process.terminate()
        await self._process.wait()


async def _phases(mesh: RunningMesh, watchers: int, objects: int, say: Callable[[str], None]) -> dict[str, Phase]:
    [user] = yaml.safe_load(mesh.supervisor.kubeconfig.read_text())["users"]
    token, context = user["user"]["token"], ssl.create_default_context(cafile=str(mesh.supervisor.authority))
    phases: dict[str, Phase] = {}

    async def create(number: int) -> None:
        request = Request(verb="create", resource="pods", namespace="default", body=_pod(number))
        (await mesh.api.call(request)).unwrap()

    say(f"creating {objects:,} pods")
    await many(range(objects), create, CREATORS)
    headers = {"Authorization": f"Bearer {token}", "Accept": JSON}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        healthy = _Healthy(mesh, session)
        async with healthy.measure_phase(phases, "at rest"):
            await asyncio.sleep(REST_S)
        newest = (await mesh.api.call(Request(verb="list", resource="nodes"))).rv
        for name, query, reads in (
            ("starts without initial state", f"watch=1&resourceVersion={newest}", True),
            ("starts, all read", "watch=1", True),
            ("starts, nothing read", "watch=1", False),
        ):
            say(f"{watchers} {name}")
            async with (
                healthy.measure_phase(phases, name) as phase,
                _Watchers(mesh, token, watchers, query, reads=reads) as many_watchers,
            ):
                phase.begun, phase.refused = await many_watchers.line()
                if not reads:
                    await asyncio.sleep(STALLED_S)
            await asyncio.sleep(1.0)
        say(f"{watchers} stalled watchers, {WRITES_PER_S} writes a second")
        async with _Watchers(mesh, token, watchers, f"watch=1&resourceVersion={newest}", reads=False) as many_watchers:
            begun, refused = await many_watchers.line()
            async with healthy.measure_phase(phases, "stalled watchers, writes") as phase:
                phase.begun, phase.refused = begun, refused
                await _write_and_follow(mesh, objects, healthy.delivered_s)
    return phases


async def _write_and_follow(mesh: RunningMesh, objects: int, delivered_s: list[float]) -> None:
    """Patch the pods in turn and note how long each change takes to a watch that reads."""
    sent: dict[str, float] = {}

    async def follow() -> None:
        rv = str((await mesh.api.call(Request(verb="list", resource="nodes"))).rv)
        async for batch in mesh.api.watch(WatchRequest(resource="pods", resource_version=rv)):
            now = time.perf_counter()
            delivered_s.extend(now - sent[event.name] for event in batch if event.name in sent)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.5)
    ends = time.perf_counter() + STALLED_S
    number = 0
    while time.perf_counter() < ends:
        number += 1
        name = f"pod-{number % objects:06d}"
        patch: dict[str, Any] = {"metadata": {"annotations": {"a": f"{number:0{WRITTEN_BYTES}d}"}}}
        sent[name] = time.perf_counter()
        request = Request(
            verb="patch",
            resource="pods",
            namespace="default",
            name=name,
            patch_type="merge",
            body=msgspec.json.encode(patch),
        )
        (await mesh.api.call(request)).unwrap()
        await asyncio.sleep(max(0.0, sent[name] + 1 / WRITES_PER_S - time.perf_counter()))
    following.cancel()


async def _watch(watchers: int, objects: int, say: Callable[[str], None]) -> dict[str, Phase]:
    without = frozenset(("scheduler", "controllers", "claim-controller"))
    async with running_mesh(engine="memory", arguments=quiet_arguments(), without=without) as mesh:
        return await _phases(mesh, watchers, objects, say)


def bench_watch(
    *,
    watchers: int = 200,
    objects: int = 10_000,
    fan_out: tuple[tuple[int, int], ...] = FAN_OUT,
    say: Callable[[str], None] = lambda text: None,
) -> WatchResult:
    """Measure the fan-out and the healthy client. Raises: TimeoutError when watches do not start in time."""
    load = round(os.getloadavg()[0], 2)
    fan_out_results: dict[int, FanOutResult] = {}
    for count, changes in fan_out:
        say(f"{changes:,} changes to {count:,} watchers")
        fan_out_results[count] = bench_fan_out(watchers=count, changes=changes)
    phases = asyncio.run(_watch(watchers, objects, say))
    return WatchResult(watchers, objects, load, fan_out_results, phases)


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """The options of `keplab bench watch`."""

    watchers: int = option(200, "watchers that begin, or stall", least=1, most=250)
    objects: int = option(10_000, "pods that watchers begin with", least=1, most=40_000)


def _run(options: WatchOptions, reporter: Reporter) -> WatchResult:
    return bench_watch(watchers=options.watchers, objects=options.objects, say=reporter.say)


def _table(options: WatchOptions, result: WatchResult) -> Iterator[str | Table]:
    yield f"load average before: {result.load_average}"
    yield Table(
        ("WATCHERS", "CHANGES", "EVENTS/s", "SERVER CPU µs/EVENT"),
        [
            (f"{count:,}", f"{each.changes:,}", f"{each.events_per_s:,.0f}", f"{each.server_us_per_event:,.1f}")
            for count, each in result.fan_out.items()
        ],
        texts=0,
    )
    yield ""
    columns = ("CALLS", "p50 ms", "p99 ms", "MAX ms", "s", "SERVER CPU s", "MiB", "BEGUN", "REFUSED")
    yield Table(
        (f"{options.watchers} WATCHES, {options.objects:,} PODS", *columns, "DELIVERED p99 ms"),
        [
            (
                name,
                f"{each.calls:,}",
                each.p50_ms,
                each.p99_ms,
                each.max_ms,
                each.took_s,
                each.server_cpu_s,
                each.server_rss_mib,
                each.begun,
                each.refused,
                each.delivered_p99_ms or "",
            )
            for name, each in result.phases.items()
        ],
    )


BENCH: Final = Bench(
    name="watch",
    help="Send changes to 1, 10, 100 and 1,000 watchers, and measure a healthy client while many watchers begin or "
    "stall.",
    options=WatchOptions,
    run=_run,
    table=_table,
    document=WatchResult.document,
    late="the watches did not begin in time",
)
