"""Health, metrics and configuration over HTTP: /healthz /readyz /metrics /configz, and a component's own
routes.

Every caller gets the health, in one word; for all else a guard decides who may ask (`delegation`). Requests
under a name that is not this server's are refused (X-WEB).
A small HTTP/1.1 responder over asyncio streams: one request per connection, GET and HEAD only. A web framework
would cost every process 28 MiB to answer four paths.
"""

import asyncio
import inspect
import re
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from services.runtime.delegation import Caller, Refusal
from services.runtime.web import LOOPBACK_NAMES, host_name, is_allowed_host
from services.telemetry.exposition import Exposition
from services.telemetry.metrics import Metrics, gauge

HEAD_BYTES_MAX = 1 << 20
"""Maximum size of a request's head in bytes, as in Go's server: an exec's command is in the URL."""
REQUEST_MAX_S = 10.0
STALL_MAX_S = 10.0
"""Seconds of a stalled loop after which a process is not live (P12)."""


@dataclass(frozen=True)
class HttpRequest:
    """A request as a route gets it. `params`: the `{name}` parts of its path; `query`: the decoded query.

    Of a repeated query name the last value counts; `words` has every pair. A repeated header is joined with commas.
    """

    path: str
    params: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    words: tuple[tuple[str, str], ...] = ()


HttpResponse = tuple[int, str, bytes | AsyncIterator[bytes]]
"""Status, content type, body. A body in pieces is sent piece by piece, and ends when the client is gone."""

Head = tuple[str, SplitResult, dict[str, str]]
"""Method, URL and headers of a request."""
Answer = tuple[str, int, str, bytes | AsyncIterator[bytes]]
"""The request's method, and an `HttpResponse`."""

