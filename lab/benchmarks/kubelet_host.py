"""Benchmark of one process that hosts many kubelets: registration time, and cost at rest, at a steady rate
and in a rush.

The last phase measures them at rest with all their pods: their cost, and whether any heartbeat is late.
Acceptance scenario 20 of the kubelet specification asks for this with 200 kubelets of 50 pods.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from lab.benchmarks.bench import NOT_THERE, Bench, Reporter, Table, option, switch_option
from lab.benchmarks.mesh import Stopwatch, check_fits, wait_for_nodes
from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import LIMIT_S, RunningMesh, quiet_arguments, rounded_quantile, running_mesh
from lab.benchmarks.workloads.capacity import TooManyPods
from services.api.switches import Switches
from services.api.times import parse_time
from services.api.wire import Api, Request

HOST: Final = "kubelet/h0"
NODE_LEASES: Final = "kube-node-lease"
SETTLE_S: Final = 5.0
"""Pause between two phases in seconds, so that late writes of one phase do not count for the next."""
LOOK_S: Final = 2.5
"""Interval between two reads of the Leases, in seconds."""


@dataclass
class KubeletHostResult(Result):
    """Figures of one host process. CPU is a share of one core (1.0 is a full core), by process of the mesh.

    `registered_s`: from the start of the host process until every node is registered and follows its pods;
    `nodes_s`: until each node has also lost its taint. `rush_s`: from the first creation of `pods` pods until
    the last of them runs. `loaded_cpu`: at rest with `loaded_pods` pods; `heartbeat_age_s`: the greatest age
    of any Lease in that phase.
    """

    nodes: int
    pods: int
    rate: int
    registered_s: float
    nodes_s: float
    idle_cpu: dict[str, float]
    rate_cpu: dict[str, float]
    rate_p50_ms: float
    rate_p99_ms: float
    rush_s: float
    rush_cpu_us_per_pod: dict[str, float]
    idle_rss_mib: dict[str, float]
    rss_mib: dict[str, float]
    loaded_pods: int
    loaded_cpu: dict[str, float]
    heartbeat_age_s: float
    workload: str = "KubeletHost"
    form: str = "mesh"


async def _phase(api: Api, first: int, pods: int, rate: int) -> Stopwatch:
    """Create pods evenly, `rate` a second (0: as fast as the mesh takes them), and return when all run."""
    watch = Stopwatch(api, pods, first=first)
    async with watch.watching():
        await asyncio.sleep(0.2)
        if not rate:
            await watch.create_all()
            return watch
        begun = time.perf_counter()
        async with asyncio.timeout(LIMIT_S):
            async with asyncio.TaskGroup() as group:
                for number in range(pods):
                    if (early_s := begun + number / rate - time.perf_counter()) > 0:
                        await asyncio.sleep(early_s)
                    group.create_task(watch.create(number))
            await watch.done.wait()
    return watch


async def _oldest_lease_s(api: Api, span_s: float) -> float:
    """Return the greatest age of a node's Lease while one looks for so long."""
    oldest_s, end_s = 0.0, time.perf_counter() + span_s
    while time.perf_counter() < end_s:
        asked = Request(verb="list", resource="leases.coordination.k8s.io", namespace=NODE_LEASES)
        answer = (await api.call(asked)).unwrap()
        now = time.time()
        for lease in msgspec.json.decode(answer.body)["items"]:
            oldest_s = max(oldest_s, now - parse_time(lease["spec"]["renewTime"]))
        await asyncio.sleep(LOOK_S)
    return oldest_s


def _host_uptime_s(mesh: RunningMesh) -> float:
    return next(float(p["uptime_s"]) for p in mesh.supervisor.status()["processes"] if p["name"] == HOST)


