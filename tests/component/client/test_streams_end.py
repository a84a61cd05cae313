"""A stream that breaks in the very moment in which its process ends must not keep the process."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from services.api.wire import Request, WatchRequest
from services.client.channel import STREAM_TAKEN, Link
from services.client.mutate_stream import Calls
from services.client.rpc import end
from services.client.watch_stream import Watches
from services.runtime.real import RealClock, seeded_random


class BreakingStream:
    """A stream that is connected, takes every write, and breaks on demand."""

    def __init__(self, broken: asyncio.Event) -> None:
        self._broken = broken

    async def initial_metadata(self) -> dict[str, str]:
        return dict(STREAM_TAKEN)

    async def wait_for_connection(self) -> None:
        return None

    async def write(self, message: Any) -> None:
        return None

    async def read(self) -> Any:
        await self._broken.wait()
        self._broken.clear()
        raise ConnectionError("cut")

    def cancel(self) -> bool:
        return True


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("kind", [Calls, Watches])
def test_a_stream_that_is_cancelled_while_it_breaks_ends(kind, turns):
    async def act() -> bool:
        broken = asyncio.Event()
        link = Link("127.0.0.1:1", "", RealClock(), seeded_random(1))
        link.stub = SimpleNamespace(
            Mutate=lambda metadata: BreakingStream(broken), Watch=lambda metadata: BreakingStream(broken)
        )
        streams = kind(link)
        running = asyncio.create_task(streams.run())
        asking = asyncio.create_task(_use(streams))
        for _ in range(5):
            await asyncio.sleep(0)
        broken.set()
        # After some turns the reader has failed and its group is leaving, but has not left yet.
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(5.0):
            await end([running])
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await link.channel.close()
        return running.done()

    assert asyncio.run(act())


async def _use(streams: Any) -> None:
    if isinstance(streams, Calls):
        await streams.call(Request(verb="get", resource="pods", namespace="default", name="p"), "", 60.0)
        return
    async for _ in streams.watch(WatchRequest(resource="pods"), ""):
        pass