Handler = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
Takeover = Callable[[HttpRequest, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Function that takes over a connection to be upgraded, including the head of the answer."""
Guard = Callable[[Caller], Awaitable[Refusal | None]]
"""Function that returns the refusal of a caller; None for an allowed one."""


class HealthServer:
    """HTTP server of one process. `port` is known after `start`."""

    def __init__(
        self,
        *,
        is_ready: Callable[[], bool],
        stalled_s: Callable[[], float] = lambda: 0.0,
        metrics: Callable[[], Mapping[str, float]],
        configuration: Callable[[], Mapping[str, Any]],
        routes: Sequence[tuple[str, Handler]] = (),
        upgrades: Sequence[tuple[str, Takeover]] = (),
        guard: Guard | None = None,
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        """`guard`: decides who may ask; None: all may. `allowed_hosts`: names of the server besides the loopback
        ones.
        """
        self._stalled_s, self._exposition = stalled_s, Exposition()
        self._is_ready, self._metrics, self._configuration = is_ready, metrics, configuration
        own: list[tuple[str, Handler]] = [
            ("/healthz", self._live),
            ("/livez", self._live),
            ("/readyz", self._ready),
            ("/metrics", self._metrics_response),
            ("/configz", lambda _: (200, "application/json", msgspec.json.encode(self._configuration(), enc_hook=str))),
        ]
        self._routes = [(path_pattern(path), handler) for path, handler in (*own, *routes)]
        self._upgrades = [(path_pattern(path), handler) for path, handler in upgrades]
        self._guard = guard
        self._allowed_hosts = frozenset((*LOOPBACK_NAMES, *(name.lower() for name in allowed_hosts)))
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen. Raises: OSError when the port is taken."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES_MAX, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.close()

    def _live(self, _: HttpRequest) -> HttpResponse:
        """Answer 500 while the event loop turns too slowly (P12); a loop that stands answers nothing at all."""
        stalled_s = self._stalled_s()
        if stalled_s > STALL_MAX_S:
            return (
                500,
                "text/plain",
                f"[-]event-loop failed: stalled for {stalled_s:.1f} s\nlivez check failed\n".encode(),
            )
        return 200, "text/plain", b"ok\n"

    async def _metrics_response(self, request: HttpRequest) -> HttpResponse:
        content_type, pieces = self._exposition.pieces(self._metrics(), request.headers.get("accept", ""))
        return 200, content_type, await join_pieces(pieces)

    def _ready(self, _: HttpRequest) -> HttpResponse:
        return (200, "text/plain", b"ok\n") if self._is_ready() else (503, "text/plain", b"not ready\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_MAX_S):
                parsed = _parse_head(await reader.readuntil(b"\r\n\r\n"))
                refusal = await self._refusal(parsed, writer)
                taken = None if refusal is not None else self._taken_over(parsed)
            if taken is not None:
                request, takeover = taken
                await takeover(request, reader, writer)
                return
            async with asyncio.timeout(REQUEST_MAX_S):
                if refusal is not None:
                    method, status, kind, body = refusal
                else:
                    method, status, kind, body = await self._answer(parsed)
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

    async def _refusal(self, parsed: Head | None, writer: asyncio.StreamWriter) -> Answer | None:
        """Return the answer to what is no request, or none that this caller may make of this server."""
        if parsed is None:
            return "GET", 400, "text/plain", b"that is no HTTP request\n"
        method, parts, headers = parsed
        local = writer.get_extra_info("sockname")
        # Browsers always name a host; what names none is no browser.
        host = headers.get("host", "")
        if host and not is_allowed_host(host, self._allowed_hosts, str(local[0]) if isinstance(local, tuple) else ""):
            text = f"the host name {host_name(host)[:100]!r} is not one of this server's\n"
            return method, 403, "text/plain", text.encode()
        if self._guard is None:
            return None
        caller = Caller(method, parts.path, headers.get("authorization", ""), writer.get_extra_info("peercert"))
        refusal = await self._guard(caller)
        return None if refusal is None else (method, refusal.code, "text/plain", f"{refusal.text}\n".encode())

    def _taken_over(self, parsed: Head | None) -> tuple[HttpRequest, Takeover] | None:
        """Return what speaks on this connection from now on, if the request is to upgrade it."""
        if parsed is None or "upgrade" not in parsed[2]:
            return None
        for pattern, takeover in self._upgrades:
            if (match := pattern.match(parsed[1].path)) is not None:
                return _request(match, parsed[1], parsed[2]), takeover
        return None

    async def _answer(self, parsed: Head | None) -> Answer:
        assert parsed is not None, "refused before"
        method, parts, headers = parsed
        if method not in ("GET", "HEAD"):
            return method, 405, "text/plain", b"GET or HEAD only\n"
        for pattern, handler in self._routes:
            match = pattern.match(parts.path)
            if match is None:
                continue
            answer = handler(_request(match, parts, headers))
            status, kind, body = await answer if inspect.isawaitable(answer) else answer
            return method, status, kind, body
        return method, 404, "text/plain", b"no such path; try /healthz /readyz /metrics /configz\n"


async def join_pieces(pieces: Iterable[bytes]) -> bytes:
    """Return all pieces joined; other tasks get a turn before each."""
    parts: list[bytes] = []
    await asyncio.sleep(0)
    for piece in pieces:
        parts.append(piece)
        await asyncio.sleep(0)
    return b"".join(parts)


def path_pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of a path: `{name}` is one segment of it, `{name*}` the whole rest."""
    escaped = re.sub(r"\\\{(\w+)\\\*\\\}", r"(?P<\1>.+)", re.escape(path))
    return re.compile("^" + re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", escaped) + "/?$")


def _parse_head(head: bytes) -> Head | None:
    """Return method, address and headers of a request; None when it is not one."""
    try:
        line, *rest = head.decode("latin-1").split("\r\n")
        method, target, _ = line.split(" ", 2)
        parts = urlsplit(target)
    except ValueError:
        return None
    headers: dict[str, str] = {}
    for name, _, value in (each.partition(":") for each in rest if each):
        key = name.strip().lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    return method, parts, headers


def _request(match: re.Match[str], parts: SplitResult, headers: dict[str, str]) -> HttpRequest:
    params = {name: unquote(value) for name, value in match.groupdict().items()}
    words = tuple(parse_qsl(parts.query, keep_blank_values=True))
    return HttpRequest(parts.path, params, dict(words), headers, words)


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


PROCESS_METRICS: Final[Metrics[None]] = Metrics(
    gauge(
        "keplab_python_allocated_blocks",
        "Blocks of memory that hold Python objects.",
        lambda _: sys.getallocatedblocks(),
    ),
    gauge("keplab_asyncio_tasks", "Tasks that are not done.", lambda _: len(asyncio.all_tasks())),
)
"""Metrics of this process, besides those of the client library (`process_…`)."""