async def _measure(
    nodes: int, pods: int, rate: int, span_s: float, switches: tuple[str, ...], say: Callable[[str], None]
) -> KubeletHostResult:
    arguments = quiet_arguments()
    arguments["kubelet"] = [*arguments["kubelet"], "--registration-spread-s", "0"]
    async with running_mesh(nodes=nodes, hosts=1, engine="memory", switches=switches, arguments=arguments) as mesh:
        registered_s = _host_uptime_s(mesh)
        await wait_for_nodes(mesh.api, nodes)
        nodes_s = _host_uptime_s(mesh)
        say(f"{nodes} nodes are Ready after {nodes_s:g} s")
        await asyncio.sleep(SETTLE_S)
        meter = mesh.meter()
        await asyncio.sleep(span_s)
        idle = meter.shares()
        idle_rss = mesh.rss_mib()
        say(f"at rest the host takes {100 * idle[HOST]:.2f} % of a core")
        meter, steady = mesh.meter(), int(rate * span_s)
        watch = await _phase(mesh.api, 0, steady, rate)
        busy = meter.shares()
        say(f"at {rate} pod starts a second it takes {100 * busy[HOST]:.1f} % of a core")
        times = watch.milliseconds()
        await asyncio.sleep(SETTLE_S)
        meter = mesh.meter()
        watch = await _phase(mesh.api, steady, pods, 0)
        rush_s = max(watch.running.values()) - min(watch.created.values())
        rush_cpu = meter.us_per(pods)
        await asyncio.sleep(SETTLE_S)
        rss = mesh.rss_mib()
        meter = mesh.meter()
        heartbeat_age_s = await _oldest_lease_s(mesh.api, span_s)
        loaded = meter.shares()
        share = f"{100 * loaded[HOST]:.2f} % of a core"
        say(f"at rest with {steady + pods} pods it takes {share}; oldest Lease {heartbeat_age_s:.1f} s")
        return KubeletHostResult(
            nodes=nodes,
            pods=pods,
            rate=rate,
            registered_s=registered_s,
            nodes_s=nodes_s,
            idle_cpu=idle,
            rate_cpu=busy,
            rate_p50_ms=rounded_quantile(times, 0.5),
            rate_p99_ms=rounded_quantile(times, 0.99),
            rush_s=round(rush_s, 2),
            rush_cpu_us_per_pod=rush_cpu,
            idle_rss_mib=idle_rss,
            rss_mib=rss,
            loaded_pods=steady + pods,
            loaded_cpu=loaded,
            heartbeat_age_s=round(heartbeat_age_s, 2),
        )


def bench_kubelet_host(
    *,
    nodes: int,
    pods: int,
    rate: int = 200,
    span_s: float,
    switches: tuple[str, ...] = (),
    say: Callable[[str], None] = lambda _: None,
) -> KubeletHostResult:
    """Start a mesh with one kubelet host and measure it in four phases. Raises: TimeoutError.

    The phases: at rest, and at `rate` pod starts a second, for `span_s` each; `pods` pods created as fast as
    the mesh takes them; and at rest again.
    """
    return asyncio.run(_measure(nodes, pods, rate, span_s, switches, say))


@dataclass(frozen=True, kw_only=True)
class KubeletOptions:
    """The options of `keplab bench kubelet`. `rate`: pods a second; `span`: seconds."""

    nodes: int = option(5_000, "nodes of one process", least=1, most=15_000)
    pods: int = option(10_000, "pods started in a rush", least=1, most=40_000)
    rate: int = option(200, "pods started a second, before the rush", least=1, most=1_000)
    span: float = option(20.0, "seconds of each measurement", least=1.0, most=600.0)
    assignments: tuple[str, ...] = switch_option()


def _run(options: KubeletOptions, reporter: Reporter) -> KubeletHostResult:
    Switches.parse(options.assignments)  # a wrong one is refused before anything starts
    check_fits(options.nodes, options.pods + int(options.rate * options.span))
    return bench_kubelet_host(
        nodes=options.nodes,
        pods=options.pods,
        rate=options.rate,
        span_s=options.span,
        switches=options.assignments,
        say=reporter.say,
    )


def _table(options: KubeletOptions, result: KubeletHostResult) -> Iterator[str | Table]:
    rate = options.rate
    yield f"{options.nodes:,} nodes registered after {result.registered_s:g} s, usable after {result.nodes_s:g} s"
    yield f"{options.pods:,} pods created → Running in {result.rush_s:g} s"
    yield f"at {rate} a second  p50 {result.rate_p50_ms:,.0f} ms, p99 {result.rate_p99_ms:,.0f} ms"
    cores, age = sum(result.loaded_cpu.values()), f"no Lease older than {result.heartbeat_age_s:.1f} s"
    yield f"at rest with {result.loaded_pods:,} pods  {cores:.2f} cores in all, {age}"
    yield Table(
        ("PROCESS", "AT REST", "WITH PODS", f"AT {rate}/s", "µs/POD IN THE RUSH", "MiB AT REST", "MiB AFTER"),
        [
            (
                name,
                f"{100 * share:.1f} %",
                f"{100 * result.loaded_cpu[name]:.1f} %",
                f"{100 * result.rate_cpu[name]:.1f} %",
                f"{result.rush_cpu_us_per_pod[name]:,.0f}",
                result.idle_rss_mib[name],
                result.rss_mib[name],
            )
            for name, share in result.idle_cpu.items()
        ],
    )


BENCH: Final = Bench(
    name="kubelet",
    help="Measure a process that hosts many kubelets: at rest, at a rate of pod starts, in a rush, at rest with its "
    "pods.",
    options=KubeletOptions,
    run=_run,
    table=_table,
    document=KubeletHostResult.document,
    late=NOT_THERE,
    refusals=(TooManyPods,),
)
