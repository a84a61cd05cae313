"""Benchmark of a mesh of real processes: pods created → Running, CPU per pod, memory, watch fan-out.

The clock runs from the first creation to the moment a watcher has seen the last pod Running.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from kubelet.node.definition import NodeDefinition
from lab.benchmarks.bench import NOT_THERE, Bench, Reporter, Table, option, switch_option
from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import LIMIT_S, LOAD, follow, many, quiet_arguments, rounded_quantile, running_mesh
from lab.benchmarks.workloads.capacity import TooManyPods, check_default_nodes
from services.api.meta import Condition, View
from services.api.switches import Switches
from services.api.wire import Api, Request, WatchEvent


class _Spec(View, frozen=True):
    node_name: str = ""


class _Status(View, frozen=True):
    phase: str = ""


class PodState(View, frozen=True):
    """View of a pod with its node and its phase."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass
class BenchResult(Result):
    """Figures of one workload; times in milliseconds.

    `cpu_us_per_pod`: CPU of all processes of the mesh together, without the load generator;
    `cpu_us_per_pod_by_process` includes it, as "load". `rss_mib` and `idle_rss_mib`: memory by process, after
    the load and before it. `start_s`: seconds until the processes were ready; `nodes_ready_s`: seconds until
    all nodes were Ready and without taints.
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
    cpu_us_per_pod: float
    cpu_us_per_pod_by_process: dict[str, float]
    rss_mib: dict[str, float]
    idle_rss_mib: dict[str, float]
    start_s: float
    nodes_ready_s: float = 0.0


_RESOURCES = {"requests": {"cpu": "10m", "memory": "10Mi"}}
_POD = msgspec.json.encode(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bench-NUMBER", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "pause:3.10", "resources": _RESOURCES}]},
    }
)


class Stopwatch:
    """Times at which one watcher saw each pod created, bound and Running; pods are numbered from `first`."""

    def __init__(self, api: Api, total: int, *, first: int = 0) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.running: dict[str, float] = {}
        self.done = asyncio.Event()
        self._api = api
        self._total, self._first = total, first
        self._least = f"bench-{first:06d}"
        self._decode = msgspec.json.Decoder(PodState).decode

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch pods inside the context."""
        following = asyncio.create_task(follow(self._api, "pods", self._note, lambda: None))
        try:
            yield
        finally:
            following.cancel()

    async def create(self, number: int) -> None:
        """Create the pod of that number, and note when the request was sent."""
        number += self._first
        self.created[f"bench-{number:06d}"] = time.perf_counter()
        body = _POD.replace(b"NUMBER", b"%06d" % number)
        (await self._api.call(Request(verb="create", resource="pods", namespace="default", body=body))).unwrap()

    async def create_all(self) -> None:
        """Create all pods, many at a time, and return when all of them run."""
        async with asyncio.timeout(LIMIT_S):
            await many(range(self._total), self.create)
            await self.done.wait()

    def milliseconds(self) -> list[float]:
        """Return the time of each pod from creation to Running, in milliseconds."""
        return [1000 * (self.running[name] - at) for name, at in self.created.items()]

    def _note(self, event: WatchEvent, now: float) -> None:
        name = event.name
        if event.type not in ("ADDED", "MODIFIED") or not name.startswith("bench-") or name < self._least:
            return
        pod = self._decode(event.body)
        if pod.spec.node_name and name not in self.bound:
            self.bound[name] = now
        if pod.status.phase == "Running" and name not in self.running:
            self.running[name] = now
            if len(self.running) == self._total:
                self.done.set()


def check_fits(nodes: int, pods: int) -> None:
    """Refuse more pods than the emulated nodes hold. Raises: TooManyPods."""
    allocatable = NodeDefinition.parse({"name": "node"}).allocatable()
    check_default_nodes(nodes=nodes, pods=pods, requests=_RESOURCES["requests"], allocatable=allocatable)


class _Taint(View, frozen=True):
    key: str = ""


class _NodeSpec(View, frozen=True):
    taints: tuple[_Taint, ...] = ()


class _NodeStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _NodeState(View, frozen=True):
    """View of a node with its taints and its conditions."""

    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def is_usable(self) -> bool:
        """Whether the node is Ready and without taints."""
        is_ready = any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)
        return is_ready and not self.spec.taints


async def wait_for_nodes(api: Api, nodes: int) -> None:
    """Return when that many nodes are Ready and untainted. Raises: TimeoutError."""
    decode, usable, enough = msgspec.json.Decoder(_NodeState).decode, set[str](), asyncio.Event()

    def note(event: WatchEvent, _: float) -> None:
        if event.type in ("ADDED", "MODIFIED") and decode(event.body).is_usable:
            usable.add(event.name)
        else:
            usable.discard(event.name)

    def then() -> None:
        if len(usable) >= nodes:
            enough.set()

    following = asyncio.create_task(follow(api, "nodes", note, then))
    try:
        async with asyncio.timeout(LIMIT_S):
            await enough.wait()
    except TimeoutError:
        raise TimeoutError(f"{len(usable)} of {nodes} nodes are Ready after {LIMIT_S:g} s") from None
    finally:
        following.cancel()


