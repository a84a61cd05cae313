"""Kubelet hosts that claim slots by Leases, in virtual time: as containers of one service that share a volume."""

import asyncio
from dataclasses import replace

import pytest

from kubelet.config import KubeletConfig
from kubelet.wiring import build as build_kubelet
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.disk import DiskImage
from lab.scenarios.simulation.lifetime import Lifetime
from services.api.identity import Hosting, host_identity
from services.api.meta import Key
from services.client.link_faults import LinkFaults
from services.runtime.config import EXIT_CONFIG, EXIT_DEPOSED, EXIT_USAGE, StartError

PREFIX = "kubelet-"
TAKEN_OVER_WITHIN_S = 15 + 2 * 0.5
"""A Lease's duration, and a look before and after it."""


class Hosts:
    """Hosts by name, as `start` makes them; all have one volume and one credential. `sent`: by whom, when, what."""

    def __init__(self, **settings):
        super().__init__([], **settings)
        self.volume, self.lives, self.hosts, self.running, self.sent = DiskImage(), {}, {}, {}, []

    async def start_kubelet(self, wait=True):
        self.life = Lifetime("none", 0)

    def start(self, *names, prefix=PREFIX, nodes=2, hosting=PREFIX):
        for name in names:
            config = KubeletConfig(
                name=name, slots=prefix, nodes=nodes, latency=("all=constant:0",), health_port=-1, seed=1
            )
            life = self.lives[name] = Lifetime(f"kubelet/{name}", self.incarnations)
            self.incarnations += 1
            seams = self.seams(life.component, life, self.volume, host_identity("c", Hosting(node_prefix=hosting)))
            reported = replace(
                seams, transport=_Reported(seams.transport, lambda what, name=name: self.report(name, what))
            )
            self.hosts[name] = build_kubelet(config, reported)
            task = self.running[name] = asyncio.create_task(self.hosts[name].run())
            life.adopt(task)
            self.tasks.append(task)

    def report(self, name, what):
        self.sent.append((name, self.clock.now(), *what))

    async def ready(self, *names, limit_s=60.0):
        await self.until(lambda: all(self.hosts[name].is_ready for name in names), limit_s)

    async def stop(self, *names):
        """As SIGTERM does."""
        for name in names:
            self.running[name].cancel()
        await asyncio.gather(*(self.running[name] for name in names), return_exceptions=True)
        for name in names:
            self.lives[name].end()

    def kill(self, *names):
        for name in names:
            self.lives[name].end()

    def cut(self, name, is_cut=True):
        self.network.profile(f"kubelet/{name}").faults = LinkFaults(cut="both") if is_cut else LinkFaults()

    def slots(self, *names):
        return [self.hosts[name].slot for name in names]

    async def nodes(self):
        items, _ = await self.admin.list("nodes")
        return sorted(node["metadata"]["name"] for node in items)

    async def holder(self, slot):
        lease = await self.admin.get("leases.coordination.k8s.io", Key("kube-node-lease", slot))
        return lease["spec"]["holderIdentity"]


@pytest.fixture
def play(world_class):
    class SlotWorld(Hosts, world_class):
        pass

    def run(scenario):
        async def main():
            async with SlotWorld() as world:
                return await scenario(world)

        return simloop.run(main(), seed=1)

    return run


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


def test_hosts_that_start_together_take_slots_of_their_own_in_order_and_soon(play):
    async def scenario(w):
        w.start("a", "b", "c")
        began_s = w.clock.now()
        await w.ready("a", "b", "c")
        return w.slots("a", "b", "c"), w.clock.now() - began_s, await w.nodes()

    slots, took_s, nodes = play(scenario)

    assert ["kubelet-0", "kubelet-1", "kubelet-2"] == sorted(slots)
    assert [f"kubelet-{slot}-{node}" for slot in range(3) for node in range(2)] == nodes
    assert took_s < 3.0


def test_a_host_that_comes_later_waits_until_it_has_seen_the_others_renew_and_then_makes_a_slot(play):
    async def scenario(w):
        w.start("a", "b")
        await w.ready("a", "b")
        await asyncio.sleep(7.7)
        w.start("c")
        began_s = w.clock.now()
        await w.ready("c")
        return w.slots("c"), w.clock.now() - began_s

    slots, took_s = play(scenario)

    assert ["kubelet-2"] == slots
    assert 0.5 < took_s < 2 * 1.2 + 0.5 + 1.0


