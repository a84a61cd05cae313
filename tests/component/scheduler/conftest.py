"""The scheduler's own wiring beside a real API server, in one loop of virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.registry.subresources.unbind import request_id
from apiserver_fake.wiring import build as build_apiserver
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.disk import DiskImage, SimDisk
from lab.scenarios.simulation.lifetime import Lifetime, SimClock
from lab.scenarios.simulation.network import Network, SimApi, SimTransport
from scheduler.config import SchedulerConfig
from scheduler.wiring import build as build_scheduler
from services.api.identity import ADMIN, SCHEDULER, Identity, node_identity
from services.api.meta import Document, Key
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, Response
from services.client.client import Client
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import MemorySpans, Tracer


class HookedApi:
    """The scheduler's way to the server, where a test may delay, answer or lose a request."""

    def __init__(self, api: Any, world: World) -> None:
        self._api, self._world = api, world
        self.watch = api.watch

    async def call(self, request: Request) -> Response:
        return await self._world.hook(request, self._api.call)


class HookedTransport:
    def __init__(self, transport: SimTransport, world: World) -> None:
        self._transport, self._world = transport, world

    def api(self, identity: str = "") -> HookedApi:
        return HookedApi(self._transport.api(identity), self._world)


async def undisturbed(request: Request, call: Any) -> Response:
    return await call(request)


