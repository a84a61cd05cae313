"""Cost of mutual TLS: CPU per call and per connection, with plain gRPC and in the profile `strict`."""

import asyncio
import time
from collections.abc import Awaitable, Iterator
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Final, Literal

import msgspec

from lab.benchmarks.bench import NOT_THERE, Bench, Reporter, Table, option
from lab.benchmarks.running_mesh import LOAD, RunningMesh, many, quiet_arguments, running_mesh
from services.api.wire import Api, Request

CALLS, CONNECTIONS, ALONE = 20_000, 300, 1_000
IN_FLIGHT = 64
PROFILES: tuple[Literal["tokens"], Literal["strict"]] = ("tokens", "strict")
BODY_BYTES = 2_000
"""Size in bytes of the object that is read: about as large as a pod."""


@dataclass(frozen=True)
class SecurityBench:
    """Figures of one profile. CPU in microseconds, of the API server and of the client.

    `alone_ms`: median time of a call while no other is in flight. `connection`: a new connection with one
    call over it.
    """

    security: str
    call_server_us: float
    call_client_us: float
    alone_ms: float
    connection_server_us: float
    connection_client_us: float
    connection_ms: float


async def bench_security(security: Literal["tokens", "strict"]) -> SecurityBench:
    """Measure one profile: `tokens` or `strict`."""
    async with running_mesh(nodes=0, engine="memory", security=security, arguments=quiet_arguments()) as mesh:
        await _make(mesh.api)
        await many(range(2_000), lambda _: _read(mesh.api), IN_FLIGHT)
        meter = mesh.meter(with_load=True)
        await many(range(CALLS), lambda _: _read(mesh.api), IN_FLIGHT)
        call = meter.spent_s()
        alone_ms = [await _timed_ms(_read(mesh.api)) for _ in range(ALONE)]
        meter = mesh.meter(with_load=True)
        connection_ms = [await _timed_ms(_connect(mesh)) for _ in range(CONNECTIONS)]
        connection = meter.spent_s()
    return SecurityBench(
        security,
        round(1e6 * call["apiserver"] / CALLS, 1),
        round(1e6 * call[LOAD] / CALLS, 1),
        round(median(alone_ms), 2),
        round(1e6 * connection["apiserver"] / CONNECTIONS),
        round(1e6 * connection[LOAD] / CONNECTIONS),
        round(median(connection_ms), 2),
    )


def bench_profiles(rounds: int) -> list[SecurityBench]:
    """Measure both profiles in turn, and return the medians. Raises: TimeoutError."""
    benches = [[asyncio.run(bench_security(each)) for each in PROFILES] for _ in range(rounds)]
    names = [field.name for field in fields(SecurityBench) if field.name != "security"]
    results: list[SecurityBench] = []
    for profile, of_one in zip(PROFILES, zip(*benches, strict=True), strict=True):
        medians = {name: round(median(getattr(each, name) for each in of_one), 2) for name in names}
        results.append(SecurityBench(profile, **medians))
    return results


async def _make(api: Api) -> None:
    body = msgspec.json.encode({"metadata": {"name": "read"}, "data": {"text": "x" * BODY_BYTES}})
    (await api.call(Request(verb="create", resource="configmaps", namespace="default", body=body))).unwrap()


async def _read(api: Api) -> None:
    (await api.call(Request(verb="get", resource="configmaps", namespace="default", name="read"))).unwrap()


async def _connect(mesh: RunningMesh) -> None:
    transport = mesh.supervisor.client_transport()
    try:
        await _read(transport.api())
    finally:
        await transport.close()


async def _timed_ms(work: Awaitable[None]) -> float:
    begun = time.perf_counter()
    await work
    return 1e3 * (time.perf_counter() - begun)


@dataclass(frozen=True, kw_only=True)
class SecurityOptions:
    """The options of `keplab bench security`."""

    rounds: int = option(3, "rounds of each profile; medians are shown", least=1, most=20)


def _run(options: SecurityOptions, _: Reporter) -> list[SecurityBench]:
    return bench_profiles(options.rounds)


def _table(_: SecurityOptions, results: list[SecurityBench]) -> Iterator[Table]:
    yield Table(
        ("PROFILE", "CALL: SERVER µs", "CLIENT µs", "ALONE ms", "CONNECTION: SERVER µs", "CLIENT µs", "ms"),
        [tuple(asdict(result).values()) for result in results],
    )


def _document(results: list[SecurityBench]) -> list[dict[str, object]]:
    return [asdict(result) for result in results]


BENCH: Final = Bench(
    name="security",
    help="Measure what mutual TLS costs a call and a connection, with the profiles `tokens` and `strict` in turn.",
    options=SecurityOptions,
    run=_run,
    table=_table,
    document=_document,
    late=NOT_THERE,
)
