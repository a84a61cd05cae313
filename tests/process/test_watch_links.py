"""Watches over connections that fall silent without closing, and over those that are only quiet (L-KA)."""

import asyncio
import os
from contextlib import AsyncExitStack, suppress

import pytest

from apiserver_fake.grpc import server as grpc_server
from services.api.errors import UnknownOutcome
from services.api.identity import ADMIN
from services.api.wire import WatchRequest
from services.client import channel
from tests.process.test_apiserver_grpc import a_client, a_create, a_server, until

NOTICED_S = 25.0
"""Pings find out after 15 s; without them a client looks at its own silence after 30 s, and a server never does."""
RESUMED_S = 15.0
"""The spec's 5 s on a quiet machine: the longest back-off."""
IDLE_S = float(os.environ.get("KEPLAB_IDLE_WATCH_S", "0"))
"""How long a quiet watch is left alone; AS-14 in full is 600 s (`make watch-links`)."""


class Proxy:
    """Carries TCP to a port; what comes from a side that is swallowed arrives only after the heal, and nothing closes."""

    def __init__(self, port):
        self.port = port
        self.carries = {"client": asyncio.Event(), "server": asyncio.Event()}
        self.heal()

    async def start(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)
        with suppress(OSError):
            await asyncio.gather(self._carry("client", reader, up_writer), self._carry("server", up_reader, writer))

    async def _carry(self, side, reader, writer):
        while data := await reader.read(65536):
            await self.carries[side].wait()
            writer.write(data)
        await self.carries[side].wait()
        writer.close()

    def swallow(self, *sides):
        for side in sides:
            self.carries[side].clear()

    def heal(self):
        for carries in self.carries.values():
            carries.set()


class Link:
    """A server, a proxy before it, and a client with one watch through it that resumes."""

    def __init__(self, server, proxy, transport):
        self.server, self.proxy, self.api = server, proxy, transport.api()
        self.received, self.lost = [], 0
        self.position = str(server.server.store.rv)

    async def follow(self):
        while True:
            try:
                request = WatchRequest(resource="configmaps", resource_version=self.position, allow_bookmarks=False)
                async for batch in self.api.watch(request):
                    self.received += [event.name for event in batch]
                    self.position = str(batch[-1].rv)
            except UnknownOutcome:
                self.lost += 1

    @property
    def watches(self):
        return self.server.server.hub.counts().get("configmaps", 0)


async def a_link(stack, tmp_path, name, *sides):
    folder = tmp_path / name
    folder.mkdir()
    server = await stack.enter_async_context(a_server(folder, rest_port=None))
    proxy = Proxy(server.grpc_port)
    server.grpc_port = await proxy.start()
    transport = await stack.enter_async_context(a_client(server, admin="adm"))
    link = Link(server, proxy, transport)
    stack.callback(asyncio.create_task(link.follow()).cancel)
    async with asyncio.timeout(10):
        await until(lambda: link.watches == 1)
    proxy.swallow(*sides)
    return link


@pytest.mark.timeout(90 + IDLE_S)
def test_as_14_each_side_notices_a_link_that_swallows_and_only_with_pings(tmp_path, monkeypatch):
    async def scenario():
        async with AsyncExitStack() as stack:
            with monkeypatch.context() as patched:
                patched.setattr(grpc_server, "SERVER_OPTIONS", (("grpc.so_reuseport", 0),))
                patched.setattr(channel, "CHANNEL_OPTIONS", ())
                without_pings = await a_link(stack, tmp_path, "without", "client", "server")
            quiet = await a_link(stack, tmp_path, "quiet")
            links = [
                await a_link(stack, tmp_path, "both", "client", "server"),
                await a_link(stack, tmp_path, "up", "client"),
                await a_link(stack, tmp_path, "down", "server"),
            ]
            async with asyncio.timeout(NOTICED_S):
                await until(lambda: all(link.lost and link.watches == 0 for link in links))
            assert (without_pings.lost, without_pings.watches) == (0, 1)
            assert (quiet.lost, quiet.watches) == (0, 1)
            for link in links:
                link.proxy.heal()
                await link.server.server.api_for(ADMIN).call(a_create("after"))
            async with asyncio.timeout(RESUMED_S):
                await until(lambda: all(link.received == ["after"] for link in links))
            await asyncio.sleep(IDLE_S)
            await quiet.server.server.api_for(ADMIN).call(a_create("late"))
            async with asyncio.timeout(10):
                await until(lambda: quiet.received == ["late"])
            assert quiet.lost == 0

    asyncio.run(scenario())