async def _measure(
    nodes: int, pods: int, engine: str, switches: tuple[str, ...], say: Callable[[str], None]
) -> BenchResult:
    begun = time.perf_counter()
    async with running_mesh(
        nodes=nodes, hosts=1, engine=engine, switches=switches, arguments=quiet_arguments()
    ) as mesh:
        await wait_for_nodes(mesh.api, nodes)
        nodes_ready_s = time.perf_counter() - begun
        say(f"{nodes} nodes are Ready after {nodes_ready_s:.1f} s")
        await asyncio.sleep(2.0)
        idle = mesh.rss_mib()
        watch = Stopwatch(mesh.api, pods)
        async with watch.watching():
            await asyncio.sleep(0.2)
            meter, first = mesh.meter(with_load=True), time.perf_counter()
            await watch.create_all()
            last = max(watch.running.values())
            used = meter.us_per(pods)
        times = watch.milliseconds()
        binds = [1000 * (watch.bound[n] - t) for n, t in watch.created.items()]
        return BenchResult(
            workload="CreateToRunning",
            form="mesh",
            nodes=nodes,
            pods=pods,
            engine=engine,
            switches=switches,
            pods_per_s=round(pods / (last - first), 1),
            p50_ms=rounded_quantile(times, 0.5),
            p99_ms=rounded_quantile(times, 0.99),
            create_to_bound_p50_ms=rounded_quantile(binds, 0.5),
            create_to_bound_p99_ms=rounded_quantile(binds, 0.99),
            cpu_us_per_pod=round(sum(spent for name, spent in used.items() if name != LOAD), 1),
            cpu_us_per_pod_by_process=used,
            rss_mib=mesh.rss_mib(),
            idle_rss_mib=idle,
            start_s=round(mesh.start_s, 2),
            nodes_ready_s=round(nodes_ready_s, 2),
        )


def bench_mesh(
    *, nodes: int, pods: int, engine: str, switches: tuple[str, ...] = (), say: Callable[[str], None] = lambda _: None
) -> BenchResult:
    """Start a mesh, create `pods` bare pods as fast as the mesh takes them, and wait until all are Running.

    `switches`: NAME=VALUE; `kubelet.status_batching=immediate` lets a node write statuses concurrently, where
    upstream's status manager writes them one after the other.
    """
    return asyncio.run(_measure(nodes, pods, engine, switches, say))


@dataclass(frozen=True, kw_only=True)
class MeshBenchOptions:
    """The options of `keplab bench mesh`."""

    nodes: int = option(100, "emulated nodes", least=1, most=15_000)
    pods: int = option(2_000, "pods created", least=1, most=40_000)
    engine: str = option("memory", "storage engine of the API server", choices=("memory", "sqlite", "etcd"))
    assignments: tuple[str, ...] = switch_option()


def _run(options: MeshBenchOptions, reporter: Reporter) -> BenchResult:
    Switches.parse(options.assignments)  # a wrong one is refused before anything starts
    check_fits(options.nodes, options.pods)
    return bench_mesh(
        nodes=options.nodes, pods=options.pods, engine=options.engine, switches=options.assignments, say=reporter.say
    )


def _table(_: MeshBenchOptions, result: BenchResult) -> Iterator[str | Table]:
    yield f"{result.pods_per_s:,.0f} pods/s created → Running; {result.cpu_us_per_pod:,.0f} µs of CPU a pod"
    yield f"created → Running  p50 {result.p50_ms:,.0f} ms, p99 {result.p99_ms:,.0f} ms"
    p50_ms, p99_ms = result.create_to_bound_p50_ms, result.create_to_bound_p99_ms
    yield f"created → bound    p50 {p50_ms:,.0f} ms, p99 {p99_ms:,.0f} ms"
    yield Table(
        ("PROCESS", "CPU µs/POD", "MiB AT REST", "MiB AFTER"),
        [
            (name, f"{used:,.0f}", result.idle_rss_mib.get(name, ""), result.rss_mib.get(name, ""))
            for name, used in result.cpu_us_per_pod_by_process.items()
        ],
    )


BENCH: Final = Bench(
    name="mesh",
    help="Start a mesh of processes, create bare pods as fast as it takes them, and wait until all are Running.",
    options=MeshBenchOptions,
    run=_run,
    table=_table,
    document=BenchResult.document,
    late=NOT_THERE,
    refusals=(TooManyPods,),
)
