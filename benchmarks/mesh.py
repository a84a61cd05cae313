"""Measure a mesh of real processes: pods created → Running, CPU a pod, memory, watch fan-out.

The clock runs from the first creation to the moment a watcher has seen the last pod Running.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmarks.environment import surroundings
from benchmarks.procfs import cpu_s, rss_mib
from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import View
from services.api.wire import Api, Request, WatchRequest
from services.client.rpc import RpcTransport
from services.runtime.supervisor import MeshOptions, Supervisor
from services.scenarios.measures import quantile

IN_FLIGHT = 256
LIMIT_S = 300.0
LOAD = "load"
"""How the process that makes the load is called among the others."""


class _Spec(View, frozen=True):
    node_name: str = ""


class _Status(View, frozen=True):
    phase: str = ""


class _Pod(View, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass
class BenchResult:
    """Figures of one workload; times in milliseconds.

    `cpu_us_per_pod`: CPU of all processes of the mesh together, without the load generator ("load"), which
    `cpu_us_per_pod_by_process` names as well. `rss_mib` and `idle_rss_mib` are by process, after the load
    and before it.
    """

    workload: str
    form: str
    nodes: int
    pods: int
    engine: str
    switches: tuple[str, ...]
    pods_per_s: float
    p50_ms: float
    p99_ms: float
    create_to_bound_p50_ms: float
    create_to_bound_p99_ms: float
    cpu_us_per_pod: float = 0.0
    cpu_us_per_pod_by_process: dict[str, float] = field(default_factory=dict)
    rss_mib: dict[str, float] = field(default_factory=dict)
    idle_rss_mib: dict[str, float] = field(default_factory=dict)
    start_s: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return the JSON document of `keplab bench -o json`."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def _pod(number: int) -> bytes:
    return _POD.replace(b"NUMBER", b"%06d" % number)


_POD = msgspec.json.encode(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bench-NUMBER", "namespace": "default"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "pause:3.10",
                    "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}},
                }
            ]
        },
    }
)


class Stopwatch:
    """When each pod was created, bound and Running, as one watcher saw it."""

    def __init__(self, total: int, *, first: int = 0) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.running: dict[str, float] = {}
        self.done = asyncio.Event()
        self._total, self._first = total, f"bench-{first:06d}"
        self._decode = msgspec.json.Decoder(_Pod).decode

    async def follow(self, api: Api, ready: asyncio.Event) -> None:
        """Watch pods until all are Running; resume when the server ends the stream."""
        rv = ""
        while True:
            try:
                async for batch in api.watch(WatchRequest(resource="pods", resource_version=rv)):
                    now = time.perf_counter()
                    for event in batch:
                        rv = str(event.rv) if event.rv else rv
                        if event.type in ("ADDED", "MODIFIED"):
                            self._note(event.name, self._decode(event.body), now)
                    ready.set()
            except (ApiError, UnknownOutcome):
                await asyncio.sleep(0.1)

    def milliseconds(self) -> list[float]:
        """Return what each pod took from created to Running."""
        return [1000 * (self.running[name] - at) for name, at in self.created.items()]

    def _note(self, name: str, pod: _Pod, now: float) -> None:
        if not name.startswith("bench-") or name < self._first:
            return
        if pod.spec.node_name and name not in self.bound:
            self.bound[name] = now
        if pod.status.phase == "Running" and name not in self.running:
            self.running[name] = now
            if len(self.running) == self._total:
                self.done.set()


async def create_one(api: Api, watch: Stopwatch, number: int) -> None:
    """Create the pod of that number, and note when it was sent."""
    watch.created[f"bench-{number:06d}"] = time.perf_counter()
    (await api.call(Request(verb="create", resource="pods", namespace="default", body=_pod(number)))).unwrap()


async def create_pods(api: Api, watch: Stopwatch, pods: int, *, first: int = 0) -> None:
    """Create them, `IN_FLIGHT` at a time, numbered from `first`."""
    numbers = iter(range(first, first + pods))

    async def worker() -> None:
        for number in numbers:
            await create_one(api, watch, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(IN_FLIGHT, pods)):
            group.create_task(worker())


def quiet_arguments(latency: str = "all=constant:0") -> dict[str, list[str]]:
    """Return flags for a mesh that is measured: no event files, no spans, containers that take no time."""
    silent = ["--events-dir", "", "--spans-dir", ""]
    kubelet = [*silent, "--latency", latency, "--status-qps", "0", "--pod-events", "warnings"]
    return {"apiserver": silent, "scheduler": silent, "controllers": silent, "kubelet": kubelet}


async def _measure(
    options: MeshOptions, pods: int, nodes: int, say: Callable[[str], None], *, workload: str
) -> BenchResult:
    begun = time.perf_counter()
    supervisor = Supervisor(options)
    await supervisor.start()
    started = time.perf_counter()
    transport: RpcTransport = supervisor.client_transport()
    try:
        api = transport.api()
        await wait_for_nodes(api, nodes)
        say(f"{nodes} nodes are Ready after {time.perf_counter() - begun:.1f} s")
        await asyncio.sleep(2.0)
        pids = {p["name"]: p["pid"] for p in supervisor.status()["processes"]}
        idle = {name: round(rss_mib(pid), 1) for name, pid in pids.items()}
        watch, ready = Stopwatch(pods), asyncio.Event()
        following = asyncio.create_task(watch.follow(api, ready))
        await asyncio.sleep(0.2)
        measured = {**pids, LOAD: os.getpid()}
        before = {name: cpu_s(pid) for name, pid in measured.items()}
        first = time.perf_counter()
        async with asyncio.timeout(LIMIT_S):
            await create_pods(api, watch, pods)
            await watch.done.wait()
        last = max(watch.running.values())
        used = {n: round(1e6 * (cpu_s(pid) - before[n]) / pods, 1) for n, pid in measured.items()}
        following.cancel()
        times = watch.milliseconds()
        binds = [1000 * (watch.bound[n] - t) for n, t in watch.created.items()]
        return BenchResult(
            workload=workload,
            form="mesh",
            nodes=nodes,
            pods=pods,
            engine=options.engine,
            switches=options.switches,
            pods_per_s=round(pods / (last - first), 1),
            p50_ms=round(quantile(times, 0.5) or 0.0, 1),
            p99_ms=round(quantile(times, 0.99) or 0.0, 1),
            create_to_bound_p50_ms=round(quantile(binds, 0.5) or 0.0, 1),
            create_to_bound_p99_ms=round(quantile(binds, 0.99) or 0.0, 1),
            cpu_us_per_pod=round(sum(used[name] for name in pids), 1),
            cpu_us_per_pod_by_process=used,
            rss_mib={name: round(rss_mib(pid), 1) for name, pid in pids.items()},
            idle_rss_mib=idle,
            start_s=round(started - begun, 2),
        )
    finally:
        await transport.close()
        await supervisor.stop()


class _Listed(msgspec.Struct):
    items: list[dict[str, Any]] = []


async def wait_for_nodes(api: Api, nodes: int) -> None:
    """Return when that many nodes are Ready and untainted. Raises: TimeoutError."""
    deadline = time.perf_counter() + LIMIT_S
    decoder = msgspec.json.Decoder(_Listed)
    while True:
        answer = await api.call(Request(verb="list", resource="nodes"))
        ready = sum(
            any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", ()))
            and not item["spec"].get("taints")
            for item in decoder.decode(answer.unwrap().body).items
        )
        if ready >= nodes:
            return
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{ready} of {nodes} nodes are Ready after {LIMIT_S:g} s")
        await asyncio.sleep(0.5)


def bench_mesh(
    *,
    nodes: int,
    pods: int,
    engine: str,
    hosts: int = 1,
    switches: tuple[str, ...] = (),
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Start a mesh, create `pods` bare pods as fast as it takes them, and wait until all are Running.

    `switches`: NAME=VALUE; `kubelet.status_batching=immediate` lets a node write statuses side by side,
    where upstream's status manager writes them one after the other.
    """
    with surroundings() as folder:
        options = MeshOptions(
            data_dir=folder,
            nodes=nodes,
            hosts=hosts,
            engine=engine,
            switches=switches,
            arguments=quiet_arguments(),
            log_level="warning",
        )
        return asyncio.run(_measure(options, pods, nodes, say, workload="CreateToRunning"))
