"""Watches that begin with much, as clients over connections have them: pieces in turn, the state at one version."""

import asyncio
import random

import msgspec
import pytest

from apiserver_fake.storage.backlog import SMALL, Events
from apiserver_fake.storage.watch_starts import AT_ONCE, AT_ONCE_PER_IDENTITY
from lab.scenarios.simulation import simloop
from services.api.errors import Forbidden
from services.api.identity import ANONYMOUS, Identity
from services.api.wire import Request, WatchRequest
from tests.component.apiserver_fake.test_server import ANN, BOB, Machine, create, listed, patch

COUNT = SMALL + 300
STREAMING = {"send_initial_events": True, "resource_version_match": "NotOlderThan"}
BLOCKED_S = 10.0


async def filled(server):
    api = server.api_for(ANN)
    await asyncio.gather(*(create(api, f"p{number:04d}") for number in range(COUNT)))
    return api


async def stream(server, identity, **request):
    """Open a watch as the REST server does, once it is its turn."""
    asked = WatchRequest(resource="configmaps", **request)
    place = await server.watches.begin(identity, asked)
    return server.streaming_api(identity, place, BLOCKED_S, lambda: None).watch(asked)


@pytest.mark.parametrize("seed", range(2))
def test_as_16_streaming_starts_under_writes_equal_the_list_of_their_version(seed):
    async def scenario():
        async with Machine(seed).server() as server:
            api, dice, most, is_over = await filled(server), random.Random(seed), [0], False

            async def write():
                step = 0
                while not is_over:
                    step += 1
                    await patch(api, f"p{dice.randrange(COUNT):04d}", {"data": {"k": str(step)}})

            async def follow(identity):
                seen, mark, listing = [], None, None
                batches = await stream(server, identity, **STREAMING)
                async for batch in batches:
                    most[0] = max(most[0], server.starts.held)
                    seen += batch
                    await asyncio.sleep(0.003)
                    if mark is None and seen[-1].initial_events_end:
                        mark = len(seen) - 1
                        rv = str(seen[mark].rv)
                        exact = {"resource_version": rv, "resource_version_match": "Exact"}
                        listing = msgspec.json.decode((await listed(api, **exact)).body)["items"]
                    if mark is not None and len(seen) > mark + 20:
                        break
                await batches.aclose()
                assert [msgspec.json.decode(event.body) for event in seen[:mark]] == listing
                assert sum(event.initial_events_end for event in seen) == 1
                changes = [event.rv for event in seen[mark + 1 :] if event.type != "BOOKMARK"]
                assert changes == list(range(seen[mark].rv + 1, seen[mark].rv + 1 + len(changes)))

            writing = asyncio.create_task(write())
            await asyncio.gather(*(follow(Identity(f"user:{n % 7}", ANN.groups)) for n in range(30)))
            is_over = True
            await writing
            assert AT_ONCE_PER_IDENTITY < most[0] <= AT_ONCE
            assert (server.starts.held, server.starts.waiting) == (0, 0)

    simloop.run(scenario(), seed=seed)


def test_two_hundred_stalled_starts_hold_no_other_start_up_and_share_what_they_were_given():
    async def scenario():
        async with Machine().server() as server:
            await filled(server)
            firsts = []

            async def stall():
                batches = await stream(server, BOB)
                firsts.append(await anext(batches))
                await asyncio.sleep(3600)
                await batches.aclose()

            stalled = [asyncio.create_task(stall()) for _ in range(20)]
            loop = asyncio.get_running_loop()
            await asyncio.sleep(0.1)
            begun = loop.time()
            batches, seen = await stream(server, ANN), 0
            while seen < COUNT:
                seen += len(await anext(batches))
            assert loop.time() - begun < 1.0
            await asyncio.sleep(5.0)
            assert len(firsts) == 20
            assert all(first is firsts[0] for first in firsts)
            assert isinstance(firsts[0], Events)
            for task in stalled:
                task.cancel()
            await asyncio.gather(*stalled, return_exceptions=True)

    simloop.run(scenario())


def test_l_ws_a_send_that_blocks_for_ten_seconds_cuts_the_watch_as_slow():
    async def scenario():
        machine = Machine()
        async with machine.server() as server:
            await filled(server)
            batches = await stream(server, ANN)
            await anext(batches)
            await asyncio.sleep(BLOCKED_S + 0.1)
            assert server.hub.counts() == {}
            assert [line["data"]["reason"] for line in machine.lines("watch.close")] == ["SlowWatcher"]
            await batches.aclose()
            assert (server.starts.held, server.hub.queued_bytes) == (0, 0)

    simloop.run(scenario())


def test_a_watch_with_little_or_from_now_on_waits_for_no_turn_and_a_refused_one_is_refused_at_once():
    async def scenario():
        async with Machine().server() as server:
            await filled(server)
            held = [
                await server.watches.begin(ANN, WatchRequest(resource="configmaps"))
                for _ in range(AT_ONCE_PER_IDENTITY)
            ]
            few = WatchRequest(resource="namespaces")
            named = WatchRequest(resource="configmaps", namespace="default", field_selector="metadata.name=p0001")
            now = WatchRequest(resource="configmaps", resource_version=str(server.store.rv))
            assert [await server.watches.begin(ANN, each) for each in (few, named, now)] == [None] * 3
            with pytest.raises(Forbidden):
                await server.watches.begin(ANONYMOUS, WatchRequest(resource="configmaps"))
            many_missed = WatchRequest(resource="configmaps", resource_version=str(server.store.rv - COUNT))
            waiting = asyncio.create_task(server.watches.begin(ANN, many_missed))
            await asyncio.sleep(1)
            assert not waiting.done()
            held[0].leave()
            assert (await waiting).is_held

    simloop.run(scenario())


def test_other_calls_have_their_turn_between_two_pieces():
    async def scenario():
        async with Machine().server() as server:
            api = await filled(server)
            batches, answered = await stream(server, ANN), []

            async def ask():
                while True:
                    await api.call(Request(verb="get", resource="configmaps", namespace="default", name="p0001"))
                    answered.append(1)
                    await asyncio.sleep(0)

            asking = asyncio.create_task(ask())
            for _ in range(COUNT // 100):
                await anext(batches)
            asking.cancel()
            assert len(answered) >= COUNT // 200
            await batches.aclose()

    simloop.run(scenario())