def test_new_hosts_get_the_nodes_of_those_that_were_stopped_and_the_pods_run_on(play):
    async def scenario(w):
        w.start("a", "b")
        await w.ready("a", "b")
        uid = await w.create("p", node="kubelet-1-0")
        before = await w.until_pod("p", running)
        await w.stop("a", "b")
        assert ["", ""] == [await w.holder(slot) for slot in ("kubelet-0", "kubelet-1")]
        w.start("x", "y")
        began_s = w.clock.now()
        await w.ready("x", "y")
        took_s = w.clock.now() - began_s
        await asyncio.sleep(60.0)
        return uid, before, await w.pod("p"), took_s, await w.nodes(), w.slots("x", "y")

    uid, before, pod, took_s, nodes, slots = play(scenario)

    assert took_s < 2.0
    assert ["kubelet-0", "kubelet-1"] == sorted(slots)
    assert ["kubelet-0-0", "kubelet-0-1", "kubelet-1-0", "kubelet-1-1"] == nodes
    assert (uid, before["status"]["containerStatuses"]) == (pod["metadata"]["uid"], pod["status"]["containerStatuses"])


def test_a_slot_that_was_left_while_no_server_answered_is_taken_at_once(play):
    async def scenario(w):
        w.start("a", "b")
        await w.ready("a", "b")
        w.cut("a")
        w.cut("b")
        await w.stop("a", "b")
        assert {"a", "b"} == {await w.holder(slot) for slot in ("kubelet-0", "kubelet-1")}
        w.start("x", "y")
        began_s = w.clock.now()
        await w.ready("x", "y")
        return sorted(w.slots("x", "y")), w.clock.now() - began_s, await w.nodes()

    slots, took_s, nodes = play(scenario)

    assert ["kubelet-0", "kubelet-1"] == slots
    assert 4 == len(nodes)
    assert took_s < 2.0


def test_a_killed_hosts_slot_is_taken_over_in_bounded_time_and_no_slot_is_made_meanwhile(play):
    async def scenario(w):
        w.start("a", "b")
        await w.ready("a", "b")
        await asyncio.sleep(3.3)
        gone = w.slots("b")
        w.kill("b")
        w.start("c")
        began_s = w.clock.now()
        await w.ready("c")
        return gone, w.slots("c"), w.clock.now() - began_s, await w.nodes()

    gone, taken, took_s, nodes = play(scenario)

    assert gone == taken
    assert 15.0 <= took_s <= TAKEN_OVER_WITHIN_S + 1.0
    assert 4 == len(nodes)


def test_a_host_that_comes_back_under_its_name_has_its_slot_at_once(play):
    async def scenario(w):
        w.start("a", "b")
        await w.ready("a", "b")
        before = w.slots("a", "b")
        w.kill("a", "b")
        w.start("b", "a")
        began_s = w.clock.now()
        await w.ready("a", "b")
        return before, w.slots("a", "b"), w.clock.now() - began_s

    before, after, took_s = play(scenario)

    assert before == after
    assert took_s < 2.0


def test_a_host_that_was_cut_off_ends_when_it_finds_its_slot_anothers_and_sends_nothing_in_between(play):
    async def scenario(w):
        w.start("a")
        await w.ready("a")
        await w.create("p", node="kubelet-0-0")
        await w.until_pod("p", running)
        w.cut("a")
        cut_s = w.clock.now()
        w.start("b")
        await w.ready("b")
        assert w.slots("a") == w.slots("b")
        await asyncio.sleep(30.0)
        w.cut("a", is_cut=False)
        await w.until(w.running["a"].done)
        (error,) = await asyncio.gather(w.running["a"], return_exceptions=True)
        await asyncio.sleep(60.0)
        late = [what for name, at_s, *what in w.sent if name == "a" and at_s > cut_s + 10.0]
        return error, late, await w.pod("p"), await w.holder("kubelet-0")

    error, late, pod, holder = play(scenario)

    assert isinstance(error, StartError)
    assert EXIT_DEPOSED == error.exit_code
    assert "the slot kubelet-0 is another's" in error.message
    assert "'b'" in error.message
    assert "b" == holder
    assert running(pod)
    assert late
    assert {"kubelet-0"} == {node for node, _ in late}


