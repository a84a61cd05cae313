"""`Api` of a server in its own process: calls and watches as one identity."""

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
    """Where calls and watches begin; `ApiServer` is it."""

    @property
    def callers(self) -> Callers:
        """Who calls and what they may. Raises: ApiError before recovery."""
        ...

    def start(self, identity: Identity, request: Request, kind: SpanKind) -> Response | Awaitable[Response]:
        """Begin a call and return its answer, or what to await for it."""
        ...

    def open_watch(self, identity: Identity, request: WatchRequest, notify: Notify) -> Watcher:
        """Begin a watch. Raises: ApiError."""
        ...


class LocalApi(msgspec.Struct, frozen=True):
    """The `Api` of one identity. `kind`: of the span of each of its calls."""

    server: EntryPoint
    identity: Identity
    kind: SpanKind = "internal"

    async def call(self, request: Request) -> Response:
        """Answer one request; refusals are Responses too."""
        identity = self.identity
        if request.as_user:
            try:
                identity, request = self.server.callers.acting(identity, request)
            except ApiError as error:
                return refusal(error)
        begun = self.server.start(identity, request, self.kind)
        if isinstance(begun, Response):
            return begun
        # Shielded: a caller that gives up must not take its write back half way (P1).
        return await asyncio.shield(begun)

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches of events until the server ends the watch. Raises: ApiError when it is refused."""
        woken = asyncio.Event()
        watcher = self.server.open_watch(self.identity, request, lambda _: woken.set())
        try:
            while not watcher.is_over:
                if batch := watcher.take():
                    yield batch
                elif not watcher.is_over:
                    await woken.wait()
                    woken.clear()
        finally:
            watcher.close()


class StreamingApi(LocalApi, frozen=True, kw_only=True):
    """The `Api` for one watch over a connection. Its start is sent in pieces, and a client that reads nothing
    for too long is cut (L-WS).

    `place`: its turn among the starts of watches; None: it does not wait. `started`: called once its start is sent.
    """

    place: Place | None
    send_blocked_max_s: float
    started: Callable[[], None]

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches until the server ends the watch; other tasks run between two pieces.

        Raises: ApiError when it is refused.
        """
        woken, place, loop = asyncio.Event(), self.place, asyncio.get_running_loop()
        watcher: Watcher | None = None
        try:
            watcher = self.server.open_watch(self.identity, request, lambda _: woken.set())
            while not watcher.is_over:
                if place is not None:
                    if watcher.is_beginning:
                        await place.turn()
                    else:
                        place.leave()
                        place = None
                if not (is_beginning := watcher.is_beginning):
                    self.started()
                if batch := watcher.take_piece():
                    timers = [loop.call_later(self.send_blocked_max_s, watcher.close, SLOW)]
                    if place is not None:
                        timers.append(place.stalls_later())
                    try:
                        yield batch
                    finally:
                        for timer in timers:
                            timer.cancel()
                if is_beginning and not watcher.is_held:
                    await asyncio.sleep(0)
                elif not batch and not watcher.is_over:
                    await woken.wait()
                    woken.clear()
        finally:
            if place is not None:
                place.leave()
            if watcher is not None:
                watcher.close()
