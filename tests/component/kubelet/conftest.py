"""A world of two components: the API server and one kubelet host, in virtual time, with faults on the link."""

import asyncio
import contextlib
import random

import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build as build_apiserver
from kubelet.config import KubeletConfig
from kubelet.dra.emulated.serving import DriverConfig
from kubelet.dra.emulated.serving import build as build_driver
from kubelet.node.definition import NodeDefinition
from kubelet.wiring import build as build_kubelet
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.disk import DiskImage, SimDisk
from lab.scenarios.simulation.lifetime import Lifetime, LivingLines, SimClock
from lab.scenarios.simulation.network import Network, SimTransport
from lab.scenarios.simulation.sockets import MachineSockets, SimSockets
from services.api.errors import NotFound
from services.api.identity import ADMIN, EVERY_STAGE, SCHEDULER, Hosting, Identity, driver_identity, host_identity
from services.api.meta import Key
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request
from services.client.client import Client
from services.kwok.stages.rights import rights_of
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import Tracer

WALL_S = 1_767_225_600.0


class World:
    """Use inside `simloop.run`; `nodes` are node definitions as JSON objects."""

    def __init__(self, nodes, switches=(), latency=("all=constant:0",), seed=1, **settings):
        self.clock = SimClock(asyncio.get_running_loop(), WALL_S)
        self.switches = Switches.parse(("unbind.require_scheduler_capability=false", *switches))
        self.line_written = asyncio.Event()
        self.events = MemoryEvents(on_line=lambda _: self.line_written.set())
        self.network = Network(random.Random(f"net/{seed}"))
        self.seed = seed
        self.disk_image = DiskImage()
        self.config = KubeletConfig(
            name="h0",
            definitions=tuple(NodeDefinition.parse(n) for n in nodes),
            latency=tuple(latency),
            health_port=-1,
            seed=seed,
            **settings,
        )
        self.stage_rights = EVERY_STAGE if self.config.enable_crds else rights_of(self.config.read_stages())
        self.machine_sockets = MachineSockets(random.Random(f"sockets/{seed}"))
        self.incarnations = 0
        self.life = None
        self.process = None
        self.tasks = []

    def seams(self, name, life, disk_image, main):
        chance = random.Random(f"{self.seed}/{name}/{life.incarnation}")
        transport = SimTransport(self.network, life)
        transport.main = main
        living = LivingLines(life, self.events.take)
        log = MemoryEventLog(name, self.clock, f"{life.incarnation:016x}", self.events, living.take)
        return Seams(
            component=name, clock=self.clock, random=chance,
            disk=SimDisk(disk_image, random.Random(f"disk/{name}"), life), transport=transport,
            events=log, switches=self.switches, sockets=SimSockets(self.machine_sockets, life),
            tracer=Tracer(name, clock=self.clock, random=random.Random(0)),
        )  # fmt: skip

    async def __aenter__(self):
        self.api_life = Lifetime("apiserver", 1)
        config = ApiServerConfig(
            name="apiserver",
            engine="memory",
            grpc_port=None,
            rest_port=None,
            kwok=self.config.stages,
            enable_crds=self.config.enable_crds,
        )
        seams = self.seams("apiserver", self.api_life, DiskImage(), Identity("system:apiserver"))
        self.apiserver = build_apiserver(config, seams)
        self.network.open(self.apiserver.server.api_for, self.api_life)
        self.tasks.append(asyncio.create_task(self.apiserver.run()))
        await self.until(lambda: self.apiserver.is_ready)
        chance = random.Random(7)
        self.admin = Client(self.apiserver.server.api_for(ADMIN), self.clock, chance)
        self.scheduler = Client(self.apiserver.server.api_for(SCHEDULER), self.clock, chance)
        self.driver_lives, self.driver_disks, self.drivers = {}, {}, {}
        for definition in self.config.definitions:
            for driver in definition.drivers:
                self.start_driver(definition.name, driver)
        await self.start_kubelet()
        await self.until(lambda: all(driver.is_ready for driver in self.drivers.values()))
        return self

    def start_driver(self, node, definition):
        """Start a DRA driver, or a killed one again, with the disk that it had."""
        place = node, definition.name
        life = Lifetime(f"dra-driver/{node}/{definition.name}", len(self.tasks))
        disk = self.driver_disks.setdefault(place, DiskImage())
        config = DriverConfig(node=node, definition=msgspec.json.encode(definition).decode())
        seams = self.seams(f"dra-driver/{node}/{definition.name}", life, disk, driver_identity(definition.name, node))
        self.driver_lives[place], self.drivers[place] = life, build_driver(config, seams)
        task = asyncio.create_task(self.drivers[place].run())
        life.adopt(task)
        self.tasks.append(task)

    def kill_driver(self, driver="gpu.example.com", node="n1"):
        self.driver_lives[node, driver].end()

    async def __aexit__(self, *_):
        self.kill_kubelet()
        for life in self.driver_lives.values():
            life.end()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def start_kubelet(self, wait=True):
        self.incarnations += 1
        self.life = Lifetime("kubelet/h0", self.incarnations)
        hosting = Hosting(frozenset(node.name for node in self.config.definitions), stages=self.stage_rights)
        host = host_identity("h0", hosting)
        self.process = build_kubelet(self.config, self.seams("kubelet/h0", self.life, self.disk_image, host))
        task = asyncio.create_task(self.process.run())
        self.life.adopt(task)
        self.tasks.append(task)
        if wait:
            await self.until(lambda: task.done() or self.process.is_ready)
            if task.done():
                task.result()

    def kill_kubelet(self):
        self.life.end()

    def agent(self, node="n1"):
        return next(a for a in self.process.agents if a.name == node)

    async def until(self, condition, limit_s=60.0):
        end = self.clock.now() + limit_s
        while not condition():
            assert self.clock.now() < end, "the awaited state did not come"
            await asyncio.sleep(0.01)

    async def pod(self, name):
        try:
            return await self.admin.get("pods", Key("default", name))
        except NotFound:
            return None

    async def until_pod(self, name, condition, limit_s=60.0):
        pod = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                async for pod in self.states(name, apart_s=0.01):
                    if condition(pod):
                        return pod
        raise AssertionError(f"pod {name} did not come to that state: {pod and pod['status']}")

    async def states(self, name, apart_s=0.0):
        """Yield the pod now and after whatever a component writes into its event log; None where there is none.

        A read of what is not there is written, too: with `apart_s`, time goes on between two of them.
        """
        while True:
            self.line_written.clear()
            yield await self.pod(name)
            await self.line_written.wait()
            await asyncio.sleep(apart_s)

    async def create(self, name, *, node="n1", cpu="1", run="", bind=True, spec=None, devices=None, **metadata):
        container = {"name": "main", "image": "busybox"}
        if cpu:
            amounts = {"cpu": cpu, "memory": "64Mi", **(devices or {})}
            container["resources"] = {"requests": amounts, "limits": amounts}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": {"containers": [container], **(spec or {})},
        }
        if run:
            document["metadata"].setdefault("annotations", {})["keplab.dev/run"] = run
        stored = await self.admin.create("pods", document)
        if bind:
            await self.scheduler.bind(Key("default", name), stored["metadata"]["uid"], node)
        return stored["metadata"]["uid"]

    async def delete(self, name, grace_s=None):
        await self.admin.delete("pods", Key("default", name), grace_period_s=grace_s)

    def lines(self, ev, uid=""):
        return [x for x in self.events.lines if x.ev == ev and (not uid or (x.obj or {}).get("uid") == uid)]

    async def until_line(self, ev, uid, limit_s=60.0):
        """Return once a component has written such a line, at the moment at which it does."""
        async with asyncio.timeout(limit_s):
            while not self.lines(ev, uid):
                self.line_written.clear()
                await self.line_written.wait()

    def call(self, identity, **request):
        return self.apiserver.server.api_for(identity).call(Request(**request))


@pytest.fixture
def world_class():
    return World


@pytest.fixture
def simulate():
    """Run `scenario(world)` in virtual time over a fresh world and return what it returns."""

    def run(scenario, nodes=({"name": "n1", "cpu": "4"},), seed=1, **settings):
        async def main():
            async with World(nodes, seed=seed, **settings) as world:
                return await scenario(world)

        return simloop.run(main(), seed=seed)

    return run
