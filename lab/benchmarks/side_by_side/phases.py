"""The phases of the benchmark. Each puts its load on one plane, and returns values by row."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from statistics import median
from typing import Final

import msgspec

from lab.benchmarks.rest import CREATORS, LISTED, MERGE
from lab.benchmarks.result import milliseconds
from lab.benchmarks.running_mesh import LIMIT_S, cpu_s, many
from lab.benchmarks.side_by_side.client import PlaneClient, lines
from lab.benchmarks.side_by_side.figures import Sizes
from lab.benchmarks.side_by_side.planes import Plane, is_scheduler
from lab.exchange.rest.endpoint import NoAnswer
from lab.exchange.stream import Refused

Phase = Callable[[Plane, Sizes], Awaitable[dict[str, float]]]
PROBE_MAX_S: Final = 60.0
CHECKED_EVERY_S: Final = 1.0
PATCHED: Final = 50
"""Number of pods that are patched in turn."""


class _Meta(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class BoundPods:
    """Times at which a watch saw each pod with a node. `total`: number of pods after which `are_complete` is set."""

    def __init__(self, total: int) -> None:
        self.at_s: dict[str, float] = {}
        self.are_complete = asyncio.Event()
        self._total = total
        self._decode = msgspec.json.Decoder(_Event).decode

    async def follow(self, blocks: AsyncIterator[bytes]) -> None:
        """Note what a watch says, until it is cancelled. Raises: NoAnswer."""
        async for line in lines(blocks):
            self.note(line)

    def note(self, line: bytes) -> None:
        """Note one event. Raises: NoAnswer."""
        event = self._decode(line)
        if event.type == "ERROR":
            raise NoAnswer(f"the watch of pods ended: {line[:300].decode('utf-8', 'replace')}")
        if event.object.spec.node_name:
            self.at_s.setdefault(event.object.metadata.name, time.perf_counter())
            if len(self.at_s) == self._total:
                self.are_complete.set()


@asynccontextmanager
async def _bound_pods(plane: Plane, total: int) -> AsyncIterator[BoundPods]:
    """Watch the pods that are scheduled inside the context. Raises: NoAnswer."""
    path, pods = plane.objects.pods_path("load"), BoundPods(total)
    version = await plane.client.version_of(path)
    async with plane.client.watch(path, version) as blocks, asyncio.TaskGroup() as group:
        following = group.create_task(pods.follow(blocks))
        yield pods
        following.cancel()


async def _wait(plane: Plane, pods: BoundPods, total: int, limit_s: float = LIMIT_S) -> None:
    """Return when all pods have a node. Raises: TimeoutError; Refused, when a process of the plane has ended."""
    until_s = time.perf_counter() + limit_s
    while not pods.are_complete.is_set():
        plane.processes.pids()
        if time.perf_counter() > until_s:
            raise TimeoutError(f"{plane.name}: {len(pods.at_s):,} of {total:,} pods have a node after {limit_s:g} s")
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECKED_EVERY_S):
                await pods.are_complete.wait()


async def _create(client: PlaneClient, path: str, body: Callable[[str], bytes], names: list[str]) -> list[float]:
    """Create pods, 32 at a time; return how long each call took, in seconds. Raises: ApiError."""
    took_s: list[float] = []

    async def create(name: str) -> None:
        content = body(name)
        begun = time.perf_counter()
        await client.call("POST", path, content)
        took_s.append(time.perf_counter() - begun)

    await many(names, create, CREATORS)
    return took_s


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:06d}" for number in range(count)]


async def _measure_creates(
    plane: Plane, place: str, body: Callable[[str], bytes], names: list[str]
) -> tuple[dict[str, float], list[float]]:
    """Create pods that no scheduler takes; return CPU and rate, and the seconds of each call."""
    await plane.client.warm_up()
    meter, begun = plane.meter(has_scheduler=False), time.perf_counter()
    took_s = await _create(plane.client, plane.objects.pods_path(place), body, names)
    all_s = time.perf_counter() - begun
    cpu_us = 1e6 * sum(meter.spent_s().values()) / len(names)
    return {"cpu": cpu_us, "rate": len(names) / all_s}, took_s


async def measure_empty(plane: Plane, _: Sizes) -> dict[str, float]:
    """Return the memory of an API server with nothing in it, once it has been called."""
    await plane.client.warm_up()
    return {"memory.empty": plane.rss_mib(of_schedulers=False)}


async def prepare(plane: Plane, _: Sizes) -> dict[str, float]:
    """Create the namespaces; no figure."""
    await plane.objects.create_namespaces()
    return {}


def cluster_phase(nodes: int, *, is_first: bool, has_live: bool, has_backlog: bool) -> Phase:
    """Return the phase of a cluster of so many nodes: creates, pods scheduled at once, and a backlog.

    `is_first`: whether memory is read, which later rounds only find as the first has left it. `has_live`,
    `has_backlog`: whether the pods of these are scheduled.
    """

    async def measure(plane: Plane, sizes: Sizes) -> dict[str, float]:
        values: dict[str, float] = {}
        await plane.objects.create_nodes(nodes)
        body = plane.objects.basic_pod(is_scheduled=False)
        created, took_s = await _measure_creates(plane, "load", body, _names("basic", sizes.pods))
        await plane.objects.delete_pods("load")
        created |= {"p50": milliseconds(took_s, 0.5), "p99": milliseconds(took_s, 0.99)}
        values |= {f"create.{nodes}.{name}": value for name, value in created.items()}
        if has_live:
            await _wait_for_scheduler(plane)
            live = await _measure_live(plane, sizes.pods)
            values |= {f"live.{nodes}.{name}": value for name, value in live.items()}
            if is_first:
                values[f"memory.{nodes}"] = plane.rss_mib(of_schedulers=False)
                values[f"memory.{nodes}.scheduler"] = plane.rss_mib(of_schedulers=True)
            await plane.objects.delete_pods("load")
        if has_backlog:
            backlog = await _measure_backlog(plane, sizes.pods)
            values |= {f"backlog.{nodes}.{name}": value for name, value in backlog.items()}
            await plane.objects.delete_pods("load")
        await plane.objects.delete_nodes(expected=nodes)
        return values

    return measure


async def _wait_for_scheduler(plane: Plane) -> None:
    """Return when a first pod has a node: the scheduler runs, and knows the nodes. Raises: Refused."""
    body, path = plane.objects.basic_pod(is_scheduled=True), plane.objects.pods_path("load")
    try:
        async with _bound_pods(plane, 1) as pods:
            await _create(plane.client, path, body, ["probe"])
            try:
                await _wait(plane, pods, 1, PROBE_MAX_S)
            except TimeoutError:
                raise Refused(f"{plane.client.server}: a pod has no node after {PROBE_MAX_S:g} s") from None
    finally:
        await plane.objects.delete_pods("load")


async def _measure_live(plane: Plane, count: int) -> dict[str, float]:
    """Create pods and have them scheduled at once; from the first creation to the last pod with a node."""
    body, path, names = plane.objects.basic_pod(is_scheduled=True), plane.objects.pods_path("load"), _names("l", count)
    await plane.client.warm_up()
    async with _bound_pods(plane, count) as pods:
        meter, begun = plane.meter(has_scheduler=True), time.perf_counter()
        await _create(plane.client, path, body, names)
        await _wait(plane, pods, count)
        spent_s = meter.spent_s()
    all_s = max(pods.at_s.values()) - begun
    of_schedulers = sum(spent for name, spent in spent_s.items() if is_scheduler(name))
    return {"cpu": 1e6 * sum(spent_s.values()) / count, "scheduler": 1e6 * of_schedulers / count, "rate": count / all_s}


async def _measure_backlog(plane: Plane, count: int) -> dict[str, float]:
    """Have pods wait for a scheduler that starts then; its start is inside."""
    body, path, names = plane.objects.basic_pod(is_scheduled=True), plane.objects.pods_path("load"), _names("b", count)
    await plane.processes.stop_scheduler()
    await _create(plane.client, path, body, names)
    async with _bound_pods(plane, count) as pods:
        meter, begun = plane.meter(has_scheduler=False), time.perf_counter()
        await plane.processes.start_scheduler()
        await _wait(plane, pods, count)
        spent_s = sum(meter.spent_s().values())
        spent_s += sum(cpu_s(pid) for name, pid in plane.processes.pids().items() if is_scheduler(name))
    return {"cpu": 1e6 * spent_s / count, "rate": count / (max(pods.at_s.values()) - begun)}


async def measure_calls(plane: Plane, sizes: Sizes) -> dict[str, float]:
    """Create and get realistic pods, one after the other. The pods stay for the watchers, until the next round."""
    path, body = plane.objects.pods_path("calls"), plane.objects.realistic_pod()
    names = _names("call", max(sizes.calls, PATCHED))
    await plane.objects.delete_pods("calls")
    await plane.client.warm_up()
    post_s: list[float] = []
    for name in names:
        post_s += await _create(plane.client, path, body, [name])
    get_s: list[float] = []
    for name in names:
        begun = time.perf_counter()
        await plane.client.call("GET", f"{path}/{name}")
        get_s.append(time.perf_counter() - begun)
    return {
        f"{verb}.{quantile}": milliseconds(took_s, q)
        for verb, took_s in (("post", post_s), ("get", get_s))
        for quantile, q in (("p50", 0.5), ("p99", 0.99))
    }


def watch_phase(watchers: int) -> Phase:
    """Return the phase in which a label is patched again and again, and each change goes to so many watchers."""

    async def measure(plane: Plane, sizes: Sizes) -> dict[str, float]:
        path, names = plane.objects.pods_path("calls"), _names("call", PATCHED)
        version, patches = await plane.client.version_of(path), sizes.calls
        audience = _Audience(watchers, patches)
        await plane.client.warm_up()
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(audience.follow(plane.client, path, version)) for _ in range(watchers)]
            await audience.have_begun.wait()
            meter, begun = plane.meter(has_scheduler=False), time.perf_counter()
            await many(range(patches), lambda number: _patch(plane, names[number % PATCHED], number), CREATORS)
            async with asyncio.timeout(LIMIT_S):
                await audience.are_complete.wait()
            all_s, spent_s = time.perf_counter() - begun, sum(meter.spent_s().values())
            for task in following:
                task.cancel()
        deliveries = watchers * patches
        return {f"watch.{watchers}.rate": deliveries / all_s, f"watch.{watchers}.cpu": 1e6 * spent_s / deliveries}

    return measure


async def _patch(plane: Plane, name: str, number: int) -> None:
    body = msgspec.json.encode({"metadata": {"labels": {"round": f"r{number}-{time.monotonic_ns()}"}}})
    await plane.client.call("PATCH", f"{plane.objects.pods_path('calls')}/{name}", body, content_type=MERGE)


class _Audience:
    """Watchers that count what they receive. `changes`: number of events that each is to receive."""

    def __init__(self, watchers: int, changes: int) -> None:
        self.have_begun, self.are_complete = asyncio.Event(), asyncio.Event()
        self._watchers, self._changes = watchers, changes
        self._begun = self._complete = 0

    async def follow(self, client: PlaneClient, path: str, version: str) -> None:
        """Watch and count, until it is cancelled. Raises: ApiError."""
        async with client.watch(path, version) as blocks:
            self._begun += 1
            if self._begun == self._watchers:
                self.have_begun.set()
            received = 0
            async for block in blocks:
                before, received = received, received + block.count(b"\n")
                if before < self._changes <= received:
                    self._complete += 1
                    if self._complete == self._watchers:
                        self.are_complete.set()


def list_phase(*, is_first: bool) -> Phase:
    """Return the phase in which many realistic pods are created, and listed by a client that takes gzip.

    One pod is patched before a list, so that no answer can be a copy of the last; then it is listed again.
    """

    async def measure(plane: Plane, sizes: Sizes) -> dict[str, float]:
        body, path = plane.objects.realistic_pod(), plane.objects.pods_path("list")
        created, _ = await _measure_creates(plane, "list", body, _names("listed", sizes.listed))
        values = {f"create.realistic.{name}": value for name, value in created.items()}
        ms: dict[str, list[float]] = {"list": [], "list_again": []}
        cpu_ms: dict[str, float] = {"list": 0.0, "list_again": 0.0}
        for number, (name, took) in itertools.product(range(-1, LISTED), ms.items()):  # the first warms up
            if name == "list":
                label = msgspec.json.encode({"metadata": {"labels": {"round": f"r{number + 1}"}}})
                await plane.client.call("PATCH", f"{path}/listed-000000", label, content_type=MERGE)
            meter, begun = plane.meter(has_scheduler=False), time.perf_counter()
            await plane.client.call("GET", path, encoding="gzip")
            took_ms = 1000 * (time.perf_counter() - begun)
            if number >= 0:
                took.append(took_ms)
                cpu_ms[name] += 1000 * sum(meter.spent_s().values()) / LISTED
        for name, took in ms.items():
            values |= {f"{name}.ms": median(took), f"{name}.cpu": cpu_ms[name]}
        if is_first:
            values["memory.listed"] = plane.rss_mib(of_schedulers=False)
        await plane.objects.delete_pods("list")
        return values

    return measure
