"""What a process's connection to the API server says of itself."""

import asyncio
from types import SimpleNamespace

import pytest

from services.api.wire import Request, WatchRequest
from services.client.channel import STREAM_TAKEN
from services.client.rpc import RpcTransport
from services.runtime.real import RealClock, seeded_random


class Silent:
    """A stream that is connected, takes every write, and answers none."""

    async def initial_metadata(self):
        return dict(STREAM_TAKEN)

    async def wait_for_connection(self):
        return None

    async def write(self, message):
        return None

    async def read(self):
        await asyncio.Event().wait()

    def cancel(self):
        return True


def test_the_metrics_are_of_what_was_sent_and_what_has_no_answer_yet():
    async def follow(api):
        async for _ in api.watch(WatchRequest(resource="pods")):
            pass

    async def main():
        transport = RpcTransport("127.0.0.1:1", {"me": "token"}, clock=RealClock(), random=seeded_random(1))
        transport._link.stub = SimpleNamespace(Mutate=lambda metadata: Silent(), Watch=lambda metadata: Silent())
        api, before = transport.api(), transport.metrics()
        asked = [asyncio.ensure_future(api.call(Request(verb="get", resource="pods", name=name))) for name in "ab"]
        asked.append(asyncio.ensure_future(follow(api)))
        for _ in range(10):
            await asyncio.sleep(0)
        after = transport.metrics()
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await transport.close()
        return before, after

    before, after = asyncio.run(main())
    assert {
        name.removeprefix("keplab_rpc_"): (before[name], after[name]) for name in before if "duration" not in name
    } == {
        'bytes_total{direction="received"}': (0, 0),
        'bytes_total{direction="sent"}': (0, 0),
        'errors_total{reason="server"}': (0, 0),
        'errors_total{reason="unknown"}': (0, 0),
        'messages_total{direction="received"}': (0, 0),
        'messages_total{direction="sent"}': (0, 2),
        "requests_total": (0, 2),
        "batches_total": (0, 1),
        "requests_in_flight": (0, 2),
        "watches_open": (0, 1),
        "renewals_total": (0, 0),
        "reconnects_total": (0, 0),
    }


def test_a_process_is_only_whom_it_has_a_token_of():
    async def main():
        transport = RpcTransport("127.0.0.1:1", {"me": "t", "other": "u"}, clock=RealClock(), random=seeded_random(1))
        try:
            with pytest.raises(KeyError, match="this process has no token of her; it has me, other"):
                transport.api("her")
            return transport.has_credentials
        finally:
            await transport.close()

    assert asyncio.run(main())