def test_a_host_that_cannot_reach_the_server_for_long_keeps_its_slot_when_no_other_wants_it(play):
    async def scenario(w):
        w.start("a")
        await w.ready("a")
        await w.create("p", node="kubelet-0-0")
        await w.until_pod("p", running)
        w.cut("a")
        await asyncio.sleep(300.0)
        w.cut("a", is_cut=False)
        await w.create("q", node="kubelet-0-1")
        await w.until_pod("q", running)
        return w.running["a"].done(), await w.pod("p"), w.slots("a")

    is_over, pod, slots = play(scenario)

    assert not is_over
    assert running(pod)
    assert ["kubelet-0"] == slots


def test_what_people_say_of_a_node_stays_and_what_a_lost_host_still_writes_disturbs_no_one(play):
    async def scenario(w):
        w.start("a")
        await w.ready("a")
        await w.create("p", node="kubelet-0-0")
        await w.until_pod("p", running)
        w.volume.files["kubelet-0/nodes/kubelet-0-0/faults"] = bytearray(b"sandbox fails")
        stale = {name: bytes(data) for name, data in w.volume.files.items() if name.startswith("kubelet-0/0/")}
        await w.stop("a")
        w.start("b")
        await w.ready("b")
        for name in stale:
            w.volume.files[name] = bytearray(b"what a host that stood still writes late\n")
        await w.stop("b")
        w.start("c")
        await w.ready("c")
        await w.create("faulty", node="kubelet-0-0")
        await w.create("well", node="kubelet-0-1")
        await w.until_pod("well", running)
        await asyncio.sleep(10.0)
        return sorted(w.volume.files), stale, await w.pod("faulty"), await w.pod("p")

    names, stale, faulty, pod = play(scenario)

    assert "kubelet-0/0/runtime-0.log" in stale
    assert {"2", "nodes", "left"} == {name.split("/")[1] for name in names}
    assert "kubelet-0/nodes/kubelet-0-0/faults" in names
    assert "0" == str(pod["status"]["containerStatuses"][0]["restartCount"])
    assert running(pod)
    assert "Pending" == faulty["status"]["phase"]


def test_a_credential_for_other_nodes_gets_no_slot(play):
    async def scenario(w):
        w.start("a", hosting="other-")
        (error,) = await asyncio.gather(w.running["a"], return_exceptions=True)
        return error

    error = play(scenario)

    assert isinstance(error, StartError)
    assert EXIT_CONFIG == error.exit_code
    assert "--slots kubelet-" in error.message


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"slots": "k-", "nodes": 0}, "--slots k- without --nodes: the slot has no node"),
        ({"slots": "k-", "slot": "k", "nodes": 1}, "--slot k names the nodes; --slots k- would name them, too"),
        ({"slot": "k", "nodes": 1, "nodes_file": "n.json"}, "--slot k names the nodes; --nodes-file n.json would"),
        ({"slots": "k-", "nodes": 1, "first": 3}, "--slots k- names the nodes; --first 3 would name them, too"),
    ],
)
def test_settings_that_name_nodes_twice_are_refused(settings, text):
    with pytest.raises(StartError) as refused:
        KubeletConfig(**settings).check_slots()

    assert text in refused.value.message
    assert EXIT_USAGE == refused.value.exit_code


def test_a_host_with_a_given_slot_names_its_nodes_after_it():
    names = [node.name for node in KubeletConfig(slot="kubelet-7", nodes=2).in_slot("kubelet-7").node_definitions()]

    assert ["kubelet-7-0", "kubelet-7-1"] == names


class _Reported:
    """A transport that reports which calls leave: the node, and what of."""

    def __init__(self, inner, report):
        self._inner, self._report = inner, report

    def api(self, identity=""):
        return self._inner.api(identity)

    async def node_api(self, node):
        return _ReportedApi(await self._inner.node_api(node), lambda resource: self._report((node, resource)))


class _ReportedApi:
    def __init__(self, api, report):
        self._api, self._report = api, report

    async def call(self, request):
        self._report(request.resource)
        return await self._api.call(request)

    def watch(self, request):
        return self._api.watch(request)
