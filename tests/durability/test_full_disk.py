"""A server alone on a disk that is full: read-only, and by itself writable again (S16, FM-A7, AS-50)."""

import asyncio
import random
import time

import msgspec
import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.rest.health import report
from apiserver_fake.wiring import build
from services.api.identity import ADMIN
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest
from services.runtime.real import MemoryDisk, NoTransport, RealClock
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import Tracer

PAD = "x" * 15_000


def a_server(directory):
    clock, dice = RealClock(), random.Random(1)
    tracer = Tracer("apiserver", clock=clock, random=dice)
    seams = Seams("apiserver", clock, dice, MemoryDisk(), NoTransport(), NullEventLog(), tracer, Switches())
    return build(
        ApiServerConfig(engine="sqlite", data_dir=str(directory), grpc_port=None, rest_port=None), seams
    ).server


def a_create(name):
    body = msgspec.json.encode({"metadata": {"name": name}, "data": {"pad": PAD}})
    return Request(verb="create", resource="configmaps", namespace="default", body=body)


async def fill(api):
    """Create until the disk is full; return the names that were acknowledged."""
    for number in range(10_000):
        name = f"p{random.getrandbits(64):x}-{number}"
        response = await api.call(a_create(name))
        if not response.is_ok:
            return response
        filled.append(name)
    raise AssertionError("the disk is never full")


filled: list[str] = []


@pytest.mark.parametrize("at_once", [1, 20])
def test_as_50_s16_fm_a7_a_full_disk_refuses_writes_serves_the_rest_and_heals_by_itself(tmp_path, at_once):
    async def scenario():
        filled.clear()
        server = a_server(tmp_path)
        running = asyncio.create_task(server.run())
        await server.wait_until_ready()
        api, seen = server.api_for(ADMIN), []

        async def follow():
            async for batch in api.watch(WatchRequest(resource="configmaps")):
                seen.extend(event.name for event in batch if event.type == "ADDED")

        following = asyncio.create_task(follow())
        database = server._journal._database
        for _ in range(3):
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            database.execute(f"PRAGMA max_page_count={pages + 100}")
            refusals = await asyncio.gather(*(fill(api) for _ in range(at_once)))

            assert {(each.code, each.error().reason, each.error().retry_after_s) for each in refusals} == {
                (503, "StoreReadOnly", 5)
            }
            status, text = report(
                "readyz", is_ready=server.is_ready, is_verbose=True, excluded=(), read_only=server.writer.read_only
            )
            assert status == 200
            assert "warn: StoreReadOnly since 20" in text
            assert "database or disk is full" in text
            metrics = server.metrics()
            assert metrics["keplab_store_read_only"] == 1
            assert abs(metrics["keplab_store_read_only_since_seconds"] - time.time()) < 60
            listed = await api.call(Request(verb="list", resource="configmaps"))
            assert {item["metadata"]["name"] for item in msgspec.json.decode(listed.body)["items"]} >= set(filled)
            assert (await api.call(a_create("late"))).code == 503

            database.execute("PRAGMA max_page_count=1000000")
            async with asyncio.timeout(3):  # what AS-50 allows
                while not (answer := await api.call(a_create(f"after-{len(filled)}"))).is_ok:
                    assert answer.code == 503
                    await asyncio.sleep(0.05)
            filled.append(f"after-{len(filled)}")
            assert server.metrics()["keplab_store_read_only"] == 0
        async with asyncio.timeout(5):
            while not set(filled) <= set(seen):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        following.cancel()
        running.cancel()
        await asyncio.gather(running, following, return_exceptions=True)

        again = a_server(tmp_path)
        running = asyncio.create_task(again.run())
        await again.wait_until_ready()
        listed = await again.api_for(ADMIN).call(Request(verb="list", resource="configmaps"))
        names = [item["metadata"]["name"] for item in msgspec.json.decode(listed.body)["items"]]
        assert sorted(set(filled)) == sorted(names)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
