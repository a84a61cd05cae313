"""Measure one process that hosts many kubelets: how soon they are there; their cost at rest, at a rate, in a rush.

At last it looks at them at rest with all their pods, as acceptance scenario 20 of the kubelet specification asks for
200 kubelets of 50 pods: what they cost, and whether any heartbeat comes late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from benchmarks.environment import surroundings
from benchmarks.mesh import (
    LIMIT_S,
    Stopwatch,
    create_one,
    create_pods,
    quiet_arguments,
    wait_for_nodes,
)
from benchmarks.procfs import cpu_s, rss_mib
from services.api.times import parse_time
from services.api.wire import Api, Request
from services.client.rpc import RpcTransport
from services.runtime.supervisor import MeshOptions, Supervisor
from services.scenarios.measures import quantile

HOST: Final = "kubelet/h0"
NODE_LEASES: Final = "kube-node-lease"
SETTLE_S: Final = 5.0
"""Between two phases: what is still written of the one shall not count for the other."""
LOOK_S: Final = 2.5
"""How often the Leases are looked at."""


@dataclass
class KubeletHostResult:
    """Figures of one host process; CPU as a share of one core, 1.0 being all of it, by process of the mesh.

    `registered_s`: from the start of the host process until every node is registered and follows its pods; `nodes_s`:
    until each has lost its taint, too. `rush_s`: from the first creation of `pods` pods until the last of them runs.
    `loaded_cpu` is at rest with `loaded_pods` pods, `heartbeat_age_s` the greatest age of any Lease seen then.
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
    rush_cpu_us_per_pod: dict[str, float] = field(default_factory=dict)
    idle_rss_mib: dict[str, float] = field(default_factory=dict)
    rss_mib: dict[str, float] = field(default_factory=dict)
    loaded_pods: int = 0
    loaded_cpu: dict[str, float] = field(default_factory=dict)
    heartbeat_age_s: float = 0.0
    workload: str = "KubeletHost"
    form: str = "mesh"

    def document(self) -> dict[str, Any]:
        """Return the JSON document of `keplab bench kubelet -o json`."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


class _Meter:
    """CPU of the mesh's processes between two moments."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._began_s = time.perf_counter()
        self._before = {name: cpu_s(pid) for name, pid in pids.items()}

    def shares(self) -> dict[str, float]:
        """Return cores used since."""
        took_s = time.perf_counter() - self._began_s
        return {name: round(spent / took_s, 4) for name, spent in self.spent_s().items()}

    def spent_s(self) -> dict[str, float]:
        """Return CPU seconds since."""
        return {name: cpu_s(pid) - self._before[name] for name, pid in self._pids.items()}


async def _at_rate(api: Api, watch: Stopwatch, first: int, pods: int, rate: int) -> None:
    """Create pods evenly, `rate` a second, and return when all run."""
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(pods):
            if (early_s := begun + number / rate - time.perf_counter()) > 0:
                await asyncio.sleep(early_s)
            group.create_task(create_one(api, watch, first + number))
    await watch.done.wait()


async def _phase(api: Api, first: int, pods: int, rate: int) -> Stopwatch:
    watch, ready = Stopwatch(pods, first=first), asyncio.Event()
    following = asyncio.create_task(watch.follow(api, ready))
    try:
        await asyncio.sleep(0.2)
        async with asyncio.timeout(LIMIT_S):
            if rate:
                await _at_rate(api, watch, first, pods, rate)
            else:
                await create_pods(api, watch, pods, first=first)
                await watch.done.wait()
    finally:
        following.cancel()
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


def _host_uptime_s(supervisor: Supervisor) -> float:
    return next(float(p["uptime_s"]) for p in supervisor.status()["processes"] if p["name"] == HOST)


async def _measure(
    options: MeshOptions, nodes: int, pods: int, rate: int, span_s: float, say: Callable[[str], None]
) -> KubeletHostResult:
    supervisor = Supervisor(options)
    await supervisor.start()
    registered_s = _host_uptime_s(supervisor)
    transport: RpcTransport = supervisor.client_transport()
    try:
        api = transport.api()
        await wait_for_nodes(api, nodes)
        processes = supervisor.status()["processes"]
        nodes_s = _host_uptime_s(supervisor)
        say(f"{nodes} nodes are Ready after {nodes_s:g} s")
        pids = {p["name"]: p["pid"] for p in processes}
        await asyncio.sleep(SETTLE_S)
        meter = _Meter(pids)
        await asyncio.sleep(span_s)
        idle = meter.shares()
        idle_rss = {name: round(rss_mib(pid), 1) for name, pid in pids.items()}
        say(f"at rest the host takes {100 * idle[HOST]:.2f} % of a core")
        meter, steady = _Meter(pids), int(rate * span_s)
        watch = await _phase(api, 0, steady, rate)
        busy = meter.shares()
        say(f"at {rate} pod starts a second it takes {100 * busy[HOST]:.1f} % of a core")
        times = watch.milliseconds()
        await asyncio.sleep(SETTLE_S)
        meter = _Meter(pids)
        watch = await _phase(api, steady, pods, 0)
        rush_s = max(watch.running.values()) - min(watch.created.values())
        rush_cpu = {name: round(1e6 * spent / pods, 1) for name, spent in meter.spent_s().items()}
        await asyncio.sleep(SETTLE_S)
        rss = {name: round(rss_mib(pid), 1) for name, pid in pids.items()}
        meter = _Meter(pids)
        heartbeat_age_s = await _oldest_lease_s(api, span_s)
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
            rate_p50_ms=round(quantile(times, 0.5) or 0.0, 1),
            rate_p99_ms=round(quantile(times, 0.99) or 0.0, 1),
            rush_s=round(rush_s, 2),
            rush_cpu_us_per_pod=rush_cpu,
            idle_rss_mib=idle_rss,
            rss_mib=rss,
            loaded_pods=steady + pods,
            loaded_cpu=loaded,
            heartbeat_age_s=round(heartbeat_age_s, 2),
        )
    finally:
        await transport.close()
        await supervisor.stop()


def bench_kubelet_host(
    *,
    nodes: int = 5_000,
    pods: int = 10_000,
    rate: int = 200,
    span_s: float = 20.0,
    switches: tuple[str, ...] = (),
    say: Callable[[str], None] = lambda _: None,
) -> KubeletHostResult:
    """Start a mesh with one kubelet host; look at it at rest and at `rate` pod starts a second for `span_s` each;
    then create `pods` pods as fast as the mesh takes them, and look once more at rest. Raises: TimeoutError.
    """
    with surroundings() as folder:
        arguments = quiet_arguments()
        arguments["kubelet"] = [*arguments["kubelet"], "--registration-spread-s", "0"]
        options = MeshOptions(
            data_dir=folder,
            nodes=nodes,
            hosts=1,
            engine="memory",
            switches=switches,
            arguments=arguments,
            log_level="warning",
        )
        return asyncio.run(_measure(options, nodes, pods, rate, span_s, say))
