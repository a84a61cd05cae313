"""The simulated link and supervisor: what was sent arrives, copies come late, and the dead stay dead."""

import asyncio
import random

import pytest

from lab.scenarios.mesh import MeshPlan
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.lifetime import Lifetime
from lab.scenarios.simulation.network import Network, SimApi, SimTransport
from lab.scenarios.simulation.simulated_mesh import SimMesh
from services.api.errors import UnknownOutcome
from services.api.identity import ADMIN
from services.api.wire import Request, Response, WatchEvent, WatchRequest
from services.client.link_faults import LinkFaults

REQUEST = Request(verb="create", resource="pods", name="p", deadline_s=5.0)


class Ticks:
    """The server's end of a watch with an event every second."""

    is_over = False

    def __init__(self, notify):
        self._loop, self._notify, self._events = asyncio.get_running_loop(), notify, []
        self._rv = 0
        self._timer = self._loop.call_later(1.0, self._tick)

    def _tick(self):
        self._rv += 1
        self._events.append(WatchEvent(type="ADDED", rv=self._rv))
        self._timer = self._loop.call_later(1.0, self._tick)
        self._notify(self)

    def take(self):
        taken, self._events = self._events, []
        return taken

    def close(self):
        self.is_over = True
        self._timer.cancel()


class Echo:
    """A server that remembers when it was called and sends a watch event every second."""

    def __init__(self):
        self.calls, self.watches = [], []

    def api_for(self, identity):
        return self

    def begin(self, request):
        self.calls.append(round(asyncio.get_running_loop().time(), 3))
        return Response(code=201)

    def open_watch(self, request, notify):
        self.watches.append(Ticks(notify))
        return self.watches[-1]


def run_simulated(scenario):
    async def main():
        network, echo = Network(random.Random(1)), Echo()
        network.open(echo.api_for, Lifetime("apiserver", 1))
        life = Lifetime("client", 1)
        await scenario(network, echo, SimApi(SimTransport(network, life), ADMIN), life)

    simloop.run(main(), seed=1)


class Commits(Echo):
    """A server whose writes are answered and published at one moment, as its writer does."""

    def begin(self, request):
        answer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._commit, answer)
        return answer

    def _commit(self, answer):
        answer.set_result(Response(code=201))
        self.watches[0]._tick()


@pytest.mark.parametrize("seed", range(8))
def test_over_a_link_without_latency_an_answer_comes_after_the_event_of_its_write(seed):
    async def main():
        network, server, seen = Network(random.Random(1)), Commits(), []
        network.open(server.api_for, Lifetime("apiserver", 1))
        link = network.profile("observer")
        link.latency_min_s = link.latency_max_s = 0.0
        api = SimApi(SimTransport(network, Lifetime("observer", 1)), ADMIN)

        async def look():
            async for batch in api.watch(WatchRequest(resource="pods")):
                seen.extend(batch)

        task = asyncio.create_task(look())
        await asyncio.sleep(0.1)
        await api.call(REQUEST)
        assert 1 == len(seen)
        task.cancel()

    simloop.run(main(), seed=seed)


def test_a_request_on_the_wire_arrives_although_its_sender_is_killed():
    async def scenario(network, echo, api, life):
        network.profile("client").faults = LinkFaults(slow_s=1.0)
        task = asyncio.create_task(api.call(REQUEST))
        life.adopt(task)
        await asyncio.sleep(0.1)
        life.end()
        await asyncio.sleep(5.0)
        assert task.cancelled()
        assert len(echo.calls) == 1

    run_simulated(scenario)


def test_guarantees_fm_n5_the_copy_of_a_duplicated_request_may_come_seconds_later():
    async def scenario(network, echo, api, life):
        network.profile("client").faults = LinkFaults(duplicate=1.0)
        for _ in range(20):
            assert (await api.call(REQUEST)).code == 201
        await asyncio.sleep(5.0)
        assert len(echo.calls) == 40
        assert max(echo.calls) > 1.0

    run_simulated(scenario)


def test_guarantees_fm_n3_a_cut_of_requests_or_replies_ends_in_an_unknown_outcome():
    async def scenario(network, echo, api, life):
        network.profile("client").faults = LinkFaults(cut="requests")
        with pytest.raises(UnknownOutcome, match="within 5 s"):
            await api.call(REQUEST)
        assert echo.calls == []
        network.profile("client").faults = LinkFaults(cut="replies")
        with pytest.raises(UnknownOutcome, match="within 5 s"):
            await api.call(REQUEST)
        assert len(echo.calls) == 1

    run_simulated(scenario)


def test_a_call_under_way_learns_of_the_servers_death_at_once():
    async def scenario(network, echo, api, life):
        network.profile("client").latency_min_s = network.profile("client").latency_max_s = 1.0
        asyncio.get_running_loop().call_later(1.5, network.close)
        with pytest.raises(UnknownOutcome, match="reset"):
            await api.call(REQUEST)
        with pytest.raises(UnknownOutcome, match="refused"):
            await api.call(REQUEST)

    run_simulated(scenario)


def test_delayed_watch_events_keep_their_order_and_delay_no_answer():
    async def scenario(network, echo, api, life):
        network.profile("client").faults = LinkFaults(watch_delay_s=3.0)
        loop, seen = asyncio.get_running_loop(), []
        async for batch in api.watch(WatchRequest(resource="pods")):
            seen += [event.rv for event in batch]
            if seen[-1] == 2:
                network.profile("client").faults = LinkFaults()
                asked = loop.time()
                await api.call(REQUEST)
                assert loop.time() - asked < 0.01
            if seen[-1] == 8:
                break
        assert seen == list(range(1, 9))

    run_simulated(scenario)


def test_a_component_killed_at_its_first_line_comes_back_as_another_incarnation():
    async def main():
        mesh = SimMesh(MeshPlan(nodes=({"name": "n1", "cpu": "4"},)))
        starts = []

        def strike(line):
            if line.ev == "proc.start" and line.comp == "kubelet/h0":
                starts.append(line.inc)
                if len(starts) < 3:
                    mesh.sever("kubelet/h0")

        mesh.on_line(strike)
        await mesh.start()
        assert len(set(starts)) == 3
        assert mesh.failures == []
        await mesh.stop()

    simloop.run(main(), seed=1)


def test_a_component_killed_while_it_starts_stays_down_as_long_as_asked():
    async def main():
        mesh = SimMesh(MeshPlan(nodes=({"name": "n1", "cpu": "4"},)))
        starts = []
        mesh.on_line(lambda line: starts.append(line.mono_ns / 1e9) if line.ev == "proc.start" else None)
        starting = asyncio.create_task(mesh.start())
        await asyncio.sleep(0.01)
        for component in mesh.components():
            await mesh.kill(component, 2.0)
        await starting
        assert min(starts) > 2.0
        await mesh.stop()

    simloop.run(main(), seed=1)
