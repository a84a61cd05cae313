"""Pods of a trace that restart always: their time over, they go, and their names are their successors'."""

import asyncio
import random

import pytest

from lab.exchange.stream import Runtime
from lab.exchange.traces.lifecycles import LifecycleGate
from lab.exchange.traces.runs import GATE, LIFECYCLE
from lab.scenarios.simulation import simloop
from services.api.errors import NotFound
from services.api.identity import ADMIN
from services.api.kinds.pod import RUN
from services.api.meta import Key
from services.client.client import Client
from tests.component.apiserver_fake.test_server import LoopClock, Machine

OWNER = ("apps/v1.StatefulSet", "default", "db")
KEY = Key("default", "db-0")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "db-0", "namespace": "default", "annotations": {LIFECYCLE: "apps/v1.StatefulSet default/db"}},
    "spec": {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": GATE}]},
}


def with_gate(scenario, *lives):
    """Run a scenario beside a gate that knows so many lives of the owner's pods."""

    async def whole():
        async with Machine().server() as server:
            api, clock = server.api_for(ADMIN), LoopClock()
            gate = LifecycleGate(api, clock, random.Random(1), [Runtime(OWNER, "", lives)])
            running = asyncio.ensure_future(gate.run())
            await gate.wait_until_synced()
            try:
                return await scenario(Client(api, clock, random.Random(2)), gate)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    return simloop.run(whole())


async def runs(client):
    """Create the pod and have it run; return its uid."""
    made = await client.create("pods", POD)
    await asyncio.sleep(1)
    await client.patch("pods", KEY, {"status": {"phase": "Running"}}, subresource="status")
    return made["metadata"]["uid"]


def test_a_pod_that_restarts_always_goes_when_its_time_is_over():
    async def scenario(client, gate):
        await runs(client)
        await asyncio.sleep(9)
        there = await client.get("pods", KEY)
        await asyncio.sleep(2)
        with pytest.raises(NotFound):
            await client.get("pods", KEY)
        return there, gate.failures, gate._known

    there, failures, known = with_gate(scenario, (0.0, 10.0))

    assert "schedulingGates" not in there["spec"]
    assert "forever" == there["metadata"]["annotations"][RUN]
    assert ([], set()) == (failures, known)


def test_a_successor_of_the_same_name_lives_its_own_time():
    async def scenario(client, gate):
        first = await runs(client)
        await asyncio.sleep(3)
        await client.delete("pods", KEY, grace_period_s=0)
        second = await runs(client)
        await asyncio.sleep(10)
        return first, second, (await client.get("pods", KEY))["metadata"]["uid"], gate.failures

    first, second, there, failures = with_gate(scenario, (0.0, 10.0), (0.0, 3600.0))

    assert first != second == there
    assert [] == failures
