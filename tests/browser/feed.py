"""A server that looks like `keplab ui` to the page, over columns that are made up: for pictures, budgets and work on pages.

python -m tests.browser.feed --nodes 5000 --pods 100000 --events 1000 --port 8765
"""

import argparse
import asyncio
import mimetypes
import sys
from pathlib import Path

from aiohttp import WSMsgType, web

from lab.ui.lines import KEPT
from lab.ui.live import LINES_A_FRAME
from tests.browser import frames
from tests.browser.big_cluster import START, BigCluster

STATIC = Path(__file__).resolve().parents[2] / "lab/ui/static"
mimetypes.add_type("text/javascript", ".mjs")


class Feed:
    """The answers of one made-up mesh. `static`: the folder of the page's files."""

    def __init__(self, cluster, events, interval=0.05, static=STATIC):
        self.cluster, self.events, self.interval = cluster, events, interval
        self.static = static
        self.sockets = set()
        self.states = {}
        self.seq = 0
        self.recording_error = ""

    def app(self):
        app = web.Application()
        app.router.add_get("/ui/v1/meta", self.meta)
        app.router.add_get("/ui/v1/socket", self.socket)
        app.router.add_get("/ui/v1/state", self.state)
        app.router.add_get("/ui/v1/history", self.history)
        app.router.add_get("/", self.index)
        app.router.add_static("/", self.static)
        app.cleanup_ctx.append(self.running)
        return app

    async def running(self, app):
        task = asyncio.create_task(self.send())
        yield
        task.cancel()

    async def index(self, request):
        return web.FileResponse(self.static / "index.html")

    async def meta(self, request):
        run = {
            "id": "live",
            "title": "live",
            "kind": "live",
            "from_rv": 0,
            "to_rv": self.cluster.rv,
            "t0": 0,
            "t1": self.cluster.time,
            "wall_s": START,
            "recording_error": self.recording_error,
        }
        return web.json_response(
            {
                "version": "0.1.0",
                "flags": {"write": False, "break": False},
                "csrf": "x",
                "runs": [run],
                "switches": [],
                "pages": [],
            }
        )

    async def state(self, request):
        rv = int(float(request.query["rv"]))
        known = max((each for each in self.states if each <= rv), default=min(self.states, default=0))
        return web.Response(body=self.states.get(known, b""), content_type="application/octet-stream")

    async def history(self, request):
        return web.json_response({"t": [], "rv": []})

    def lines(self, many=3):
        made = []
        for i in range(many):
            self.seq += 1
            node = f"n-{(self.seq * 37) % len(self.cluster.nodes['name']):04d}"
            made.append({"seq": self.seq, "mono_ns": int((self.cluster.time + i * 0.01) * 1e9), "comp": "scheduler-0", "inc": "1", "ev": "sched.attempt", "rv": self.cluster.rv, "node": node,
                         "obj": {"kind": "Pod", "ns": "shop", "name": f"web-{self.seq}", "uid": ""}, "data": {"outcome": "scheduled"}})  # fmt: skip
            if self.seq % 300 == 0:
                made.append({"seq": self.seq, "mono_ns": int(self.cluster.time * 1e9), "comp": "supervisor", "inc": "1", "ev": "fault.inject", "rv": self.cluster.rv,
                             "data": {"what": "kill", "target": "scheduler-0", "for_s": 0}})  # fmt: skip
        return frames.frame(frames.LINES, {"lines": made}, rv=self.cluster.rv, time=self.cluster.time)

    async def socket(self, request):
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            if message.type != WSMsgType.TEXT or message.json().get("t") != "sub":
                continue
            for each in self.cluster.first():
                await socket.send_bytes(each)
            # A server sends the newest lines to a page that opens: its lists are full from the beginning.
            for _ in range(KEPT // LINES_A_FRAME) if self.events else ():
                await socket.send_bytes(self.lines(LINES_A_FRAME))
            self.sockets.add(socket)
        self.sockets.discard(socket)
        return socket

    async def send(self):
        turn = 0
        while True:
            await asyncio.sleep(self.interval)
            if not self.events:
                continue
            made = [*self.cluster.changes(max(1, int(self.events * self.interval)), self.interval), self.lines()]
            if turn % 20 == 0 and len(self.states) < 30:
                self.states[self.cluster.rv] = frames.stream(self.cluster.first())
            turn += 1
            for socket in list(self.sockets):
                for each in made:
                    await socket.send_bytes(each)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--events", type=int, default=50, help="changes of pods a second")
    parser.add_argument("--port", type=int, default=8765)
    words = parser.parse_args()
    sys.stdout.write(f"http://127.0.0.1:{words.port}/\n")
    web.run_app(
        Feed(BigCluster(words.nodes, words.pods), words.events).app(), host="127.0.0.1", port=words.port, print=None
    )


if __name__ == "__main__":
    main()
