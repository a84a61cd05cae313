"""Candidates for one lease against a real API server: who leads, and whose writes still count (C11)."""

import asyncio
import random

import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.disk import DiskImage, SimDisk
from lab.scenarios.simulation.lifetime import Lifetime, SimClock
from lab.scenarios.simulation.network import Network, SimTransport
from services.api.errors import BadRequest, Conflict
from services.api.identity import ADMIN, SCHEDULER
from services.api.meta import Key
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request
from services.client.client import Client
from services.client.lease_record import Terms
from services.client.leases import Elector, LeadershipLost
from services.client.link_faults import LinkFaults
from services.telemetry.eventlog import MemoryEventLog, MemoryEvents
from services.telemetry.traces import Tracer

LEASE = Key("kube-system", "lease")
LEASES = "leases.coordination.k8s.io"


class Cluster:
    """An API server, and candidates with links of their own."""

    def __init__(self):
        self.clock = SimClock(asyncio.get_running_loop(), 1_800_000_000.0)
        self.network = Network(random.Random("network"))
        self.lines = []
        self.events = MemoryEvents(keep=False, on_line=self.lines.append)

    async def open(self, group):
        life = Lifetime("apiserver", 1)
        seams = Seams(
            component="apiserver", clock=self.clock, random=random.Random("apiserver"),
            disk=SimDisk(DiskImage(), random.Random("disk"), life), transport=SimTransport(self.network, life),
            events=MemoryEventLog("apiserver", self.clock, "1", self.events),
            tracer=Tracer("apiserver", clock=self.clock, random=random.Random("t"), sinks=()), switches=Switches(),
        )  # fmt: skip
        config = ApiServerConfig(name="apiserver", engine="memory", grpc_port=None, rest_port=None)
        server_component = build(config, seams)
        self.network.open(server_component.server.api_for, life)
        task = group.create_task(server_component.run())
        await server_component.server.wait_until_ready()
        self.admin = self.client("admin", ADMIN)
        return task

    def api(self, name, identity=ADMIN):
        transport = SimTransport(self.network, Lifetime(name, 1))
        transport.main = identity
        return transport.api()

    def client(self, name, identity=ADMIN):
        return Client(self.api(name, identity), self.clock, random.Random(name))

    def candidate(self, name, life=1):
        events = MemoryEventLog(name, self.clock, str(life), self.events)
        chance = random.Random(f"{name}/{life}")
        return Elector(self.api(name), self.clock, chance, lease=LEASE, holder=name, events=events)

    async def lease(self):
        return await self.admin.get(LEASES, LEASE)


def play(act):
    async def main():
        cluster = Cluster()
        async with asyncio.TaskGroup() as group:
            server = await cluster.open(group)
            try:
                return await act(cluster, group)
            finally:
                server.cancel()

    return simloop.run(main(), seed=1)


