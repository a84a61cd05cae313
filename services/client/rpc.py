"""The way to an API server in another process: one channel, one stream of calls, one stream of watches.

Whatever the process asks goes through the multiplexed `Mutate` stream, whatever it watches through the
multiplexed `Watch` stream (`protos/mesh/v1`), for all of its identities. Both streams come back by
themselves; what was unanswered when a connection broke is an `UnknownOutcome` for whoever asked, never a
guess. What had not been sent yet waits for the next connection, within its deadline.

Requests that pile up are sent together: an idle client sends at once, one with many unanswered
requests lingers up to 2 ms, because draining what happens to be queued does not batch a fast pipeline
(walls 2).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
import msgspec

from protos.mesh.v1 import apiserver_pb2 as pb
from protos.mesh.v1.apiserver_pb2_grpc import ApiServerStub
from services.api.errors import ApiError, RequestEntityTooLarge, Unauthorized, UnknownOutcome, from_status
from services.api.seams import Clock, Random
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest
from services.telemetry import logs

DEADLINE_S = 30.0
SILENCE_MAX_S = 30.0
BATCH_REQUESTS_MAX = 256
BATCH_BYTES_MAX = 1 << 20
BODY_BYTES_MAX = 3 << 20
QUEUED_BYTES_MAX = 64 << 20
SLOW_READER_MAX_S = 10.0
SWEEP_S = 1.0
RETRY_MIN_S, RETRY_MAX_S = 0.2, 5.0
TRIES_BEFORE_LOGGING = 3

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Without this one a dead peer costs 60 s whatever the documented timeout above says (L-KA).
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", 4 << 20),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", 4 << 20),
    ("grpc.so_reuseport", 0),
    ("grpc.server.max_pending_requests", 10_000),
)
"""The other half of L-KA; a port that is taken must be an error, and bursts of opens must not be shed."""

_log = logs.get()


class _Pending:
    """One request on its way: who waits for it, and the parts of its answer that have come."""

    __slots__ = ("answer", "deadline_s", "expires_s", "is_sent", "message", "parts", "request", "timer")

    def __init__(self, request: Request, message: pb.Request, answer: asyncio.Future[Response]) -> None:
        self.request, self.message, self.answer = request, message, answer
        self.parts: list[bytes] = []
        self.is_sent = False
        self.timer: asyncio.TimerHandle | None = None
        self.deadline_s = self.expires_s = 0.0


class _Backoff:
    """Waits between connection attempts: decorrelated jitter from 0.2 to 5 s."""

    def __init__(self, random: Random) -> None:
        self._random, self._last_s = random, RETRY_MIN_S

    def next_s(self) -> float:
        self._last_s = min(RETRY_MAX_S, self._random.uniform(RETRY_MIN_S, self._last_s * 3))
        return self._last_s

    def reset(self) -> None:
        self._last_s = RETRY_MIN_S


class _Link:
    """What both streams share: the stub, the main credential, and the tale of failed attempts."""

    def __init__(self, target: str, token: str, clock: Clock, random: Random) -> None:
        self.target, self.clock, self.random = target, clock, random
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.channel = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        self.stub: Any = ApiServerStub(self.channel)
        self.reconnects = 0
        self._failures = 0

    def succeeded(self) -> None:
        if self._failures >= TRIES_BEFORE_LOGGING:
            _log.info("apiserver.reached", target=self.target, tries=self._failures)
        self._failures = 0

    def failed(self, why: str) -> None:
        self.reconnects += 1
        self._failures += 1
        if self._failures == TRIES_BEFORE_LOGGING or self._failures % 100 == 0:
            hint = "is an API server listening there, and does it accept this token?"
            _log.warning("apiserver.unreachable", target=self.target, tries=self._failures, error=why, hint=hint)


async def _ending(stream: Any, errors: BaseExceptionGroup[Exception]) -> BaseException:
    """Return why a stream ended, preferring what the other side said over what we noticed first."""
    for error in errors.exceptions:
        if isinstance(error, grpc.aio.AioRpcError | ConnectionError):
            return error
        if not isinstance(error, asyncio.InvalidStateError):
            _log.error("rpc.stream_failed", error=repr(error), exc_info=error)
            return error
    # Writing to a stream that is over says only that; its status says why.
    return grpc.aio.AioRpcError(
        await stream.code(), await stream.initial_metadata(), await stream.trailing_metadata(), await stream.details()
    )


def _why(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


def _status_of(error: BaseException) -> bytes | None:
    """Return the Status document a refusal carried; None when nobody at the other end has spoken."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return None
    for key, value in error.trailing_metadata() or ():
        if key == "mesh-status-bin":
            return value if isinstance(value, bytes) else value.encode()
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return msgspec.json.encode(Unauthorized(error.details() or "the token was refused").status())
    return None


