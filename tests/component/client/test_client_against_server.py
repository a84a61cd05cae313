"""The client and informers against the real API server, over simulated links that lose, cut and reset."""

import asyncio
import random

import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.disk import DiskImage, SimDisk
from lab.scenarios.simulation.lifetime import Lifetime, SimClock
from lab.scenarios.simulation.network import Network, SimTransport
from services.api.errors import Conflict, NotFound
from services.api.identity import ADMIN, SCHEDULER
from services.api.kinds.configmap import RESOURCE as CONFIGMAPS
from services.api.kinds.pod import Pod
from services.api.meta import AnyObject, Key
from services.api.seams import Seams
from services.api.switches import Switches
from services.client.client import Client
from services.client.informer import Informer
from services.client.link_faults import LinkFaults
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import Tracer

WALL_BASE_S = 1_800_000_000.0


class Cluster:
    """An API server in a network, and links to it. `crash` ends an incarnation, `start` begins the next."""

    def __init__(self, seed: int = 1):
        self.clock = SimClock(asyncio.get_running_loop(), WALL_BASE_S)
        self.network = Network(random.Random(f"network/{seed}"))
        self.events = MemoryEvents()
        self.disk = DiskImage()
        self.incarnation = 0
        self.seed = seed

    def seams(self, component: str, life: Lifetime) -> Seams:
        chance = random.Random(f"{component}/{life.incarnation}/{self.seed}")
        return Seams(
            component=component,
            clock=self.clock,
            random=chance,
            disk=SimDisk(self.disk, random.Random(f"disk/{self.seed}"), life),
            transport=SimTransport(self.network, life),
            events=MemoryEventLog(component, self.clock, str(life.incarnation), self.events),
            tracer=Tracer(component, clock=self.clock, random=chance, sinks=()),
            switches=Switches(),
        )

    async def start(self) -> None:
        self.incarnation += 1
        self.life = Lifetime("apiserver", self.incarnation)
        config = ApiServerConfig(name="apiserver", engine="memory", grpc_port=None, rest_port=None, state_hash=True)
        server_component = build(config, self.seams("apiserver", self.life))
        self.network.open(server_component.server.api_for, self.life)
        self.task = asyncio.create_task(server_component.run())
        self.life.adopt(self.task)
        while not server_component.is_ready:
            assert not self.task.done(), self.task.exception()
            await asyncio.sleep(0.01)

    def crash(self) -> None:
        self.network.close()
        self.life.end()

    def api(self, component: str = "test"):
        transport = SimTransport(self.network, Lifetime(component, 1))
        transport.main = SCHEDULER if component == "scheduler" else ADMIN
        return transport.api()

    def client(self, component: str = "test", **settings) -> Client:
        return Client(self.api(component), self.clock, random.Random(f"{component}/{self.seed}"), **settings)

    def informer(self, view, component: str = "informer", **settings) -> Informer:
        return Informer(
            self.api(component), view, clock=self.clock, random=random.Random(f"informer/{self.seed}"), **settings
        )


def play(act, seed: int = 1):
    async def main():
        cluster = Cluster(seed)
        await cluster.start()
        return await act(cluster)

    return simloop.run(main(), seed=seed)


