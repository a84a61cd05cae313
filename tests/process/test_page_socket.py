"""A page that does not read: what it misses it is told, what it shows afterwards is the state, and the mesh goes on (check 22)."""

import asyncio
import json
from types import SimpleNamespace

import aiohttp
import msgspec
import numpy as np
from aiohttp import web

from services.api.wire import WatchEvent
from services.client.discovery import ServedKind
from services.recordings import frames
from services.ui.jobs import Jobs
from services.ui.lines import entry_of
from services.ui.live import Live
from services.ui.outbox import BUDGET_BYTES
from services.ui.runs import Runs
from services.ui.server import Parts, Server, Settings
from services.ui.session import COOKIE, Sessions
from tests.unit.recordings.histories import pod

TOKEN, KEY = "t" * 64, "c" * 64
PODS = ServedKind("Pod", "pods", "pod", ("po",), "", "/api/v1", True, True)
STEP = 200


class Place:
    """A mesh without processes."""

    access = SimpleNamespace(events=None, spans=None, switches=(), reader="")
    can_kill = False

    async def status(self):
        return {"processes": [], "faults": []}


class Rest:
    async def kinds(self, now_s):
        return [PODS]


class Api:
    """A server of pods; `seen` events were taken by the one who watches."""

    def __init__(self):
        self.queue, self.seen = asyncio.Queue(), 0

    async def watch(self, request):
        yield [WatchEvent(type="BOOKMARK", rv=1, initial_events_end=True)]
        while True:
            batch = await self.queue.get()
            yield batch
            self.seen += len(batch)


def change(rv):
    name = f"pod-{rv % 3000}"
    document = pod(name, f"uid-{rv % 3000}", phase=("Pending", "Running", "Failed")[rv % 3])
    return WatchEvent(
        type="MODIFIED",
        resource="pods",
        namespace="shop",
        name=name,
        uid=f"uid-{rv % 3000}",
        rv=rv,
        body=msgspec.json.encode(document),
    )


def line(number):
    data = {
        "v": 1,
        "seq": number,
        "mono_ns": number,
        "wall": f"2026-01-01T00:00:{number / 1e6:09.6f}Z",
        "comp": "apiserver",
        "inc": "0",
        "ev": "x",
        "data": {"text": "x" * 1000},
    }
    return entry_of(json.dumps(data).encode())


def test_22_a_page_that_does_not_read_has_the_state_afterwards_and_slows_nothing(tmp_path):
    async def main():
        api = Api()
        live = Live(Place(), Rest(), lambda: api)
        server = Server(
            Sessions(TOKEN, KEY, KEY), Settings("0"), Parts(Runs([], live), Jobs([], tmp_path, lambda job: None))
        )
        runner = web.AppRunner(server.application())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        following = asyncio.create_task(live.run())
        mirror, gaps, lines, rv = frames.Mirror(), [], 0, 1
        try:
            async with aiohttp.ClientSession() as http:
                page = await http.ws_connect(
                    f"http://{host}:{port}/ui/v1/socket", headers={"Cookie": f"{COOKIE}={KEY}"}, max_msg_size=0
                )
                await page.send_str('{"t": "sub", "run": "live"}')
                while not live.listeners:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                (listener,) = live.listeners
                page._response.connection.protocol.pause_reading()
                while not (listener.outbox.cut_lines_total and listener.outbox.merged_total):
                    await api.queue.put([change(rv := rv + 1) for _ in range(STEP)])
                    live.take_lines([line(rv + number) for number in range(STEP)])
                    live.flush()
                    await asyncio.sleep(0)
                while api.seen < rv - 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                assert rv == live.model.rv, "the watch goes on while the page waits"
                assert listener.outbox.waiting_bytes <= BUDGET_BYTES
                live.flush()
                page._response.connection.protocol.resume_reading()
                async for message in page:
                    frame = mirror.take(message.data)
                    gaps += [frame.header] if frame.kind == frames.GAP else []
                    lines += len(frame.header["lines"]) if frame.kind == frames.LINES else 0
                    if (
                        frame.kind <= frames.DELTA
                        and frame.rv == rv
                        and mirror.strings == live.model.strings
                        and _same(live, mirror)
                    ):
                        break
                await page.close()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await runner.cleanup()
        return gaps, lines, rv

    async def bounded():
        async with asyncio.timeout(60):
            return await main()

    gaps, lines, rv = asyncio.run(bounded())
    assert gaps
    assert lines + sum(gap["lines"] for gap in gaps) == rv - 1


def _same(live, mirror):
    pods = live.model.columns("pods")
    return len(pods["name"]) == len(mirror.tables["pods"]["name"]) and all(
        np.array_equal(values, mirror.tables["pods"][name]) for name, values in pods.items()
    )
