"""The page's server over a mesh that is made up: changes of pods and event lines, as many as a test wants, and nothing else."""

import asyncio
import json
from types import SimpleNamespace

import msgspec

from lab.ui.jobs import Jobs
from lab.ui.lines import entry_of
from lab.ui.live import Live
from lab.ui.runs import Runs
from lab.ui.server import Parts, Server, Settings
from lab.ui.session import Sessions
from services.api.wire import WatchEvent
from services.client.discovery import ServedKind
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
    document = pod(name, f"uid-{rv % 3000}", phase=("Pending", "Running", "Failed")[(rv + rv // 3000) % 3])
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


class MadeUp:
    """What follows the mesh, and the application that serves it to pages."""

    def __init__(self, folder):
        self.api = Api()
        self.live = Live(Place(), Rest(), lambda: self.api)
        parts = Parts(Runs([], self.live), Jobs([], folder, lambda job: None))
        self.server = Server(Sessions(TOKEN, KEY, KEY), Settings("0"), parts)
        self.rv = 1

    async def step(self):
        """Change some pods, and write as many lines."""
        await self.api.queue.put([change(self.rv + 1 + number) for number in range(STEP)])
        self.rv += STEP
        self.live.take_lines([line(self.rv + number) for number in range(STEP)])
        self.live.flush()
        await asyncio.sleep(0)

    async def settle(self):
        """Wait until the watch has brought all, and send it."""
        while self.api.seen < self.rv - 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        self.live.flush()