class World:
    """One API server, one scheduler, and an administrator without latency."""

    def __init__(self, switches: dict[str, Any]) -> None:
        self.hook: Any = undisturbed
        self._clients: dict[str, Client] = {}
        self.scheduler_switches = {
            name.removeprefix("scheduler_only."): switches.pop(name)
            for name in list(switches)
            if name.startswith("scheduler_only.")
        }
        self.clock = SimClock(asyncio.get_running_loop(), 1_767_225_600.0)
        self.switches = Switches({"PodUnbinding": True, **switches})
        self.network = Network(random.Random("network"))
        self.lines: list[Any] = []
        self._line_written = asyncio.Event()
        self._by_event: dict[str, list[Any]] = defaultdict(list)
        self.events = MemoryEvents(keep=False, on_line=self._on_line)
        self.spans = MemorySpans()
        life = Lifetime("observer", 1)
        quiet = self.network.profile("observer")
        quiet.latency_min_s = quiet.latency_max_s = 0.0
        self._observer = SimTransport(self.network, life)
        self.admin = self.client(ADMIN)
        self.scheduler: Any = None

    def client(self, identity: Identity) -> Client:
        if identity.user not in self._clients:
            api = SimApi(self._observer, identity)
            self._clients[identity.user] = Client(api, self.clock, random.Random(identity.user))
        return self._clients[identity.user]

    def _seams(self, name: str, identity: Identity, switches: Switches) -> Seams:
        life = Lifetime(name, 1)
        transport = SimTransport(self.network, life)
        transport.main = identity
        return Seams(
            component=name,
            clock=self.clock,
            random=random.Random(name),
            disk=SimDisk(DiskImage(), random.Random(f"disk/{name}"), life),
            transport=HookedTransport(transport, self) if name == "scheduler" else transport,
            events=MemoryEventLog(name, self.clock, "1", self.events),
            tracer=Tracer(name, clock=self.clock, random=random.Random(f"trace/{name}"), sinks=(self.spans,)),
            switches=switches,
        )

    async def start(self, group: asyncio.TaskGroup) -> None:
        seams = self._seams("apiserver", Identity("system:apiserver"), self.switches)
        config = ApiServerConfig(name="apiserver", engine="memory", grpc_port=None, rest_port=None)
        server = build_apiserver(config, seams)
        self.network.open(server.server.api_for, Lifetime("apiserver", 1))
        self.tasks = [group.create_task(server.run())]
        await self.until(lambda: server.is_ready)
        await self.start_scheduler(group)

    async def start_scheduler(self, group: asyncio.TaskGroup) -> None:
        self.group = group
        switches = self.switches.replace(self.scheduler_switches)
        seams = self._seams("scheduler", SCHEDULER, switches)
        self.scheduler = self.build(seams)
        self.scheduler_task = group.create_task(self._end_quietly(self.scheduler.run()))
        self.tasks.append(self.scheduler_task)
        await self.until(lambda: self.scheduler.is_ready or self.scheduler_task.done())

    def build(self, seams: Seams) -> Any:
        """Make the scheduler; a scenario's own kind of world may make another."""
        return build_scheduler(SchedulerConfig(name="scheduler"), seams)

    async def restart_scheduler(self) -> None:
        self.scheduler_task.cancel()
        await asyncio.sleep(0)
        await self.start_scheduler(self.group)

    async def _end_quietly(self, work: Any) -> BaseException | None:
        try:
            await work
        except ExceptionGroup as errors:
            return errors
        return None

    async def until(self, holds: Any, limit_s: float = 60.0) -> float:
        """Wait for a state; return the virtual seconds it took.

        What a coroutine looks at is the server's, where nothing changes without a line in an event log.
        """
        began = self.clock.now()
        while True:
            self._line_written.clear()
            found = holds()
            is_of_server = asyncio.iscoroutine(found)
            if is_of_server:
                found = await found
            if found:
                return self.clock.now() - began
            assert self.clock.now() - began < limit_s, f"not so after {limit_s} s"
            if is_of_server:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(began + limit_s):
                        await self._line_written.wait()
            await asyncio.sleep(0.01)

    async def node(self, name: str, *, cpu: str = "4", session: str = "s1", **labels: str) -> None:
        await self.admin.create(
            "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        )
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        status = {"status": {"capacity": amounts, "allocatable": amounts, "nodeInfo": {"kubeletSession": session}}}
        await self.client(node_identity(name)).patch("nodes", Key("", name), status, subresource="status")

    async def pod(self, name: str, *, cpu: str = "1", **spec: Any) -> Document:
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        return await self.admin.create(
            "pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [container], **spec},
            },
        )

    async def get(self, name: str) -> Document:
        return await self.admin.get("pods", Key("default", name))

    async def node_of(self, name: str) -> str:
        return str((await self.get(name))["spec"].get("nodeName") or "")

    def bound(self, name: str) -> Any:
        async def check() -> bool:
            return bool(await self.node_of(name))

        return check

    async def unbind(
        self, name: str, node: str, *, reason: str = "TopologyAffinityError", seconds: int = 60
    ) -> Document:
        """Give the pod back as the node's kubelet would."""
        pod = await self.get(name)
        generation = pod["status"]["bindingGeneration"]
        body = {
            "apiVersion": "v1",
            "kind": "PodUnbind",
            "metadata": {"name": name, "namespace": "default", "uid": pod["metadata"]["uid"]},
            "nodeName": node,
            "bindingGeneration": generation,
            "kubeletSession": "s1",
            "requestID": request_id(pod["metadata"]["uid"], generation, node),
            "reason": reason,
            "message": "no",
            "exclude": {"seconds": seconds},
        }
        request = Request(
            verb="create",
            resource="pods",
            namespace="default",
            name=name,
            subresource="unbind",
            body=msgspec.json.encode(body),
        )
        return msgspec.json.decode((await self.client(node_identity(node)).call(request)).unwrap().body)

    def condition(self, pod: Document) -> Document:
        return next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")

    def said(self, ev: str, pod: str = "") -> list[Any]:
        return [line for line in self._by_event[ev] if not pod or line.obj["name"] == pod]

    def _on_line(self, line: Any) -> None:
        self.lines.append(line)
        self._by_event[line.ev].append(line)
        self._line_written.set()

    async def notes(self, pod: str) -> list[tuple[str, str, str]]:
        """Return (type, reason, message) of the Events about a pod."""
        found, _ = await self.admin.list("events", namespace="default")
        return [(e["type"], e["reason"], e["message"]) for e in found if e["involvedObject"]["name"] == pod]


@pytest.fixture
def play():
    """Run a scenario: `play(scenario, switch=value)` with `scenario(world)` a coroutine function."""

    def run(scenario: Any, *, seed: int = 0, kind: Any = World, **switches: Any) -> Any:
        async def main() -> Any:
            world = kind({name.replace("__", "."): value for name, value in switches.items()})
            async with asyncio.TaskGroup() as group:
                await world.start(group)
                result = await scenario(world)
                for task in world.tasks:
                    task.cancel()
            return result

        return simloop.run(main(), seed=seed)

    return run