def configmap(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


async def ended(task):
    (found,) = await asyncio.gather(task, return_exceptions=True)
    return found


def test_the_second_candidate_leads_once_the_silent_leaders_lease_ran_out_and_the_first_gave_up_before():
    async def act(cluster, group):
        first, second = cluster.candidate("a"), cluster.candidate("b")
        await first.acquire()
        holding = asyncio.create_task(first.hold())
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(5.0)
        profile = cluster.network.profile("a")
        profile.faults = LinkFaults(cut="both")
        cut_at = cluster.clock.now()
        lost = await ended(holding)
        given_up = cluster.clock.now() - cut_at
        epoch = await waiting
        return lost, given_up, cluster.clock.now() - cut_at, epoch, first, second

    lost, given_up, taken, epoch, first, second = play(act)

    assert isinstance(lost, LeadershipLost)
    assert first.metrics() == {'leader_election_master_status{name="lease"}': 0.0}
    assert second.metrics() == {'leader_election_master_status{name="lease"}': 1.0}
    assert epoch == "kube-system/lease/1"
    assert 7.0 < given_up <= 10.1 < 12.0 < taken <= 15 + 2.4


def test_a_leader_whose_lease_is_deleted_says_so_and_ends_at_once():
    async def act(cluster, group):
        first = cluster.candidate("a")
        await first.acquire()
        holding = asyncio.create_task(first.hold())
        await asyncio.sleep(5.0)
        await cluster.admin.delete(LEASES, LEASE)
        deleted_at = cluster.clock.now()
        lost = await ended(holding)
        return lost, cluster.clock.now() - deleted_at

    lost, took = play(act)

    assert (type(lost), str(lost)) == (LeadershipLost, "lease kube-system/lease: it was deleted")
    assert took <= 2.5


def test_who_makes_a_deleted_lease_anew_goes_on_counting_and_outranks_the_leader_before():
    async def act(cluster, group):
        first, second = cluster.candidate("a"), cluster.candidate("b")
        await first.acquire()
        holding = asyncio.create_task(first.hold())
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(5.0)
        before = first.transitions
        profile = cluster.network.profile("a")
        profile.faults = LinkFaults(cut="both")
        await cluster.admin.delete(LEASES, LEASE)
        await waiting
        await ended(holding)
        return before, second.transitions

    before, after = play(act)

    assert after > before


def test_a_leader_that_ends_in_good_order_clears_the_holder():
    async def act(cluster, group):
        first, second = cluster.candidate("a"), cluster.candidate("b")
        await first.acquire()
        holding = asyncio.create_task(first.hold())
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(5.0)
        holding.cancel()
        await ended(holding)
        left_at, holder = cluster.clock.now(), (await cluster.lease())["spec"]["holderIdentity"]
        await waiting
        return holder, cluster.clock.now() - left_at, await cluster.lease()

    holder, took, lease = play(act)

    assert holder == ""
    assert took <= 2.5
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("b", 1)


def test_a_write_made_under_an_older_epoch_is_refused_and_its_writer_stops_leading_at_once():
    async def act(cluster, group):
        first, second = cluster.candidate("a"), cluster.candidate("a", life=2)  # which need not wait for its own lease
        old = cluster.client("old")
        old.lead(await first.acquire(), first.on_deposed)
        holding = asyncio.create_task(first.hold())
        await old.create("configmaps", configmap("before"))
        await second.acquire()
        taken_at = cluster.clock.now()
        with pytest.raises(Conflict) as refusal:
            await old.create("configmaps", configmap("after"))
        lost = await ended(holding)
        return refusal.value, lost, cluster.clock.now() - taken_at, cluster.lines

    refusal, lost, took, lines = play(act)

    assert refusal.reason == "StaleLeaseEpoch"
    assert refusal.message == (
        "lease kube-system/lease was taken again: it is at 1 transitions, this write was made at 0"
    )
    assert isinstance(lost, LeadershipLost)
    assert took < 0.1
    commits = [line.data for line in lines if line.ev == "store.commit" and line.obj["kind"] == "ConfigMap"]
    assert [data["lease_epoch"] for data in commits] == ["kube-system/lease/0"]
    seats = [line.data["transitions"] for line in lines if line.ev == "store.commit" and line.obj["kind"] == "Lease"]
    assert seats == [0, 1]


@pytest.mark.parametrize(
    ("verb", "otherwise"),
    [("create", 409), ("update", 200), ("patch", 200), ("delete", 200), ("deletecollection", 200), ("binding", 404)],
)
def test_every_kind_of_write_is_fenced_and_a_current_epoch_changes_nothing(verb, otherwise):
    async def act(cluster, group):
        api = cluster.api("old", SCHEDULER if verb == "binding" else ADMIN)
        made = await cluster.admin.create("configmaps", configmap("c"))
        lease = {"metadata": {"namespace": "kube-system", "name": "lease"}, "spec": {"leaseTransitions": 3}}
        await cluster.admin.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
        resource, sub = ("pods", "binding") if verb == "binding" else ("configmaps", "")
        request = Request(
            verb="create" if sub else verb, resource=resource, namespace="default", subresource=sub,
            name="" if verb in ("create", "deletecollection") else "c", patch_type="merge" if verb == "patch" else "",
            body=b"" if verb.startswith("delete") else msgspec.json.encode(configmap("c")),
        )  # fmt: skip
        stale = await api.call(msgspec.structs.replace(request, lease_epoch="kube-system/lease/2"))
        kept = await cluster.admin.get("configmaps", Key("default", "c")) == made
        current = await api.call(msgspec.structs.replace(request, lease_epoch="kube-system/lease/3"))
        return stale, kept, current

    stale, kept, current = play(act)

    assert (stale.code, stale.error().reason) == (409, "StaleLeaseEpoch")
    assert kept
    assert current.code == otherwise
    assert current.code < 400 or current.error().reason != "StaleLeaseEpoch"


def test_a_lease_that_is_not_stored_fences_no_write_and_a_malformed_epoch_is_a_mistake():
    async def act(cluster, group):
        client = cluster.client("c")
        client.lease_epoch = "kube-system/unknown/7"
        await client.create("configmaps", configmap("c"))
        client.lease_epoch = "kube-system/lease"
        with pytest.raises(BadRequest, match="want NAMESPACE/NAME/TRANSITIONS"):
            await client.create("configmaps", configmap("d"))

    play(act)


@pytest.mark.parametrize("terms", [{"lease_s": 10}, {"retry_s": 9.0}, {"retry_s": 0.0}])
def test_terms_under_which_two_could_lead_are_refused(terms):
    with pytest.raises(ValueError, match="leader election wants"):
        Terms(**terms)
