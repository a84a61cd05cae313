"""Benchmark of heartbeats and binds before, during and after an overload by other clients (AS-39).

A node renews its Lease and the scheduler binds pods, each at its own pace. Meanwhile, in a process of
their own, one user creates objects as fast as it can, one opens a thousand watches, and one lists all of
its objects in a loop.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from apiserver_fake.registry.authorization.authentication import read_tokens
from lab.benchmarks.bench import NOT_THERE, Bench, Reporter, Table, option
from lab.benchmarks.overload_clients import USERS, Answers, Clients
from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import RunningMesh, many, quiet_arguments, rounded_quantile, running_mesh
from services.api.identity import NODES_GROUP, SCHEDULER, Identity
from services.api.wire import Api, Request, Response
from services.client.rpc import RpcTransport
from services.runtime.credentials import SERVER_FILE
from services.runtime.real import RealClock, seeded_random

PROBE: Final = "probe"
HEARTBEAT_S, BIND_S = 0.02, 0.05
LEASES: Final = "leases.coordination.k8s.io"
TEXT_BYTES: Final = 500


@dataclass
class Phase:
    """Figures of one phase: latencies in milliseconds, number of calls, and number of calls not answered with 2xx."""

    heartbeat_p50_ms: float = 0.0
    heartbeat_p99_ms: float = 0.0
    heartbeats: int = 0
    heartbeats_failed: int = 0
    bind_p50_ms: float = 0.0
    bind_p99_ms: float = 0.0
    binds: int = 0
    binds_failed: int = 0
    rss_mib: float = 0.0


@dataclass
class OverloadResult(Result):
    """Figures of all phases.

    `answers`: number of responses to the overloading clients, by user and status; 0 is a broken connection.
    `load_average`: of the machine at the start; other load makes the figures worth less.
    """

    nodes: int
    objects: int
    seconds: float
    load_average: float
    phases: dict[str, Phase]
    answers: Answers = field(default_factory=dict)


class _Probe:
    """Client that makes one call after the other at a fixed pace, and notes how long each took."""

    def __init__(self, pace_s: float, call: Callable[[int], Awaitable[Response]]) -> None:
        self._pace_s, self._call = pace_s, call
        self.took_ms: list[float] = []
        self.failed = 0
        self._number = 0

    async def run(self, until_s: float) -> None:
        while time.perf_counter() < until_s:
            begun = time.perf_counter()
            self._number += 1
            response = await self._call(self._number)
            self.took_ms.append(1000 * (time.perf_counter() - begun))
            self.failed += not response.is_ok
            await asyncio.sleep(self._pace_s)

    def take(self) -> tuple[list[float], int]:
        found = self.took_ms, self.failed
        self.took_ms, self.failed = [], 0
        return found


def bench_overload(*, nodes: int, objects: int, seconds: float, say: Callable[[str], None]) -> OverloadResult:
    """Measure heartbeats and binds in all phases. `objects`: number of objects listed; `seconds`: length of each
    phase.
    """
    return asyncio.run(_bench(nodes, objects, seconds, say))


async def _bench(nodes: int, objects: int, seconds: float, say: Callable[[str], None]) -> OverloadResult:
    load_average = round(os.getloadavg()[0], 2)
    node = Identity(f"system:node:{PROBE}", (NODES_GROUP,))
    identities = (node, *map(Identity, USERS))
    without = frozenset(("scheduler",))
    async with running_mesh(
        nodes=nodes, engine="memory", arguments=quiet_arguments(), without=without, identities=identities
    ) as mesh:
        say(f"creating {objects:,} objects")
        await _fill(mesh.api, objects)
        async with _clients(mesh, node) as (heartbeat, bind):
            phases = {}
            say("without load")
            phases["before"] = await _phase(mesh, heartbeat, bind, seconds)
            say("with load")
            offenders = await _offend(mesh)
            phases["during"] = await _phase(mesh, heartbeat, bind, seconds)
            out, _ = await offenders.communicate(b"")
            say("after it")
            await asyncio.sleep(3.0)
            phases["after"] = await _phase(mesh, heartbeat, bind, seconds)
        answers = msgspec.json.decode(out, type=dict[str, dict[int, int]])
    return OverloadResult(nodes, objects, seconds, load_average, phases, answers)  # type: ignore[arg-type]


async def _fill(api: Api, objects: int) -> None:
    for user in USERS:
        await _create(api, "namespaces", "", user.removeprefix("user:"))
    text = {"text": "x" * TEXT_BYTES}

    async def create(number: int) -> None:
        for user in ("watcher", "lister") if number < objects // 10 else ("lister",):
            await _create(api, "configmaps", user, f"o{number}", data=text)

    await many(range(objects), create)


async def _create(api: Api, resource: str, namespace: str, name: str, **content: object) -> Response:
    body = msgspec.json.encode({"metadata": {"name": name}, **content})
    return (await api.call(Request(verb="create", resource=resource, namespace=namespace, body=body))).unwrap()


@asynccontextmanager
async def _clients(mesh: RunningMesh, node: Identity) -> AsyncIterator[tuple[_Probe, _Probe]]:
    """Give the node that renews its Lease, and the scheduler that binds pods."""
    tokens = _tokens(mesh, (node.user, SCHEDULER.user))
    target = mesh.supervisor.grpc_target
    transport = RpcTransport(target, tokens, clock=RealClock(), random=seeded_random(None))
    try:
        kubelet, scheduler = transport.api(node.user), transport.api(SCHEDULER.user)
        spec = {"holderIdentity": PROBE, "leaseDurationSeconds": 40}
        await _create(kubelet, LEASES, "kube-node-lease", PROBE, spec=spec)
        renewal = Request(
            verb="patch",
            resource=LEASES,
            namespace="kube-node-lease",
            name=PROBE,
            patch_type="merge",
            body=msgspec.json.encode({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}),
        )

        async def bind(number: int) -> Response:
            spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "none"}
            name = f"p{number}"
            await _create(mesh.api, "pods", "default", name, spec=spec)
            target = {"kind": "Node", "name": PROBE}
            body = msgspec.json.encode({"metadata": {"name": name}, "target": target})
            request = Request(
                verb="create", resource="pods", namespace="default", name=name, subresource="binding", body=body
            )
            return await scheduler.call(request)

        yield _Probe(HEARTBEAT_S, lambda _: kubelet.call(renewal)), _Probe(BIND_S, bind)
    finally:
        await transport.close()


def _tokens(mesh: RunningMesh, users: Iterable[str]) -> dict[str, str]:
    listed = read_tokens(mesh.supervisor.kubeconfig.parent / "credentials" / SERVER_FILE).tokens
    known = {each.user: each.token for each in listed}
    return {user: known[user] for user in users}


async def _offend(mesh: RunningMesh) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lab.benchmarks.overload_clients", stdin=pipe, stdout=pipe
    )
    supervisor = mesh.supervisor
    clients = Clients(supervisor.rest_url, str(supervisor.authority), _tokens(mesh, USERS))
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(clients) + b"\n")
    await process.stdin.drain()
    await asyncio.sleep(2.0)
    return process


async def _phase(mesh: RunningMesh, heartbeat: _Probe, bind: _Probe, seconds: float) -> Phase:
    until_s = time.perf_counter() + seconds
    await asyncio.gather(heartbeat.run(until_s), bind.run(until_s))
    beats, beats_failed = heartbeat.take()
    binds, binds_failed = bind.take()
    return Phase(
        rounded_quantile(beats, 0.5),
        rounded_quantile(beats, 0.99),
        len(beats),
        beats_failed,
        rounded_quantile(binds, 0.5),
        rounded_quantile(binds, 0.99),
        len(binds),
        binds_failed,
        mesh.rss_mib()["apiserver"],
    )


@dataclass(frozen=True, kw_only=True)
class OverloadOptions:
    """The options of `keplab bench overload`."""

    nodes: int = option(50, "emulated nodes", least=1, most=5_000)
    objects: int = option(20_000, "objects listed", least=10, most=40_000)
    seconds: float = option(20.0, "seconds of each phase", least=1.0, most=600.0)


def _run(options: OverloadOptions, reporter: Reporter) -> OverloadResult:
    return bench_overload(nodes=options.nodes, objects=options.objects, seconds=options.seconds, say=reporter.say)


def _table(_: OverloadOptions, result: OverloadResult) -> Iterator[str | Table]:
    yield Table(
        ("PHASE", "HEARTBEAT p50 ms", "p99 ms", "FAILED", "BIND p50 ms", "p99 ms", "FAILED", "API SERVER MiB"),
        [
            (
                name,
                phase.heartbeat_p50_ms,
                phase.heartbeat_p99_ms,
                f"{phase.heartbeats_failed} of {phase.heartbeats}",
                phase.bind_p50_ms,
                phase.bind_p99_ms,
                f"{phase.binds_failed} of {phase.binds}",
                phase.rss_mib,
            )
            for name, phase in result.phases.items()
        ],
    )
    for user, codes in result.answers.items():
        yield f"{user}: " + ", ".join(f"{count:,} x {code or 'broken'}" for code, count in sorted(codes.items()))
    yield f"load average when it began: {result.load_average}"


BENCH: Final = Bench(
    name="overload",
    help="Measure heartbeats and binds while one user floods, one opens 1,000 watches and one lists in a loop.",
    options=OverloadOptions,
    run=_run,
    table=_table,
    document=OverloadResult.document,
    late=NOT_THERE,
)