class _Calls:
    """The stream of calls."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._next_id = 0
        self._pending: dict[int, _Pending] = {}
        self._outbox: deque[int] = deque()
        self._has_work = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None
        self.requests = 0
        self.batches = 0

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    async def call(self, request: Request, token: str) -> Response:
        if len(request.body) > BODY_BYTES_MAX:
            error = RequestEntityTooLarge(f"the body has {len(request.body)} bytes, at most {BODY_BYTES_MAX} are taken")
            return Response(code=error.code, body=msgspec.json.encode(error.status()))
        loop = asyncio.get_running_loop()
        self._next_id += 1
        number = self._next_id
        deadline_s = request.deadline_s or DEADLINE_S
        pending = _Pending(request, _request(request, number, token, deadline_s), loop.create_future())
        if deadline_s < SWEEP_S * 5:
            pending.timer = loop.call_later(deadline_s, self._expire, number, deadline_s)
        else:
            pending.deadline_s, pending.expires_s = deadline_s, loop.time() + deadline_s
            if self._sweeper is None:
                self._sweeper = loop.call_later(SWEEP_S, self._sweep)
        self._pending[number] = pending
        self._outbox.append(number)
        self._has_work.set()
        try:
            return await pending.answer
        finally:
            if pending.timer is not None:
                pending.timer.cancel()
            self._pending.pop(number, None)

    def _sweep(self) -> None:
        """Expire what is over; one timer for all who wait long, because nearly all of them are answered."""
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(SWEEP_S, self._sweep) if self._pending else None
        now = loop.time()
        for number in [n for n, pending in self._pending.items() if pending.timer is None and pending.expires_s <= now]:
            self._expire(number, self._pending[number].deadline_s)

    def stop_sweeping(self) -> None:
        """Leave no timer behind."""
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _expire(self, number: int, deadline_s: float) -> None:
        pending = self._pending.get(number)
        if pending is not None and not pending.answer.done():
            what = "no answer" if pending.is_sent else f"no connection to {self._link.target}"
            pending.answer.set_exception(UnknownOutcome(f"{_named(pending.request)}: {what} within {deadline_s:g} s"))

    async def run(self) -> None:
        """Keep the stream up while there is anything to ask; only cancellation ends it."""
        backoff = _Backoff(self._link.random)
        while True:
            await self._has_work.wait()
            began = self._link.clock.now()
            stream = self._link.stub.Mutate(metadata=self._link.metadata)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._send(stream))
                    group.create_task(self._receive(stream, backoff))
            except* Exception as errors:
                self._broken(await _ending(stream, errors))
            finally:
                stream.cancel()
            # A stream that broke after a healthy while comes back at once; what is unsent waits.
            if self._link.clock.now() - began < RETRY_MAX_S:
                await asyncio.sleep(backoff.next_s())

    async def _send(self, stream: Any) -> None:
        # A write to a stream without a connection succeeds and is lost; before this line nothing was sent.
        await stream.wait_for_connection()
        while True:
            while not self._outbox:
                self._has_work.clear()
                await self._has_work.wait()
            await self._linger()
            batch: list[pb.Request] = []
            size = 0
            while self._outbox and len(batch) < BATCH_REQUESTS_MAX and size < BATCH_BYTES_MAX:
                pending = self._pending.get(self._outbox.popleft())
                if pending is None or pending.answer.done():
                    continue
                pending.is_sent = True
                batch.append(pending.message)
                size += len(pending.request.body) + 200
            if batch:
                self.batches += 1
                self.requests += len(batch)
                await stream.write(pb.RequestBatch(requests=batch))

    async def _linger(self) -> None:
        # Depth tells a busy client from one that asks and waits: the latter must never be slowed.
        depth = len(self._pending)
        if depth >= 4 and len(self._outbox) < BATCH_REQUESTS_MAX:
            await asyncio.sleep(0.001 if depth < 16 else 0.002)

    async def _receive(self, stream: Any, backoff: _Backoff) -> None:
        while True:
            batch = await stream.read()
            if batch is grpc.aio.EOF:
                await stream.code()
                raise ConnectionError("the server closed the stream")
            backoff.reset()
            self._link.succeeded()
            for message in batch.responses:
                self._answer(message)

    def _answer(self, message: pb.Response) -> None:
        pending = self._pending.get(message.id)
        if pending is None or pending.answer.done():
            return
        if message.more:
            pending.parts.append(message.body)
            return
        body = b"".join((*pending.parts, message.body)) if pending.parts else message.body
        pending.answer.set_result(
            Response(code=message.code, rv=message.rv, body=body, warnings=tuple(message.warnings))
        )

    def _broken(self, error: BaseException) -> None:
        """Tell everybody whose request was on its way; what is unsent stays in the outbox."""
        why, status = _why(error), _status_of(error)
        self._link.failed(why)
        for pending in list(self._pending.values()):
            if pending.answer.done():
                continue
            if status is not None:
                code = int(msgspec.json.decode(status).get("code") or 401)
                pending.answer.set_result(Response(code=code, body=status))
            elif pending.is_sent:
                pending.answer.set_exception(UnknownOutcome(f"{_named(pending.request)}: connection lost ({why})"))


class _Watch:
    """One open watch: batches that wait for their reader, and how it ended."""

    __slots__ = ("ended", "is_sent", "number", "queue", "queued_bytes", "request", "token", "wake")

    def __init__(self, number: int, request: WatchRequest, token: str) -> None:
        self.number, self.request, self.token = number, request, token
        self.queue: deque[tuple[int, list[WatchEvent]]] = deque()
        self.queued_bytes = 0
        self.wake = asyncio.Event()
        self.is_sent = False
        self.ended: BaseException | bool = False
        """False while open, True after an end in good order, else what the reader is told."""

    def end(self, how: BaseException | bool) -> None:
        if self.ended is False:
            self.ended = how
            self.wake.set()


class _Watches:
    """The stream of watches."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._next_id = 0
        self._watches: dict[int, _Watch] = {}
        self._to_open: deque[int] = deque()
        self._to_close: list[int] = []
        self._has_work = asyncio.Event()
        self._drained = asyncio.Event()
        self._queued_bytes = 0
        self._heard_at = 0.0

    @property
    def open(self) -> int:
        return len(self._watches)

    async def watch(self, request: WatchRequest, token: str) -> AsyncGenerator[list[WatchEvent], None]:
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

    async def run(self) -> None:
        """Keep the stream up while there is anything to watch; only cancellation ends it."""
        backoff = _Backoff(self._link.random)
        while True:
            await self._has_work.wait()
            began = self._heard_at = self._link.clock.now()
            stream = self._link.stub.Watch(metadata=self._link.metadata)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._send(stream))
                    group.create_task(self._receive(stream, backoff))
                    group.create_task(self._listen_for_silence())
            except* Exception as errors:
                self._broken(await _ending(stream, errors))
            finally:
                stream.cancel()
            if self._link.clock.now() - began < RETRY_MAX_S:
                await asyncio.sleep(backoff.next_s())

    async def _send(self, stream: Any) -> None:
        await stream.wait_for_connection()
        while True:
            while not self._to_open and not self._to_close:
                self._has_work.clear()
                await self._has_work.wait()
            closing, self._to_close = self._to_close, []
            control = pb.WatchControl(close=closing)
            while self._to_open and len(control.open) < BATCH_REQUESTS_MAX:
                watch = self._watches.get(self._to_open.popleft())
                if watch is not None and watch.ended is False:
                    watch.is_sent = True
                    control.open.append(_watch_request(watch))
            await stream.write(control)

    async def _receive(self, stream: Any, backoff: _Backoff) -> None:
        while True:
            frame = await stream.read()
            if frame is grpc.aio.EOF:
                await stream.code()
                raise ConnectionError("the server closed the stream")
            backoff.reset()
            self._link.succeeded()
            self._heard_at = self._link.clock.now()
            for batch in frame.batches:
                self._deliver(batch)
            for end in frame.ends:
                self._end(end)
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
        if events:
            watch.queue.append((size, events))
            watch.queued_bytes += size
            self._queued_bytes += size
            watch.wake.set()

    def _end(self, end: pb.WatchEnd) -> None:
        watch = self._watches.get(end.id)
        if watch is not None:
            watch.end(from_status(end.code, end.status) if end.code >= 400 else True)

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
        while True:
            silent_s = self._link.clock.now() - self._heard_at
            if silent_s >= SILENCE_MAX_S:
                raise ConnectionError(f"no frame for {silent_s:.0f} s")
            await asyncio.sleep(SILENCE_MAX_S - silent_s)

    def _broken(self, error: BaseException) -> None:
        why, status = _why(error), _status_of(error)
        self._link.failed(why)
        self._to_close.clear()
        for watch in list(self._watches.values()):
            if status is not None:
                watch.end(from_status(int(msgspec.json.decode(status).get("code") or 401), status))
            elif watch.is_sent:
                watch.end(UnknownOutcome(f"watch {watch.request.resource}: connection lost ({why})"))


