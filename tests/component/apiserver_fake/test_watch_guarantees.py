"""Acceptance scenarios of watches in virtual time: what clients received is held against the commit log by I15's judge."""

import asyncio
import hashlib
import random
from contextlib import suppress

import msgspec
import pytest

from apiserver_fake.storage import watch_hub
from apiserver_fake.storage.writer import Operation
from lab.scenarios.invariants.i15_streams import REASONS, Stream
from lab.scenarios.invariants.view import View, matcher
from lab.scenarios.simulation import simloop
from services.api.resources import resources
from services.api.wire import Request, Response, WatchRequest
from services.telemetry.eventlog import Line
from tests.component.apiserver_fake.test_server import ANN, Machine, create, listed, patch

CONFIGMAPS = resources()["configmaps"]
GROUP = 20


def view_of(machine):
    """Return what the commit lines of a machine's whole life say, each once."""
    view, known = View(), 0
    for line in map(msgspec.json.Decoder(Line).decode, machine.events.dump().splitlines()):
        if line.ev == "store.commit" and line.rv > known:
            view.take(line)
            known = line.rv
    return view


def judge(view, start, events, sha256_of):
    """Return what is wrong with a stream."""
    stream, wrong = Stream(view, "ConfigMap", matcher("", "", ""), start), []
    for event in events:
        if event.type == "BOOKMARK":
            wrong += stream.mark(event.rv, ends_initial=event.initial_events_end)
        else:
            wrong += stream.event(event.type, event.namespace, event.name, event.rv, sha256_of(event.body))
    return wrong


def sha256_of(body):
    return hashlib.sha256(body).hexdigest()


async def follow(api, events, start, pause_s=0.0):
    batches = api.watch(WatchRequest(resource="configmaps", resource_version=str(start)))
    with suppress(asyncio.CancelledError):
        async for batch in batches:
            events.extend(batch)
            await asyncio.sleep(pause_s)


def test_as_15_a_starved_stream_is_complete_or_cut_and_never_thinned(monkeypatch):
    monkeypatch.setattr(watch_hub, "BOOKMARK_S", 0.2)
    machine = Machine(3)

    async def scenario():
        async with machine.server(watch_queue_events=150) as server:
            api = server.api_for(ANN)
            for number in range(10):
                await create(api, f"p{number}")
            start, streams = server.store.rv, [[] for _ in range(4)]
            tasks = [
                asyncio.create_task(follow(api, events, start, 0.0 if place else 1.0))
                for place, events in enumerate(streams)
            ]
            for step in range(600):
                await patch(api, f"p{step % 10}", {"data": {"k": str(step)}})
                await asyncio.sleep(0.009)
            await asyncio.sleep(5)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks)
            view = view_of(machine)
            for events in streams:
                assert judge(view, start, events, sha256_of) == []
                assert sum(event.type == "BOOKMARK" for event in events) > 3
            lengths = [sum(event.type != "BOOKMARK" for event in events) for events in streams]
            assert lengths[1:] == [600] * 3
            closed = {line["data"]["reason"] for line in machine.lines("watch.close")}
            assert (lengths[0] == 600) == ("SlowWatcher" not in closed)

    simloop.run(scenario(), seed=3)


@pytest.mark.parametrize("seed", range(2))
def test_as_18_every_list_and_bookmark_is_at_the_end_of_a_group_over_kills(seed, monkeypatch):
    monkeypatch.setattr(watch_hub, "BOOKMARK_S", 0.05)
    machine, dice, groups = Machine(seed), random.Random(seed), iter(range(10_000))
    lists, chains = [], [[] for _ in range(4)]

    async def scenario():
        for _ in range(6):
            async with machine.server() as server:
                api = server.api_for(ANN)
                by_group = whole_groups(msgspec.json.decode((await listed(api)).body)["items"])
                assert set(by_group.values()) <= {GROUP}, "a group is whole or absent after a recovery"
                tasks = [asyncio.create_task(group_writer(server))]
                for chain in chains:
                    received = [event.rv for stream in chain for event in stream[1]]
                    # Any version that was ever given out, also one inside a group.
                    start = dice.choice(received[-40:]) if received else server.store.rv
                    chain.append((start, []))
                    tasks += [asyncio.create_task(follow(api, chain[-1][1], start)), asyncio.create_task(lister(api))]
                await asyncio.sleep(dice.uniform(0.2, 0.5))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def group_writer(server):
        while True:
            number = next(groups)

            def plan(staged, number=number):
                for place in range(GROUP):
                    name = f"g{number:04d}-{place:02d}"
                    meta = {"name": name, "namespace": "default", "uid": name}
                    staged.put(CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
                return Response(code=201, rv=staged.rv)

            loop = asyncio.get_running_loop()
            await server.writer.submit(Operation(plan, loop.create_future(), loop.time() + 10))
            await asyncio.sleep(0.019)

    async def lister(api):
        while True:
            found = await api.call(Request(verb="list", resource="configmaps", limit=dice.choice([0, 7])))
            lists.append(found.rv)
            await asyncio.sleep(0.01)

    simloop.run(scenario(), seed=seed)
    view = view_of(machine)
    assert len(lists) > 100
    assert [rv for rv in lists if rv in view.by_rv and view.by_rv[rv].group_end != rv] == []
    streams = [stream for chain in chains for stream in chain]
    assert [wrong for start, events in streams for wrong in judge(view, start, events, sha256_of)] == []
    starts = [start for start, _ in streams]
    assert any(start in view.by_rv and view.by_rv[start].group_end != start for start in starts)
    assert sum(event.type == "BOOKMARK" for _, events in streams for event in events) > 20
    assert {line["data"]["reason"] for line in machine.lines("watch.close")} <= set(REASONS)


def whole_groups(items):
    counts = {}
    for item in items:
        group, _, place = item["metadata"]["name"].partition("-")
        if place:
            counts[group] = counts.get(group, 0) + 1
    return counts
