"""The `Api` of a server in the same process: calls and watches as one identity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec

from apiserver_fake.registry.authorization.callers import Callers
from apiserver_fake.storage.watch_hub import SLOW, Notify, Watcher
from apiserver_fake.storage.watch_starts import Place
from apiserver_fake.storage.writer import refusal
from services.api.errors import ApiError
from services.api.identity import Identity
from services.api.wire import Request, Response, WatchEvent, WatchRequest
from services.telemetry.spans import Kind as SpanKind


class EntryPoint(Protocol):
    """The entry point of calls and watches; `ApiServer` implements it."""

    @property
    def callers(self) -> Callers:
        """Authentication and authorization of callers. Raises: ApiError before recovery."""
        ...

    def start(self, identity: Identity, request: Request, kind: SpanKind) -> Response | Awaitable[Response]:
        """Begin a call and return its answer, or an awaitable for it."""
        ...

    def open_watch(self, identity: Identity, request: WatchRequest, notify: Notify) -> Watcher:
        """Begin a watch. Raises: ApiError."""
        ...


class LocalApi(msgspec.Struct, frozen=True):
    """The `Api` of one identity. `kind`: kind of the span of each call."""

    server: EntryPoint
    identity: Identity
    kind: SpanKind = "internal"

    def begin(self, request: Request) -> Response | Awaitable[Response]:
        """Begin a call and return its answer, or an awaitable for it; refusals are Responses too.

        An awaitable future is the writer's: await it shielded, or not at all (P1).
        """
        identity = self.identity
        if request.as_user:
            try:
                identity, request = self.server.callers.acting(identity, request)
            except ApiError as error:
                return refusal(error)
        return self.server.start(identity, request, self.kind)

    def open_watch(self, request: WatchRequest, notify: Notify) -> Watcher:
        """Begin a watch; `notify` is called whenever there are events to take. Raises: ApiError."""
        return self.server.open_watch(self.identity, request, notify)

    async def call(self, request: Request) -> Response:
        """Answer one request; refusals are Responses too."""
        begun = self.begin(request)
        if isinstance(begun, Response):
            return begun
        # Shielded: a caller that gives up must not cancel its write half way (P1).
        return await asyncio.shield(begun)

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches of events until the server ends the watch. Raises: ApiError when it is refused."""
        woken = asyncio.Event()
        watcher = self.server.open_watch(self.identity, request, lambda _: woken.set())
        try:
            while True:
                if batch := watcher.take():
                    yield batch
                    if not watcher.is_empty:
                        continue
                if watcher.end_reason and watcher.is_over:
                    return
                await woken.wait()
                woken.clear()
        finally:
            watcher.close()


class StreamingApi(LocalApi, frozen=True, kw_only=True):
    """The `Api` for one watch over a connection. It sends the watch's start in pieces, and cuts a client that reads
    nothing for too long (L-WS).

    `place`: the watch's turn among the starts of watches; None: it does not wait. `send_blocked_max_s`: seconds for
    which one send may block. `started`: called once the start is sent.
    """

    place: Place | None
    send_blocked_max_s: float
    started: Callable[[], None]

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches of events until the server ends the watch; other tasks run between two pieces.

        Raises: ApiError when it is refused.
        """
        woken, place = asyncio.Event(), self.place
        sending: SendLimit | None = None
        watcher: Watcher | None = None
        try:
            watcher = self.server.open_watch(self.identity, request, lambda _: woken.set())
            sending = SendLimit(self.send_blocked_max_s, watcher)
            while not (watcher.end_reason and watcher.is_over):
                if place is not None:
                    if watcher.is_beginning:
                        await place.turn()
                    else:
                        place.leave()
                        place = None
                if not (is_beginning := watcher.is_beginning):
                    self.started()
                if batch := watcher.take_piece():
                    sending.begin()
                    stalling = place.stalls_later() if place is not None else None
                    try:
                        yield batch
                    finally:
                        sending.end()
                        if stalling is not None:
                            stalling.cancel()
                if is_beginning and not watcher.is_held:
                    await asyncio.sleep(0)
                elif not batch and not (watcher.end_reason and watcher.is_over):
                    await woken.wait()
                    woken.clear()
        finally:
            if place is not None:
                place.leave()
            if sending is not None:
                sending.cancel()
            if watcher is not None:
                watcher.close()


class SendLimit:
    """Cuts a watch one of whose sends blocks for too long. Its one timer outlasts the many sends that do not block."""

    __slots__ = ("_began_s", "_limit_s", "_loop", "_timer", "_watcher")

    def __init__(self, limit_s: float, watcher: Watcher) -> None:
        self._limit_s, self._watcher, self._loop = limit_s, watcher, asyncio.get_running_loop()
        self._began_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Note that a send begins."""
        self._began_s = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s, self._look)

    def end(self) -> None:
        """Note that the send has ended."""
        self._began_s = None

    def cancel(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._began_s is None:
            return
        ends_s = self._began_s + self._limit_s
        if self._loop.time() >= ends_s:
            self._watcher.close(SLOW)
        else:
            self._timer = self._loop.call_at(ends_s, self._look)