class _Door:
    """The API server as one identity with a fixed token reaches it."""

    def __init__(self, calls: _Calls, watches: _Watches, token: str) -> None:
        self._calls, self._watches, self._token = calls, watches, token

    async def call(self, request: Request) -> Response:
        """Return the definite answer. Raises: UnknownOutcome."""
        return await self._calls.call(request, self._token)

    def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches. Raises: ApiError when refused, UnknownOutcome when the connection is lost."""
        return self._watches.watch(request, self._token)


class _NodeDoor:
    """The API server as one node reaches it; a refused token is exchanged once before anybody hears of it."""

    def __init__(self, calls: _Calls, watches: _Watches, renew: Callable[[], Awaitable[str]], token: str) -> None:
        self._calls, self._watches, self._renew, self._token = calls, watches, renew, token

    async def call(self, request: Request) -> Response:
        """Return the definite answer. Raises: UnknownOutcome."""
        response = await self._calls.call(request, self._token)
        if response.code == Unauthorized.code:
            try:
                self._token = await self._renew()
            except ApiError:
                return response  # the host itself is refused: the answer stands
            response = await self._calls.call(request, self._token)
        return response

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches. Raises: ApiError when refused, UnknownOutcome when the connection is lost."""
        has_begun = False
        try:
            async with aclosing(self._watches.watch(request, self._token)) as batches:
                async for batch in batches:
                    has_begun = True
                    yield batch
            return
        except Unauthorized:
            self._token = await self._renew()
            if has_begun:
                raise
        async with aclosing(self._watches.watch(request, self._token)) as batches:
            async for batch in batches:
                yield batch


