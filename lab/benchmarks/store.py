"""Writes per second of each storage engine, next to those of bare SQLite and etcd on the same disk.

API servers of every engine run in parallel and are measured in turn, round by round, so that other work
on the machine affects them all; the median round of each counts. A write is the creation of a ConfigMap
of 1 KB over gRPC, answered when it is durable. Raw figures are for the same bytes: SQLite in WAL mode
with `synchronous=FULL`, one transaction for as many rows as there are writers; etcd over gRPC, one
transaction per key, with as many in flight as there are writers.
"""

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from apiserver_fake.storage.etcd.client import EtcdClient, EtcdFlags
from apiserver_fake.storage.etcd.keyvalues import Txn
from lab.benchmarks.bench import Bench, Reporter, Table, option
from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import RunningMesh, quiet_arguments, running_mesh
from services.api.wire import Api, Request
from services.runtime.config import MeshError
from services.runtime.etcd_members import FOLDER, find_etcd

WRITERS: Final = (1, 16, 256)
ROUNDS: Final = 3
CONTENT: Final = "x" * 1_000
OBJECTS_MAX: Final = 100_000_000
"""Limit on the number of objects of the measured servers, so that none is reached."""
ALONE: Final = frozenset(("scheduler", "controllers", "claim-controller"))
Say = Callable[[str], None]
Write = Callable[[int], Awaitable[None]]


@dataclass
class StoreResult(Result):
    """Writes per second, `by_engine` and number of writers. `load`: the machine's load average before and after."""

    seconds: float
    by_engine: dict[str, dict[int, float]]
    load: tuple[float, float]


def bench_store(*, seconds: float = 1.0, with_etcd: bool = True, say: Say = lambda text: None) -> StoreResult:
    """Measure each engine three times for `seconds` with each number of writers."""
    return asyncio.run(_bench(seconds, with_etcd, say))


async def _bench(seconds: float, with_etcd: bool, say: Say) -> StoreResult:
    load = os.getloadavg()[0]
    async with AsyncExitStack() as stack:
        measured: dict[str, Callable[[int], Awaitable[float]]] = {}
        arguments = quiet_arguments()
        arguments["apiserver"] += ["--objects-max", str(OBJECTS_MAX), "--objects-per-namespace-max", str(OBJECTS_MAX)]
        for title, engine, servers in (
            ("memory", "memory", 1),
            ("sqlite", "sqlite", 1),
            *((("etcd", "etcd", 1), ("etcd, 2 API servers", "etcd", 2)) if with_etcd else ()),
        ):
            say(f"starting {title}")
            mesh = await stack.enter_async_context(
                running_mesh(engine=engine, apiservers=servers, arguments=arguments, without=ALONE)
            )
            apis = [mesh.api]
            if servers > 1:
                apis = []
                for target in mesh.supervisor.grpc_target.split(","):
                    transport = mesh.supervisor.client_transport(server=target)
                    stack.push_async_callback(transport.close)
                    apis.append(transport.api())
            measured[title] = _rate_measure(_creating(apis), seconds)
            if title == "etcd":
                client = EtcdClient(_access(mesh))
                stack.push_async_callback(client.close)
                measured["raw etcd"] = _rate_measure(_putting(client), seconds)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="keplab-bench-"))
        measured["raw SQLite"] = _inserting(Path(folder) / "raw.db", seconds)
        rates: dict[str, dict[int, list[float]]] = {title: {w: [] for w in WRITERS} for title in measured}
        for number in range(ROUNDS):
            for writers in WRITERS:
                say(f"round {number + 1} of {ROUNDS}, {writers} writers")
                for title, measure in measured.items():
                    rates[title][writers].append(await measure(writers))
    by_engine = {
        title: {w: round(median(values), 1) for w, values in rounds.items()} for title, rounds in rates.items()
    }
    return StoreResult(seconds, by_engine, (round(load, 1), round(os.getloadavg()[0], 1)))


def _rate_measure(write: Write, seconds: float) -> Callable[[int], Awaitable[float]]:
    """Return what measures writes per second of so many who write one after the other."""
    numbers = count()

    async def measure(writers: int) -> float:
        done = 0
        begun = time.perf_counter()

        async def writer(place: int) -> None:
            nonlocal done
            while time.perf_counter() - begun < seconds:
                await write(next(numbers) * writers + place)
                done += 1

        async with asyncio.TaskGroup() as group:
            for place in range(writers):
                group.create_task(writer(place))
        return done / (time.perf_counter() - begun)

    return measure


def _creating(apis: Sequence[Api]) -> Write:
    names = count()

    async def create(number: int) -> None:
        body = msgspec.json.encode({"metadata": {"name": f"c{next(names)}"}, "data": {"content": CONTENT}})
        request = Request(verb="create", resource="configmaps", namespace="default", body=body)
        (await apis[number % len(apis)].call(request)).unwrap()

    return create


def _putting(client: EtcdClient) -> Write:
    names = count()

    async def put(_: int) -> None:
        key = b"/raw/%d" % next(names)
        await client.commit(Txn(key, 0, [(key, CONTENT.encode())]))

    return put


def _access(mesh: RunningMesh) -> EtcdFlags:
    pki = mesh.supervisor.events_dir.parent / FOLDER / "pki"
    port = mesh.supervisor.child("etcd").ports["grpc"]
    return EtcdFlags(
        f"https://127.0.0.1:{port}", str(pki / "ca.crt"), str(pki / "apiserver.crt"), str(pki / "apiserver.key")
    )


def _inserting(path: Path, seconds: float) -> Callable[[int], Awaitable[float]]:
    numbers = count()

    def insert(writers: int) -> float:
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE IF NOT EXISTS raw (key INTEGER PRIMARY KEY, value BLOB)")
        done, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT INTO raw VALUES (?, ?)", ((next(numbers), CONTENT) for _ in range(writers)))
            database.execute("COMMIT")
            done += writers
        rate = done / (time.perf_counter() - begun)
        database.close()
        return rate

    async def measure(writers: int) -> float:
        return await asyncio.to_thread(insert, writers)

    return measure


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The options of `keplab bench store`."""

    seconds: float = option(1.0, "seconds of each of three rounds", least=0.1, most=60.0)


def _run(options: StoreOptions, reporter: Reporter) -> StoreResult:
    has_etcd = True
    try:
        find_etcd()
    except MeshError as error:
        has_etcd = False
        reporter.say(f"{error}; the rest is measured")
    return bench_store(seconds=options.seconds, with_etcd=has_etcd, say=reporter.say)


def _table(_: StoreOptions, result: StoreResult) -> Iterator[str | Table]:
    writers = next(iter(result.by_engine.values()))
    yield Table(
        ("WRITES/s", *(f"{number} WRITER{'S' if number > 1 else ''}" for number in writers)),
        [(title, *(f"{rate:,.0f}" for rate in rates.values())) for title, rates in result.by_engine.items()],
    )
    yield f"load average {result.load[0]:g} before, {result.load[1]:g} after"


BENCH: Final = Bench(
    name="store",
    help="""Measure the writes per second of every engine with 1, 16 and 256 writers, next to raw SQLite and raw etcd.

    Without an etcd on the PATH the other engines are measured.
    """,
    options=StoreOptions,
    run=_run,
    table=_table,
    document=StoreResult.document,
)
