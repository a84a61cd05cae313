"""`keplab ui` as a process, and a browser's side of it: session, requests, frames."""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp

from lab.recordings import frames

ROOT = Path(__file__).parents[2]
READY_MAX_S = 30.0


class Answer:
    """An answer: `code`, `headers`, `text`; `json` decoded."""

    def __init__(self, code, headers, body):
        self.code, self.headers, self.body = code, headers, body

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


class PageServer:
    """One life of `keplab ui`; `with` begins its session."""

    def __init__(self, *words, cwd=None, port=0):
        self._words, self._cwd, self._port = words, cwd, port
        self.cookie = self.csrf = ""

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lab.cli", "ui", "--port", str(self._port), *map(str, self._words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self._cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.process.stderr.read()
        self.base, _, self.token = self.address.partition("/ui/#t=")
        if "--token-file" in self._words:
            self.token = Path(self._words[self._words.index("--token-file") + 1]).read_text()
        self.port = int(self.base.rpartition(":")[2])
        answer = self.ask("POST", "session", {"token": self.token})
        assert 204 == answer.code, answer.text
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        self.set_cookie = answer.headers["Set-Cookie"]
        self.csrf = self.get("meta")["csrf"]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        _, self.errors = self.process.communicate(timeout=20)

    def ask(self, method, path, body=None, **headers):
        """Return the answer to any request below /ui/v1; headers may replace the page's own."""
        own = {"Content-Type": "application/json"}
        if self.cookie:
            own |= {"Cookie": self.cookie, "X-Keplab-CSRF": self.csrf}
        sent = {name.replace("_", "-"): value for name, value in (own | headers).items() if value is not None}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        url = path if path.startswith("http") else f"{self.base}/ui/v1/{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, sent, method=method), timeout=30) as reply:
                return Answer(reply.status, reply.headers, reply.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())

    def get(self, path):
        """Return the JSON there."""
        answer = self.ask("GET", path)
        assert 200 == answer.code, answer.text
        return answer.json

    def eventually(self, path, holds):
        """Return the JSON there once it is so; what is not found yet is asked for again."""
        deadline = time.monotonic() + READY_MAX_S
        while (answer := self.ask("GET", path)).code == 404 or not holds(self.get(path)):
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.1)
        return self.get(path)

    def watch(self, until, message=None, headers=None):
        """Return all frames of a socket up to the first after which `until(frame, mirror)` holds, and the mirror."""
        return asyncio.run(self._watch(until, message or {"t": "sub", "run": "live"}, headers or {}))

    async def _watch(self, until, message, headers):
        url = f"{self.base}/ui/v1/socket"
        mirror, seen = frames.Mirror(), []
        async with asyncio.timeout(READY_MAX_S), aiohttp.ClientSession() as http:
            sent = {"Cookie": self.cookie, **headers}
            async with http.ws_connect(url, headers=sent, max_msg_size=0) as socket:
                await socket.send_str(json.dumps(message))
                async for each in socket:
                    if each.type == aiohttp.WSMsgType.TEXT:
                        frame = json.loads(each.data)
                    else:
                        frame = mirror.take(each.data)
                    seen.append(frame)
                    if until(frame, mirror):
                        return seen, mirror
        raise AssertionError("the socket was closed")