class RpcTransport:
    """Reaches the API server at `target` (HOST:PORT) with this process's tokens; implements `Transport`.

    `tokens`: {identity: token}, the first is the main one. Make it inside the running event loop. The
    streams start with the first use and end with `close`.
    """

    def __init__(self, target: str, tokens: Mapping[str, str], *, clock: Clock, random: Random) -> None:
        self._tokens = dict(tokens)
        self._main = next(iter(self._tokens), "")
        self._link = _Link(target, self._tokens.get(self._main, ""), clock, random)
        self._calls = _Calls(self._link)
        self._watches = _Watches(self._link)
        self._tasks: list[asyncio.Task[None]] = []
        self._node_doors: dict[str, _NodeDoor] = {}

    def api(self, identity: str = "") -> Api:
        """Return the server as one of this process's identities. Raises: KeyError without its token."""
        self._start()
        identity = identity or self._main
        if identity != self._main and identity not in self._tokens:
            raise KeyError(f"this process has no token of {identity}; it has {', '.join(self._tokens) or 'none'}")
        return _Door(self._calls, self._watches, "" if identity == self._main else self._tokens[identity])

    async def node_api(self, node: str) -> Api:
        """Return the server as `system:node:<node>`.

        Raises: Forbidden when this process may not host that node; UnknownOutcome.
        """
        self._start()
        if node not in self._node_doors:
            token = await self._node_token(node)
            self._node_doors[node] = _NodeDoor(self._calls, self._watches, lambda: self._node_token(node), token)
        return self._node_doors[node]

    async def _node_token(self, node: str) -> str:
        response = await self._calls.call(Request(verb="create", resource="nodetokens", name=node), "")
        return str(msgspec.json.decode(response.unwrap().body)["token"])

    def _start(self) -> None:
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._calls.run()), loop.create_task(self._watches.run())]
            for task in self._tasks:
                task.add_done_callback(_report)

    def metrics(self) -> dict[str, float]:
        """Return what the connection did."""
        return {
            "keplab_rpc_requests_total": float(self._calls.requests),
            "keplab_rpc_batches_total": float(self._calls.batches),
            "keplab_rpc_reconnects_total": float(self._link.reconnects),
            "keplab_rpc_requests_in_flight": float(self._calls.in_flight),
            "keplab_rpc_watches_open": float(self._watches.open),
        }

    async def close(self) -> None:
        """End both streams; whoever still waits is cancelled by its own owner."""
        self._calls.stop_sweeping()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.channel.close()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("rpc.stream_failed", error=repr(error), exc_info=error)


def _named(request: Request) -> str:
    """Return a request in words: `create pods/binding default/web-1`."""
    sub = f"/{request.subresource}" if request.subresource else ""
    where = "/".join(part for part in (request.namespace, request.name) if part)
    return f"{request.verb} {request.resource}{sub} {where}".rstrip()


def _request(request: Request, number: int, token: str, deadline_s: float) -> pb.Request:
    return pb.Request(
        id=number,
        verb=request.verb,
        resource=request.resource,
        namespace=request.namespace,
        name=request.name,
        subresource=request.subresource,
        body=request.body,
        patch_type=request.patch_type,
        uid=request.uid,
        resource_version=request.resource_version,
        resource_version_match=request.resource_version_match,
        label_selector=request.label_selector,
        field_selector=request.field_selector,
        limit=request.limit,
        continue_token=request.continue_token,
        field_manager=request.field_manager,
        field_validation=request.field_validation,
        dry_run=request.dry_run,
        request_id=request.request_id,
        traceparent=request.traceparent,
        lease_epoch=request.lease_epoch,
        deadline_s=deadline_s,
        token=token,
    )


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
