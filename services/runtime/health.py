"""Health, metrics and configuration over HTTP: /healthz /readyz /metrics /configz, and a component's own routes.

A small HTTP/1.1 responder over asyncio streams: one request a connection, GET and HEAD only. A web
framework would cost every process 28 MiB to answer four paths.
"""

import asyncio
import inspect
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from services.telemetry.metrics import Metrics, counter, gauge, render

HEAD_BYTES_MAX = 16 * 1024
REQUEST_MAX_S = 10.0


@dataclass(frozen=True)
class HttpRequest:
    """What a route sees: `params` are the `{name}` parts of its path, `query` the decoded query."""

    path: str
    params: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


HttpResponse = tuple[int, str, bytes | AsyncIterator[bytes]]
"""Status, content type, body; a body in pieces is sent as they come, and ends when the client has gone."""

Handler = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


class HealthServer:
    """Answers for one process. `port` is known after `start`."""

    def __init__(
        self,
        *,
        is_ready: Callable[[], bool],
        metrics: Callable[[], Mapping[str, float]],
        configuration: Callable[[], Mapping[str, Any]],
        routes: Sequence[tuple[str, Handler]] = (),
    ) -> None:
        self._is_ready, self._metrics, self._configuration = is_ready, metrics, configuration
        own: list[tuple[str, Handler]] = [
            ("/healthz", lambda _: (200, "text/plain", b"ok\n")),
            ("/livez", lambda _: (200, "text/plain", b"ok\n")),
            ("/readyz", self._ready),
            ("/metrics", lambda _: (200, "text/plain; version=0.0.4", render(self._metrics()))),
            ("/configz", lambda _: (200, "application/json", msgspec.json.encode(self._configuration(), enc_hook=str))),
        ]
        self._routes = [
            (re.compile("^" + re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path)) + "/?$"), handler)
            for path, handler in (*own, *routes)
        ]
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises: OSError when the port is taken."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.close()

    def _ready(self, _: HttpRequest) -> HttpResponse:
        return (200, "text/plain", b"ok\n") if self._is_ready() else (503, "text/plain", b"not ready\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_MAX_S):
                head = await reader.readuntil(b"\r\n\r\n")
                method, status, kind, body = await self._answer(head)
                length = f"Content-Length: {len(body)}\r\n" if isinstance(body, bytes) else ""
                writer.write(
                    f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\n"
                    f"{length}Connection: close\r\n\r\n".encode()
                )
                if method != "HEAD" and isinstance(body, bytes):
                    writer.write(body)
                await writer.drain()
            if method != "HEAD" and not isinstance(body, bytes):
                await _send_pieces(body, reader, writer)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the other side is slow, gone or no HTTP client; there is no one left to answer
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> tuple[str, int, str, bytes | AsyncIterator[bytes]]:
        try:
            line, *rest = head.decode("latin-1").split("\r\n")
            method, target, _ = line.split(" ", 2)
            parts = urlsplit(target)
        except ValueError:
            return "GET", 400, "text/plain", b"that is no HTTP request\n"
        if method not in ("GET", "HEAD"):
            return method, 405, "text/plain", b"GET or HEAD only\n"
        headers = {k.strip().lower(): v.strip() for k, _, v in (h.partition(":") for h in rest if h)}
        for pattern, handler in self._routes:
            match = pattern.match(parts.path)
            if match is None:
                continue
            params = {name: unquote(value) for name, value in match.groupdict().items()}
            request = HttpRequest(parts.path, params, dict(parse_qsl(parts.query, keep_blank_values=True)), headers)
            answer = handler(request)
            status, kind, body = await answer if inspect.isawaitable(answer) else answer
            return method, status, kind, body
        return method, 404, "text/plain", b"no such path; try /healthz /readyz /metrics /configz\n"


async def _send_pieces(
    pieces: AsyncIterator[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Send until there are no more, or the other side has gone. Raises: ConnectionError, TimeoutError."""
    async for piece in pieces:
        if reader.at_eof():
            return
        writer.write(piece)
        async with asyncio.timeout(REQUEST_MAX_S):
            await writer.drain()


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


PROCESS_METRICS: Final[Metrics[float]] = Metrics(
    gauge("process_resident_memory_bytes", "Resident memory.", lambda _: _resident_bytes()),
    counter("process_cpu_seconds_total", "CPU time in user and system mode.", lambda _: time.process_time()),
    gauge("process_start_time_seconds", "When the process started, in seconds since the epoch.", lambda began: began),
    gauge("process_open_fds", "Open file descriptors.", lambda _: len(os.listdir("/proc/self/fd"))),
)
"""Of the process that began then, under Prometheus' usual names."""
