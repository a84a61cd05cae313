"""A gate loses, delays and repeats what passes it, in order; without faults it is not there."""

import asyncio
import random

import pytest

from lab.scenarios.simulation import simloop
from services.api.errors import UnknownOutcome
from services.api.wire import Request, Response, WatchEvent, WatchRequest
from services.client.gate import GatedApi, GatedTransport, Gates
from services.client.link_faults import HEALTHY, LinkFaults

STATUS = Request(verb="patch", resource="nodes", subresource="status", name="n1", deadline_s=10.0)
RENEWAL = Request(verb="patch", resource="leases.coordination.k8s.io", name="n1", deadline_s=10.0)


class Server:
    """Answers at once, remembers when what arrived, and sends a batch a second on every watch."""

    def __init__(self):
        self.arrived = []

    async def call(self, request):
        self.arrived.append((asyncio.get_running_loop().time(), request.name or request.verb))
        return Response(code=200)

    async def watch(self, request):
        for number in range(100):
            await asyncio.sleep(1.0)
            yield [WatchEvent(type="BOOKMARK", rv=number)]


def run(act):
    async def main():
        server, gates = Server(), Gates(random.Random(1))
        gate = gates.of("n1")
        return await act(server, gate, GatedApi(server, gate))

    return simloop.run(main())


def test_an_open_gate_takes_no_time():
    async def act(server, gate, api):
        await api.call(STATUS)
        return server.arrived, asyncio.get_running_loop().time()

    assert run(act) == ([(0.0, "n1")], 0.0)


@pytest.mark.parametrize(("cut", "arrives"), [("requests", 0), ("replies", 1), ("both", 0)])
def test_a_cut_is_not_noticed_before_the_deadline(cut, arrives):
    async def act(server, gate, api):
        gate.set(LinkFaults(cut=cut))
        with pytest.raises(UnknownOutcome, match="no answer to patch nodes within 10 s"):
            await api.call(STATUS)
        return len(server.arrived), asyncio.get_running_loop().time()

    assert run(act) == (arrives, 10.0)


def test_only_calls_of_the_dropped_sort_are_lost():
    async def act(server, gate, api):
        gate.set(LinkFaults(drop=("node-status",)))
        await api.call(RENEWAL)
        with pytest.raises(UnknownOutcome):
            await api.call(STATUS)
        return len(server.arrived)

    assert run(act) == 1


def test_a_late_call_is_handed_over_and_its_caller_learns_nothing():
    async def main():
        server, gates, late = Server(), Gates(random.Random(1)), []
        gates.on_late_request = lambda node, request, late_s: late.append((node, request.resource, late_s))
        gate = gates.of("n1")
        gate.set(LinkFaults(late={"node-status": 15.0}))
        api = GatedApi(server, gate)
        await api.call(RENEWAL)
        with pytest.raises(UnknownOutcome):
            await api.call(STATUS)
        return len(server.arrived), late

    assert simloop.run(main()) == (1, [("n1", "nodes", 15.0)])


def test_slow_messages_arrive_late_and_in_order():
    async def act(server, gate, api):
        gate.set(LinkFaults(slow_s=0.2))
        calls = []
        for number in range(20):
            request = Request(verb="get", resource="pods", name=str(number))
            calls.append(asyncio.ensure_future(api.call(request)))
            await asyncio.sleep(0.001)
        gate.set(HEALTHY)
        last = Request(verb="get", resource="pods", name="last")
        await asyncio.gather(*calls, api.call(last))
        return server.arrived

    arrived = run(act)
    assert [name for _, name in arrived] == [*(str(n) for n in range(20)), "last"]
    assert 0.1 < arrived[0][0] < 0.3


def test_a_duplicated_request_arrives_twice_and_is_answered_once():
    async def act(server, gate, api):
        gate.set(LinkFaults(duplicate=1.0))
        await api.call(STATUS)
        await asyncio.sleep(5.0)
        return [name for _, name in server.arrived]

    assert run(act) == ["n1", "n1"]


def test_a_watch_goes_on_where_it_was_after_a_cut_of_its_answers():
    async def act(server, gate, api):
        seen = []

        async def read():
            async for batch in api.watch(WatchRequest(resource="pods")):
                seen.append((asyncio.get_running_loop().time(), batch[0].rv))

        reading = asyncio.ensure_future(read())
        await asyncio.sleep(3.5)
        gate.set(LinkFaults(cut="replies"))
        await asyncio.sleep(10.0)
        gate.set(HEALTHY)
        await asyncio.sleep(2.0)
        reading.cancel()
        return seen

    seen = run(act)
    assert [rv for _, rv in seen] == list(range(15))
    assert all(not 3.5 < at < 13.5 for at, _ in seen)


def test_a_watch_that_receives_nothing_for_30_s_is_given_up():
    async def act(server, gate, api):
        gate.set(LinkFaults(cut="replies"))
        with pytest.raises(UnknownOutcome, match="silent for 30 s"):
            async for _ in api.watch(WatchRequest(resource="pods")):
                pass
        return asyncio.get_running_loop().time()

    assert run(act) == pytest.approx(30.0)


def test_a_watch_is_opened_once_requests_arrive_again():
    async def act(server, gate, api):
        gate.set(LinkFaults(cut="requests"))
        asyncio.get_running_loop().call_later(20.0, gate.set, HEALTHY)
        await anext(api.watch(WatchRequest(resource="pods")))
        return asyncio.get_running_loop().time()

    assert run(act) == pytest.approx(21.0)


def test_batches_of_a_slow_watch_come_at_the_rate_they_were_sent():
    async def act(server, gate, api):
        gate.set(LinkFaults(watch_delay_s=5.0))
        stream, seen = api.watch(WatchRequest(resource="pods")), []
        for _ in range(4):
            await anext(stream)
            seen.append(asyncio.get_running_loop().time())
        return seen

    assert run(act) == pytest.approx([6.0, 7.0, 8.0, 9.0])


def test_a_node_that_is_cut_off_gets_no_credential_either():
    class Transport:
        def api(self, identity=""):
            return Server()

        async def node_api(self, node):
            return Server()

    async def main():
        gates = Gates(random.Random(1))
        transport = GatedTransport(Transport(), gates)
        gates.of("n1").set(LinkFaults(cut="replies"))
        await transport.node_api("n2")
        with pytest.raises(UnknownOutcome, match="create nodetokens n1"):
            await transport.node_api("n1")

    simloop.run(main())


def test_calls_are_observed_before_and_after():
    class Transport:
        def api(self, identity=""):
            return Server()

    async def main():
        gates, observed = Gates(random.Random(1)), []
        api = GatedTransport(Transport(), gates).api()
        gates.on_call = lambda when, what: observed.append(f"{when}:{what}")
        await api.call(STATUS)
        await api.call(RENEWAL)
        return observed

    assert simloop.run(main()) == [
        "before:nodes/status", "after:nodes/status",
        "before:leases.coordination.k8s.io", "after:leases.coordination.k8s.io",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (LinkFaults(cut="up"), "cut=up: want requests, replies or both"),
        (LinkFaults(drop=("pods",)), "drop=pods: want of lease, node-status, pod-status, unbind"),
        (LinkFaults(loss=2.0), "loss=2: want a chance"),
        (LinkFaults(late={"pods": 1.0}), "late=pods: want of lease, node-status, pod-status, unbind"),
    ],
)
def test_what_no_link_can_have_is_refused_by_name(faults, message):
    with pytest.raises(ValueError, match=message):
        faults.check()