def settings_named(name: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def pod(name: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


def node(name: str) -> dict:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def test_a_document_is_created_read_patched_updated_listed_and_deleted():
    async def act(cluster):
        client, key = cluster.client(), Key("default", "a")
        created = await client.create("configmaps", settings_named("a", x="1"))
        patched = await client.patch("configmaps", key, {"data": {"y": "2"}})
        with pytest.raises(Conflict):
            await client.update("configmaps", key, created)
        await client.update("configmaps", key, {**patched, "data": {"z": "3"}})
        items, rv = await client.list("configmaps", namespace="default")
        await client.delete("configmaps", key, uid=created["metadata"]["uid"])
        with pytest.raises(NotFound):
            await client.get("configmaps", key)
        return patched, items, rv

    patched, items, rv = play(act)
    assert patched["data"] == {"x": "1", "y": "2"}
    assert [i["data"] for i in items] == [{"z": "3"}]
    assert rv == int(items[0]["metadata"]["resourceVersion"])


def test_a_bind_answers_with_the_version_the_informer_then_reaches():
    async def act(cluster):
        client = cluster.client()
        await client.create("nodes", node("n1"))
        uid = (await client.create("pods", pod("a")))["metadata"]["uid"]
        informer = cluster.informer(Pod)
        task = asyncio.create_task(informer.run())
        await informer.wait_until_synced()
        rv = await cluster.client("scheduler").bind(Key("default", "a"), uid, "n1")
        await informer.wait_until_rv(rv)
        task.cancel()
        return rv, informer.lister

    rv, lister = play(act)
    assert lister.rv(Key("default", "a")) == rv
    assert lister.get(Key("default", "a")).spec.node_name == "n1"


def test_w7_an_informer_of_one_nodes_pods_sees_a_bind_as_arrival():
    async def act(cluster):
        client = cluster.client()
        await client.create("nodes", node("n1"))
        uid = (await client.create("pods", pod("a")))["metadata"]["uid"]
        informer = cluster.informer(Pod, field_selector="spec.nodeName=n1")
        seen = []
        informer.on_change(lambda change: seen.append((change.old is None, change.new is None)))
        task = asyncio.create_task(informer.run())
        await informer.wait_until_synced()
        before = len(informer.lister)
        await cluster.client("scheduler").bind(Key("default", "a"), uid, "n1")
        await asyncio.sleep(1)
        task.cancel()
        return before, seen

    assert play(act) == (0, [(True, False)])


@pytest.mark.parametrize("seed", range(4))
def test_c6_over_a_link_that_loses_and_repeats_every_write_takes_effect_exactly_once(seed):
    async def act(cluster):
        client, key = cluster.client("lossy", deadline_s=300.0), Key("default", "counter")
        await cluster.client().create("configmaps", settings_named("counter", n="0"))
        profile = cluster.network.profile("lossy")
        profile.faults = LinkFaults(loss=0.2, duplicate=0.2)
        for i in range(1, 16):
            document = await client.get("configmaps", key)
            assert document["data"]["n"] == str(i - 1)
            document["data"]["n"] = str(i)
            await client.update("configmaps", key, document)  # a repeat that ran twice would be a Conflict
        return (await cluster.client("reader").get("configmaps", key))["data"]["n"]

    assert play(act, seed) == "15"


@pytest.mark.parametrize("seed", range(4))
def test_c2_c3_c4_an_informer_ends_equal_to_the_server_through_crashes_and_cuts(seed):
    async def act(cluster):
        chance = random.Random(seed)
        informer = cluster.informer(AnyObject, resource=CONFIGMAPS.name)
        versions = {}

        def check(change):
            key = change.object.metadata.key
            assert change.rv > versions.get(key, 0)
            versions[key] = change.rv

        informer.on_change(check)
        following = asyncio.create_task(informer.run())
        client = cluster.client()
        names = [f"c{i}" for i in range(8)]
        for round_number in range(40):
            name = chance.choice(names)
            key = Key("default", name)
            try:
                if chance.random() < 0.3:
                    await client.delete("configmaps", key)
                else:
                    await client.patch("configmaps", key, {"data": {"n": str(round_number)}})
            except NotFound:
                await client.create("configmaps", settings_named(name))
            if round_number % 13 == 5:
                cluster.crash()
                await asyncio.sleep(chance.uniform(0.0, 3.0))
                await cluster.start()
            faults = LinkFaults(cut="replies" if round_number % 10 >= 7 else "")
            cluster.network.profile("informer").faults = faults
            await asyncio.sleep(chance.uniform(0.0, 2.0))
        cluster.network.profile("informer").faults = LinkFaults()
        _, rv = await client.list("configmaps")
        await informer.wait_until_rv(rv)
        items, _ = await client.list("configmaps")
        following.cancel()
        return (
            {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in items},
            {o.metadata.name: o.metadata.resource_version for o in informer.lister.all()},
        )

    server, cache = play(act, seed)
    assert cache == server


def test_the_caches_hash_is_that_of_the_servers_documents():
    async def act(cluster):
        client = cluster.client()
        informer = cluster.informer(AnyObject, resource=CONFIGMAPS.name)
        other = cluster.informer(AnyObject, resource=CONFIGMAPS.name)
        following = asyncio.create_task(informer.run())
        await informer.wait_until_synced()
        for i in range(5):
            await client.create("configmaps", settings_named(f"c{i}", n=str(i)))
        await client.delete("configmaps", Key("default", "c2"))
        await asyncio.sleep(1)
        late = asyncio.create_task(other.run())
        await other.wait_until_synced()
        following.cancel()
        late.cancel()
        return informer.lister.state_hash(), other.lister.state_hash()

    followed, taken_at_once = play(act)
    assert followed == taken_at_once
    assert int(followed, 16) > 0


def test_one_seed_gives_one_event_log():
    async def act(cluster):
        cluster.network.profile("lossy").faults = LinkFaults(loss=0.1)
        informer = cluster.informer(AnyObject, "lossy", resource=CONFIGMAPS.name)
        informer_task = asyncio.create_task(informer.run())
        client = cluster.client("lossy", deadline_s=300.0)
        for i in range(10):
            await client.create("configmaps", settings_named(f"c{i}"))
        informer_task.cancel()
        return cluster.events.digest

    assert play(act, 3) == play(act, 3)
    assert play(act, 3) != play(act, 4)
