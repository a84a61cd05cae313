"""A world of two components: the API server and the controller manager, and puppet kubelets, in virtual time."""

import asyncio
import random

import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build as build_apiserver
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.disk import DiskImage, SimDisk
from lab.scenarios.simulation.lifetime import Lifetime, LivingLines, SimClock
from lab.scenarios.simulation.network import Network, SimTransport
from services.api.identity import ADMIN, CONTROLLER_MANAGER, SCHEDULER, Identity, node_identity
from services.api.meta import Key
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.times import format_micro_time, format_time
from services.client.client import Client
from services.controllers.config import ControllersConfig
from services.controllers.wiring import build as build_controllers
from services.runtime.roles import controller_identities
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import Tracer

WALL_S = 1_767_225_600.0


class World:
    """Use inside `simloop.run`. Pods are bound round-robin to `nodes` and made ready at once by puppets."""

    def __init__(self, nodes=0, switches=(), controllers=("*",), seed=1, custom_resources=False):
        self.clock = SimClock(asyncio.get_running_loop(), WALL_S)
        self.switches = Switches.parse(switches)
        self.controllers, self.custom_resources = controllers, custom_resources
        self.events = MemoryEvents()
        self.network = Network(random.Random(f"net/{seed}"))
        self.seed = seed
        self.chance = random.Random(f"clients/{seed}")
        self.nodes = [f"n{i}" for i in range(nodes)]
        self.dead = set()
        self.silent_pods = set()
        self.tasks = []
        self.incarnations = 0

    def seams(self, name, life, main, others=()):
        chance = random.Random(f"{self.seed}/{name}/{life.incarnation}")
        transport = SimTransport(self.network, life)
        transport.main = main
        transport.identities = {identity.user: identity for identity in others}
        living = LivingLines(life, self.events.take)
        log = MemoryEventLog(name, self.clock, f"{life.incarnation:016x}", self.events, living.take)
        return Seams(
            component=name, clock=self.clock, random=chance, disk=SimDisk(DiskImage(), random.Random(0), life),
            transport=transport, events=log, switches=self.switches,
            tracer=Tracer(name, clock=self.clock, random=random.Random(0)),
        )  # fmt: skip

    async def __aenter__(self):
        life = Lifetime("apiserver", 1)
        config = ApiServerConfig(name="apiserver", engine="memory", grpc_port=None, rest_port=None)
        self.apiserver = build_apiserver(config, self.seams("apiserver", life, Identity("system:apiserver")))
        self.network.open(self.apiserver.server.api_for, life)
        self.tasks.append(asyncio.create_task(self.apiserver.run()))
        await self.until(lambda: self.apiserver.is_ready)
        self.admin = self.client(ADMIN)
        self.scheduler = self.client(SCHEDULER)
        for name in self.nodes:
            await self.register(name)
        await self.start()
        if self.nodes:
            self.tasks.append(asyncio.create_task(self._puppets()))
        return self

    async def __aexit__(self, *_):
        self.life.end()
        for task in self.tasks:
            task.cancel()

    def client(self, identity):
        return Client(self.apiserver.server.api_for(identity), self.clock, self.chance)

    async def start(self):
        """Start the manager's next incarnation."""
        self.incarnations += 1
        self.life = Lifetime("controllers", self.incarnations)
        config = ControllersConfig(
            name="controllers", controllers=self.controllers, health_port=-1, custom_resources=self.custom_resources
        )
        self.manager = build_controllers(
            config, self.seams("controllers", self.life, CONTROLLER_MANAGER, controller_identities())
        )
        self.task = asyncio.create_task(self.manager.run())
        self.life.adopt(self.task)
        await self.until(lambda: self.manager.is_ready)

    def kill(self):
        self.life.end()

    async def until(self, holds, limit_s=60.0):
        """Return once `holds()` does; it may be a coroutine function."""
        end = self.clock.now() + limit_s
        while True:
            found = holds()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            assert self.clock.now() < end, f"not so after {limit_s} s"
            await asyncio.sleep(0.05)

    async def register(self, name):
        kubelet = self.client(node_identity(name))
        await kubelet.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        await self.post_status(name)
        await kubelet.create("leases.coordination.k8s.io", {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40,
                     "renewTime": format_micro_time(self.clock.wall())}})  # fmt: skip

    async def post_status(self, name, ready="True"):
        now = format_time(self.clock.wall())
        conditions = [
            {"type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now, "reason": "Kubelet"}
            for kind, status in (("Ready", ready), ("MemoryPressure", "False"), ("DiskPressure", "False"),
                                 ("PIDPressure", "False"))
        ]  # fmt: skip
        await self.client(node_identity(name)).patch(
            "nodes", Key("", name), {"status": {"conditions": conditions}}, subresource="status", patch_type="strategic"
        )

    async def _puppets(self):
        """Bind, run and end pods, and renew leases, four times a second."""
        renewed_s = 0.0
        turn = 0
        while True:
            await asyncio.sleep(0.25)
            if self.clock.now() - renewed_s >= 10.0:
                renewed_s = self.clock.now()
                for name in self.nodes:
                    if name not in self.dead:
                        await self.client(node_identity(name)).patch(
                            "leases.coordination.k8s.io", Key("kube-node-lease", name),
                            {"spec": {"renewTime": format_micro_time(self.clock.wall())}})  # fmt: skip
            pods, _ = await self.admin.list("pods")
            for pod in pods:
                turn = await self._drive(pod, turn)

    async def _drive(self, pod, turn):
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        key = Key(meta["namespace"], meta["name"])
        if key.name in self.silent_pods or node in self.dead:
            return turn
        if not node and "deletionTimestamp" not in meta:
            alive = [name for name in _targets(pod) or self.nodes if name not in self.dead]
            await self.scheduler.bind(key, meta["uid"], alive[turn % len(alive)])
            return turn + 1
        if "deletionTimestamp" in meta and node:
            kubelet = self.client(node_identity(node))
            await kubelet.delete("pods", key, uid=meta["uid"], grace_period_s=0)
        elif pod.get("status", {}).get("phase") == "Pending" and node:
            now = format_time(self.clock.wall())
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
            patch = {"status": {"phase": "Running", "conditions": [ready]}}
            await self.admin.patch("pods", key, patch, subresource="status", patch_type="strategic")
        return turn

    async def revisions(self):
        return (await self.admin.list("controllerrevisions.apps", namespace="default"))[0]

    async def pods(self, namespace="default"):
        return (await self.admin.list("pods", namespace=namespace))[0]

    async def reasons(self, namespace="default"):
        events, _ = await self.admin.list("events", namespace=namespace)
        return [event["reason"] for event in events]


def _targets(pod):
    """Return the one node that a DaemonSet's pod was made for, as a list."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    return [name for term in terms for field in term.get("matchFields", ()) for name in field["values"]]


def play(act, **settings):
    async def main():
        async with World(**settings) as world:
            return await act(world)

    return simloop.run(main(), seed=settings.get("seed", 1))


@pytest.fixture
def world_of():
    return play
