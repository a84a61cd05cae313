"""The stream of watches: every watch of this process, of all its identities, over one connection.

A lost watch raises an error to its reader, which resumes it; this module resumes nothing. Slow readers hold the
whole stream back, until the slowest of them is cut.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any

import msgspec

from protos.mesh.v1 import apiserver_pb2 as pb
from services.api.errors import UnknownOutcome, from_status
from services.api.wire import WatchEvent, WatchRequest
from services.client.channel import BATCH_REQUESTS_MAX, Link, wait_until_accepted

SILENCE_MAX_S = 30.0
QUEUED_BYTES_MAX = 64 << 20
SLOW_READER_MAX_S = 10.0


class _Watch:
    """One open watch: batches queued for its reader, and how it ended."""

    __slots__ = ("ended", "is_sent", "number", "queue", "queued_bytes", "request", "token", "wake")

    def __init__(self, number: int, request: WatchRequest, token: str) -> None:
        self.number, self.request, self.token = number, request, token
        self.queue: deque[tuple[int, list[WatchEvent]]] = deque()
        self.queued_bytes = 0
        self.wake = asyncio.Event()
        self.is_sent = False
        self.ended: BaseException | bool = False
        """False while open, True after an end in good order, else what the reader raises."""

    def end(self, how: BaseException | bool) -> None:
        if self.ended is False:
            self.ended = how
            self.wake.set()


class Watches:
    """The stream of watches."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._next_id = 0
        self._watches: dict[int, _Watch] = {}
        self._to_open: deque[int] = deque()
        self._to_close: list[int] = []
        self._progress: dict[str, None] = {}
        self._has_work = asyncio.Event()
        self._drained = asyncio.Event()
        self._queued_bytes = 0
        self._received_at = 0.0
        self.events = self.received_bytes = 0

    @property
    def open(self) -> int:
        """Number of watches with a reader."""
        return len(self._watches)

    async def watch(self, request: WatchRequest, token: str) -> AsyncGenerator[list[WatchEvent], None]:
        """Yield batches. Raises: ApiError when refused, UnknownOutcome when the connection is lost."""
        self._next_id += 1
        watch = _Watch(self._next_id, request, token)
        self._watches[watch.number] = watch
        self._to_open.append(watch.number)
        self._has_work.set()
        timer = asyncio.get_running_loop().call_later(SILENCE_MAX_S, self._give_up_unsent, watch)
        try:
            while True:
                while not watch.queue:
                    if watch.ended is True:
                        return
                    if watch.ended is not False:
                        raise watch.ended
                    watch.wake.clear()
                    await watch.wake.wait()
                size, events = watch.queue.popleft()
                self._forget_bytes(watch, size)
                yield events
        finally:
            timer.cancel()
            self._forget_bytes(watch, watch.queued_bytes)
            self._watches.pop(watch.number, None)
            if watch.is_sent and watch.ended is False:
                self._to_close.append(watch.number)
                self._has_work.set()

    def _give_up_unsent(self, watch: _Watch) -> None:
        if not watch.is_sent:
            why = f"no connection to {self._link.target} within {SILENCE_MAX_S:g} s"
            watch.end(UnknownOutcome(f"watch {watch.request.resource}: {why}"))

    def _forget_bytes(self, watch: _Watch, size: int) -> None:
        watch.queued_bytes -= size
        self._queued_bytes -= size
        self._drained.set()

    def request_progress(self, resources: Iterable[str]) -> None:
        """Ask for a bookmark on each watch of these resources, over the current stream or the next one."""
        self._progress |= dict.fromkeys(resources)
        self._has_work.set()

    async def run(self) -> None:
        """Keep the stream up while there are watches; only cancellation ends it."""
        await self._link.keep_up(
            "Watch",
            self._has_work,
            lambda stream, frames: (self._send(stream), self._receive(frames), self._listen_for_silence()),
            self._on_broken,
            self._leave,
        )

    async def _leave(self) -> None:
        """End what is open in good order: its readers resume where they are, at once."""
        for watch in self._watches.values():
            if watch.is_sent:
                watch.end(True)

    async def _send(self, stream: Any) -> None:
        await wait_until_accepted(stream)
        while True:
            while not self._to_open and not self._to_close and not self._progress:
                self._has_work.clear()
                await self._has_work.wait()
            closing, self._to_close = self._to_close, []
            progress, self._progress = self._progress, {}
            control = pb.WatchControl(close=closing, progress=progress)
            while self._to_open and len(control.open) < BATCH_REQUESTS_MAX:
                watch = self._watches.get(self._to_open.popleft())
                if watch is not None and watch.ended is False:
                    watch.is_sent = True
                    control.open.append(_watch_request(watch))
            await stream.write(control)

    async def _receive(self, frames: AsyncIterator[pb.WatchFrame]) -> None:
        async for frame in frames:
            self._received_at = self._link.clock.now()
            for batch in frame.batches:
                self._deliver(batch)
            for end in frame.ends:
                if (watch := self._watches.get(end.id)) is not None:
                    watch.end(from_status(end.code, end.status) if end.code >= 400 else True)
            if self._queued_bytes > QUEUED_BYTES_MAX:
                await self._wait_for_readers()

    def _deliver(self, batch: pb.WatchBatch) -> None:
        watch = self._watches.get(batch.id)
        if watch is None or watch.ended is not False:
            return
        size, events = 0, []
        resource = watch.request.resource
        for e in batch.events:
            body = e.body
            size += len(body)
            events.append(
                WatchEvent(
                    type=e.type,
                    resource=e.resource or resource,
                    namespace=e.namespace,
                    name=e.name,
                    uid=e.uid,
                    rv=e.rv,
                    body=body,
                    traceparent=e.traceparent,
                    initial_events_end=e.initial_events_end,
                )
            )
        self.events += len(events)
        self.received_bytes += size
        if events:
            watch.queue.append((size, events))
            watch.queued_bytes += size
            self._queued_bytes += size
            watch.wake.set()

    async def _wait_for_readers(self) -> None:
        """Read no further until readers catch up; cut the one that holds most when they do not (P4)."""
        try:
            async with asyncio.timeout(SLOW_READER_MAX_S):
                while self._queued_bytes > QUEUED_BYTES_MAX // 2:
                    self._drained.clear()
                    await self._drained.wait()
        except TimeoutError:
            slowest = max(self._watches.values(), key=lambda w: w.queued_bytes)
            self._forget_bytes(slowest, slowest.queued_bytes)
            slowest.queue.clear()
            slowest.end(UnknownOutcome(f"watch {slowest.request.resource}: its reader is too slow"))
            self._to_close.append(slowest.number)
            self._has_work.set()

    async def _listen_for_silence(self) -> None:
        self._received_at = self._link.clock.now()
        while True:
            silent_s = self._link.clock.now() - self._received_at
            if silent_s >= SILENCE_MAX_S:
                raise ConnectionError(f"no frame for {silent_s:.0f} s")
            await asyncio.sleep(SILENCE_MAX_S - silent_s)

    def _on_broken(self, why: str, status: bytes | None) -> None:
        self._to_close.clear()
        for watch in list(self._watches.values()):
            if status is not None:
                watch.end(from_status(int(msgspec.json.decode(status).get("code") or 401), status))
            elif watch.is_sent:
                watch.end(UnknownOutcome(f"watch {watch.request.resource}: connection lost ({why})"))


def _watch_request(watch: _Watch) -> pb.WatchRequest:
    request = watch.request
    return pb.WatchRequest(
        id=watch.number,
        resource=request.resource,
        namespace=request.namespace,
        label_selector=request.label_selector,
        field_selector=request.field_selector,
        resource_version=request.resource_version,
        resource_version_match=request.resource_version_match,
        allow_bookmarks=request.allow_bookmarks,
        send_initial_events=request.send_initial_events,
        timeout_s=request.timeout_s,
        token=watch.token,
    )
