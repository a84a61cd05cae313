"""The mesh's gRPC server: multiplexed calls and multiplexed watches.

A stream carries one connection's calls (or watches) of any number of identities. Messages that are ready
together are sent together. An idle stream sends at once. A stream that has just sent lingers up to 2 ms,
because sending only what is already queued does not batch a fast pipeline. Messages map one to one to
`services.api.wire`.
"""

import asyncio
import contextlib
import errno
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
import msgspec
import structlog
from google.protobuf.message import DecodeError

from apiserver_fake.extensions.audit.auditor import Trail
from apiserver_fake.extensions.fairness.gate import REQUEST_S
from apiserver_fake.extensions.fairness.queue_set import WAITING, QueuedRequest
from apiserver_fake.grpc.frames import EventBytes, batch_bytes, event_bytes, response_bytes
from apiserver_fake.grpc.trails import begin_trail
from apiserver_fake.rates import Count, Rate
from apiserver_fake.server import ApiServer
from apiserver_fake.storage.backlog import Events
from apiserver_fake.storage.memory import end_for_memory
from apiserver_fake.storage.watch_hub import SLOW, Watcher
from apiserver_fake.storage.watch_starts import WAIT_S, Place
from apiserver_fake.storage.writer import refusal
from protos.mesh.v1 import apiserver_pb2 as pb
from protos.mesh.v1.apiserver_pb2_grpc import ApiServerServicer
from services.api.errors import ApiError, BadRequest, RequestEntityTooLarge, TooManyRequests, Unauthorized
from services.api.identity import Identity
from services.api.seams import Clock
from services.api.texts import encodable
from services.api.wire import Request, Response, WatchRequest
from services.client.channel import SERVER_OPTIONS, STREAM_TAKEN
from services.runtime.config import EXIT_CONFIG, StartError
from services.runtime.serving_tls import Peer, Peers, ServingTls

log = structlog.get_logger()


LINGER_S = 0.002
LINGER_DEPTH = 4
FRAME_BYTES = 1 << 20
FRAME_EVENTS = 1_000
HEARTBEAT_S = 10.0
BLOCKED_SEND_S = 10.0
OUTBOX_BYTES_MAX = 16 << 20
WATCHES_PER_STREAM = 20_000
STOP_S = 0.5
FORM = "mesh.v1.WatchEvent"
"""Name of the encoding of pieces of initial events."""
END_REASON = "mesh-end-reason"
"""The trailer that says why a stream was ended (W14)."""
STREAMS_MAX, STREAMS_PER_IDENTITY = 4_000, 100
"""Limits of open streams, total and per identity, each for calls and for watches; a client has one stream of each."""
FAILED_LOGINS_PER_S = 20
"""Failed authentications per second and address that are answered with 401 (L-RATE)."""

_HEARTBEAT: bytes = pb.WatchFrame(heartbeat=True).SerializeToString()
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


def _answer_to(error: Exception, request: pb.Request | pb.WatchRequest) -> ApiError:
    """Return what a request is answered that raised: a refusal is its answer; a bug must answer this caller and leave
    the others of its stream alone (V2)."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, MemoryError):
        end_for_memory()
    log.error("grpc.request_failed", resource=request.resource[:100], exc_info=error)
    return ApiError(f"internal error: {type(error).__name__}")


_UNREADABLE: Final = object()


def _reader(message: Any) -> Callable[[bytes], Any]:
    """Return what decodes frames to messages of that type; to `_UNREADABLE` those that are none, which are a client's
    fault and no error of the library's."""

    def read(frame: bytes) -> Any:
        try:
            return message.FromString(frame)
        except DecodeError:
            return _UNREADABLE

    return read


def _check_readable(message: Any) -> None:
    if message is _UNREADABLE:
        raise BadRequest("the frame is no message of mesh.v1")


_FIELDS: Final = tuple(name for name in Request.__struct_fields__ if name in pb.Request.DESCRIPTOR.fields_by_name)
_values_of: Final = attrgetter(*_FIELDS)


def request_of(message: pb.Request) -> Request:
    """Return a request message as the wire value, whose fields have the same names and types."""
    return Request(**dict(zip(_FIELDS, _values_of(message), strict=True)))


def responses_of(number: int, response: Response) -> list[bytes]:
    """Return the answer as encoded messages of at most 1 MiB of body each."""
    body = response.body
    if len(body) <= FRAME_BYTES:
        return [response_bytes(number, response, body)]
    return [
        response_bytes(number, response, body[start : start + FRAME_BYTES], more=start + FRAME_BYTES < len(body))
        for start in range(0, len(body), FRAME_BYTES)
    ]


async def _wait_for_wake(event: asyncio.Event, timeout_s: float | None = None) -> None:
    """Return when the event was set since the last wait, or after `timeout_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()


class _Pace:
    """Keeps frames at least 2 ms apart when they follow each other closely."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent_s = -1.0

    async def linger(self, depth: int = LINGER_DEPTH) -> None:
        """Wait until 2 ms after the last frame; not at all when that is long ago, or fewer than 4 are waited for."""
        if depth < LINGER_DEPTH:
            return
        wait_s = self._sent_s + LINGER_S - self._clock.now()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def send(self, context: Any, message: Any) -> None:
        """Send one message. Raises: TimeoutError when the peer takes nothing for 10 s (L-WS)."""
        async with asyncio.timeout(BLOCKED_SEND_S):
            await context.write(message)
        self._sent_s = self._clock.now()


@dataclass(frozen=True)
class _Caller:
    """The identity of a stream, and the certificate of its connection, if any.

    A host-bound token is valid if that host opened the connection: by its certificate, or without one by the
    credential of the stream (X-ID5).
    """

    identity: Identity
    peer: Peer | None = None
    ips: tuple[str, ...] = ()
    user_agent: str = ""

    def of(self, server: ApiServer, token: str) -> Identity:
        """Return whose request it is: the stream's own identity, or that of the token it names. Raises:
        Unauthorized."""
        if not token:
            return self.identity
        return server.callers.authenticate(token, (self.peer or self).identity.user)

    def check(self, clock: Clock) -> None:
        """Check that the certificate is still valid. Raises: Unauthorized."""
        if self.peer is not None:
            self.peer.check(clock.wall())


def _begin_trail(server: ApiServer, caller: _Caller, identity: Identity, request: Request) -> Trail | None:
    """Begin the audit trail of a call; None where none is recorded."""
    if server.audit is None or not server.is_ready:
        return None
    who = caller.ips, caller.user_agent
    return begin_trail(server.audit, server.callers, server.catalogue, identity, request, *who)


class _CallStream:
    """One `Mutate` stream."""

    def __init__(self, server: ApiServer, caller: _Caller, context: Any, clock: Clock) -> None:
        self._server, self._caller, self._context, self._clock = server, caller, context, clock
        self._pace = _Pace(clock)
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._unanswered = 0
        self._wake, self._capacity = asyncio.Event(), asyncio.Event()
        self._is_closing = False

    async def run(self) -> None:
        """Answer until the client has closed its side and everything is answered, or its certificate has expired."""
        refused: list[BaseException] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._receive(group))
                group.create_task(self._send())
        except* MemoryError:
            end_for_memory()
        except* (Unauthorized, BadRequest) as ending:
            refused += ending.exceptions
        except* (asyncio.InvalidStateError, grpc.aio.UsageError, grpc.aio.BaseError, TimeoutError):
            pass  # the connection is gone; what was handed to the writer goes on (P1)
        if refused:
            await _abort(self._context, refused[0])

    async def _receive(self, group: asyncio.TaskGroup) -> None:
        while True:
            batch = await self._context.read()
            if batch is grpc.aio.EOF:
                self._is_closing = True
                self._wake.set()
                return
            _check_readable(batch)
            self._caller.check(self._clock)
            for message in batch.requests:
                self._begin(message, group)
            while self._outbox_bytes > OUTBOX_BYTES_MAX:
                await _wait_for_wake(self._capacity)

    def _begin(self, message: pb.Request, group: asyncio.TaskGroup) -> None:
        server = self._server
        turn: QueuedRequest | None = None
        trail: Trail | None = None
        try:
            identity, request = self._caller.of(server, message.token), request_of(message)
            if server.audit is not None:
                trail = _begin_trail(server, self._caller, identity, request)
            if request.as_user:
                identity, request = _acting(server, identity, request, trail)
            if (fairness := server.fairness) is not None:
                turn = fairness.enter_call(identity, request, server.hub.count_interested(request.resource))
            if turn is not None and (turn.state is WAITING or turn.work.is_long):
                begun: Response | Awaitable[Response] = _in_turn(server, turn, identity, request)
            else:
                begun = server.start(identity, request)
        except Exception as error:
            begun = refusal(_answer_to(error, message))
        if isinstance(begun, Response):
            self._leave(turn)
            self._put(message, begun, trail)
            return
        self._unanswered += 1
        future = begun if isinstance(begun, asyncio.Future) else group.create_task(_response_or_refusal(begun, message))
        future.add_done_callback(partial(self._on_response, message, turn, trail))

    def _leave(self, turn: QueuedRequest | None) -> None:
        if turn is not None and (fairness := self._server.fairness) is not None:
            fairness.leave(turn)

    def _on_response(
        self, message: pb.Request, turn: QueuedRequest | None, trail: Trail | None, done: asyncio.Future[Response]
    ) -> None:
        self._leave(turn)
        self._unanswered -= 1
        if done.cancelled():
            self._wake.set()  # the stream ends
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._put(message, refusal(_answer_to(error, message)), trail)
        elif error is None:
            self._put(message, done.result(), trail)

    def _put(self, message: pb.Request, response: Response, trail: Trail | None) -> None:
        """Send the answer to one call: a 500 where it cannot be sent, since the others of the stream go on."""
        try:
            _record_response(trail, response)
            parts = responses_of(message.id, response)
        except Exception as error:
            parts = responses_of(message.id, refusal(_answer_to(error, message)))
        self._outbox.extend(parts)
        self._outbox_bytes += sum(map(len, parts))
        self._wake.set()

    async def _send(self) -> None:
        outbox = self._outbox
        while True:
            if not outbox:
                if self._is_closing and not self._unanswered:
                    return
                await _wait_for_wake(self._wake)
                continue
            # What is still being worked on will want to travel along.
            await self._pace.linger(self._unanswered + len(outbox))
            parts: list[bytes] = []
            size = 0
            while outbox and (not parts or size + len(outbox[0]) <= FRAME_BYTES):
                part = outbox.popleft()
                size += len(part)
                parts.append(part)
            self._outbox_bytes -= size
            self._capacity.set()
            await self._pace.send(self._context, b"".join(parts))


def _record_response(trail: Trail | None, response: Response) -> None:
    """Record what a call was answered."""
    if trail is not None:
        trail.on_annotations(response.audit)
        trail.on_response_body(response.body)
        trail.on_response_complete(response.code, response.body)


def _acting(server: ApiServer, identity: Identity, request: Request, trail: Trail | None) -> tuple[Identity, Request]:
    """Return as whom the call is made, and the call itself; the audit log says both users. Raises: Forbidden."""
    try:
        acting, request = server.callers.acting(identity, request)
    except ApiError:
        if trail is not None:
            trail.on_decision(allowed=False, reason="")
        raise
    if trail is not None:
        trail.impersonates(acting)
        trail.on_decision(*server.callers.decision(acting, request))
    return acting, request


async def _response_or_refusal(begun: Awaitable[Response], request: pb.Request) -> Response:
    try:
        return await begun
    except Exception as error:
        return refusal(_answer_to(error, request))


async def _in_turn(server: ApiServer, turn: QueuedRequest, identity: Identity, request: Request) -> Response:
    """Answer a call that waits for its priority level, or that is long: such calls are begun one a turn of the loop."""
    fairness = server.fairness
    assert fairness is not None, "it let the call in"
    try:
        await fairness.wait(turn, request.deadline_s or REQUEST_S)
        if turn.work.is_long:
            await fairness.slices.next()
    except ApiError as error:
        return refusal(error)
    return await server.api_for(identity, "server").call(request)


class _WatchStream:
    """One `Watch` stream: any number of watchers, one sender."""

    def __init__(self, server: ApiServer, caller: _Caller, context: Any, clock: Clock, encoded: EventBytes) -> None:
        self._server, self._caller, self._context, self._encoded = server, caller, context, encoded
        self._clock = clock
        self._pace = _Pace(clock)
        self._wake = asyncio.Event()
        self._watchers: dict[int, Watcher] = {}
        self._numbers: dict[int, int] = {}
        self._ready: dict[int, Watcher] = {}
        self._ends: list[pb.WatchEnd] = []
        self._places: dict[int, Place] = {}
        self._late: dict[int, asyncio.TimerHandle] = {}
        self._trails: dict[int, Trail] = {}

    async def run(self) -> None:
        """Serve watches until the client closes the stream, takes nothing for 10 s, or its certificate has expired."""
        refused: list[BaseException] = []
        try:
            await self._pace.send(self._context, _HEARTBEAT)
            async with asyncio.TaskGroup() as group:
                sender = group.create_task(self._send())
                await self._receive()
                sender.cancel()
        except* MemoryError:
            end_for_memory()
        except* (Unauthorized, BadRequest) as ending:
            refused += ending.exceptions
        except* (asyncio.InvalidStateError, grpc.aio.UsageError, grpc.aio.BaseError):
            pass  # the connection is gone
        except* TimeoutError:
            self._context.set_trailing_metadata(((END_REASON, SLOW),))
            for watcher in self._watchers.values():
                watcher.close(SLOW)
        finally:
            for number in list(self._places):
                self._leave(number)
            for watcher in list(self._watchers.values()):
                watcher.notify = None
                watcher.close()
            for number in list(self._trails):
                self._over(number)
        if refused:
            await _abort(self._context, refused[0])

    async def _receive(self) -> None:
        while True:
            control = await self._context.read()
            if control is grpc.aio.EOF:
                return
            _check_readable(control)
            for number in control.close:
                self._close(number)
            for message in control.open:
                self._open(message)
            wanted = frozenset(control.progress)
            for watcher in [each for each in self._watchers.values() if each.resource.name in wanted]:
                self._server.hub.report_progress(watcher)

    def _open(self, message: pb.WatchRequest) -> None:
        try:
            if message.id in self._watchers or message.id in self._places:
                raise BadRequest(f"watch id {message.id} is in use on this stream")
            if len(self._watchers.keys() | self._places.keys()) >= WATCHES_PER_STREAM:
                raise TooManyRequests(f"this stream has {len(self._watchers)} watches", retry_after_s=1)
            identity = self._caller.of(self._server, message.token)
            request = msgspec.convert(message, WatchRequest, from_attributes=True)
            if self._server.audit is not None:
                self._begin_trail(identity, message)
            if self._server.watches.needs_turn(identity, request):
                self._wait(message, identity, request)
            else:
                self._begin(message.id, identity, request)
        except Exception as error:
            self._refuse(message.id, _answer_to(error, message))

    def _begin_trail(self, identity: Identity, message: pb.WatchRequest) -> None:
        asked = Request(
            verb="watch",
            resource=message.resource,
            namespace=message.namespace,
            label_selector=message.label_selector,
            field_selector=message.field_selector,
        )
        trail = _begin_trail(self._server, self._caller, identity, asked)
        if trail is not None:
            self._trails[message.id] = trail

    def _over(self, number: int, refused: Response | None = None) -> None:
        """Record that a watch has ended."""
        if (trail := self._trails.pop(number, None)) is not None:
            trail.on_response_complete(*((refused.code, refused.body) if refused is not None else (200, b"")))

    def _wait(self, message: pb.WatchRequest, identity: Identity, request: WatchRequest) -> None:
        """Begin a watch when it is its turn; it may be now. Raises: TooManyRequests."""
        starts, number = self._server.starts, message.id
        place = self._places[number] = starts.ask(identity.user, lambda: self._on_turn(message, identity, request))
        if place.is_held:
            self._on_turn(message, identity, request)
        else:
            give_up = asyncio.get_running_loop().call_later
            self._late[number] = give_up(WAIT_S, lambda: self._refuse(number, starts.late()))

    def _on_turn(self, message: pb.WatchRequest, identity: Identity, request: WatchRequest) -> None:
        """Begin, or go on with, a watch whose place is held now."""
        number = message.id
        if number in self._late:
            self._late.pop(number).cancel()
        if (watcher := self._watchers.get(number)) is not None:
            self._notify(watcher)
            return
        try:
            self._begin(number, identity, request)
        except Exception as error:
            self._refuse(number, _answer_to(error, message))

    def _begin(self, number: int, identity: Identity, request: WatchRequest) -> None:
        watcher = self._server.open_watch(identity, request, self._notify)
        self._watchers[number] = watcher
        if (trail := self._trails.get(number)) is not None:
            trail.on_response_started(200)
        self._numbers[watcher.number] = number
        if watcher.has_events or watcher.end_reason:
            self._notify(watcher)

    def _refuse(self, number: int, error: ApiError) -> None:
        self._leave(number)
        self._over(number, refusal(error))
        self._ends.append(pb.WatchEnd(id=number, code=error.code, status=msgspec.json.encode(error.status())))
        self._wake.set()

    def _leave(self, number: int) -> None:
        """Neither hold nor wait for a place any more."""
        if number in self._late:
            self._late.pop(number).cancel()
        if (place := self._places.pop(number, None)) is not None:
            place.leave()

    def _close(self, number: int) -> None:
        self._leave(number)
        self._over(number)
        watcher = self._watchers.pop(number, None)
        if watcher is not None:
            watcher.notify = None
            self._numbers.pop(watcher.number, None)
            self._ready.pop(watcher.number, None)
            watcher.close()

    def _notify(self, watcher: Watcher) -> None:
        self._ready[watcher.number] = watcher
        self._wake.set()

    async def _send(self) -> None:
        while True:
            if not self._ready and not self._ends:
                await _wait_for_wake(self._wake, HEARTBEAT_S)
                if not self._ready and not self._ends:
                    self._caller.check(self._clock)
                    await self._pace.send(self._context, _HEARTBEAT)
                    continue
            self._caller.check(self._clock)
            if not any(watcher.is_filling for watcher in self._ready.values()):
                await self._pace.linger()
            frame = self._frame()
            if frame:
                stalled = [place.stalls_later() for place in self._places.values() if place.is_held]
                try:
                    await self._pace.send(self._context, frame)
                finally:
                    for timer in stalled:
                        timer.cancel()

    def _has_turn(self, number: int, watcher: Watcher) -> bool:
        """Whether the next events of a watch may be taken; if not, it is ready again when they may."""
        place = self._places.get(number)
        if place is None or place.is_held:
            return True
        if not watcher.is_beginning:
            self._leave(number)
            return True
        place.ask_again()
        return place.is_held

    def _frame(self) -> bytes:
        """Take what is ready, up to 1 MiB, each watcher in turn; who has more waits at the end of the line."""
        frame: list[bytes] = []
        encoded = self._encoded.of
        events_left, bytes_left = FRAME_EVENTS, FRAME_BYTES
        for watcher in list(self._ready.values()):
            if events_left <= 0 or bytes_left <= 0:
                break
            del self._ready[watcher.number]
            number = self._numbers.get(watcher.number)
            if number is None or not self._has_turn(number, watcher):
                continue
            events = watcher.take_piece(events_left, bytes_left)
            if events:
                events_left -= len(events)
                parts = (
                    [events.encoded_bytes(FORM, event_bytes)] if isinstance(events, Events) else map(encoded, events)
                )
                batch = batch_bytes(number, parts)
                bytes_left -= len(batch)
                frame.append(batch)
            if not watcher.is_beginning:
                self._leave(number)
            if watcher.has_events:
                self._ready[watcher.number] = watcher
            elif watcher.end_reason:
                self._ends.append(pb.WatchEnd(id=number, reason=watcher.end_reason))
                self._over(number)
                del self._watchers[number]
                del self._numbers[watcher.number]
        if self._ends:
            frame.append(pb.WatchFrame(ends=self._ends).SerializeToString())
            self._ends.clear()
        return b"".join(frame)


def _is_free(host: str, port: int) -> bool:
    """Whether the port can be bound; asked first because gRPC reports a taken one in lines of its own."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return True
    except OSError as error:
        return error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)


async def _abort(context: Any, error: BaseException) -> NoReturn:
    """End a call or a stream with a refusal. Raises: grpc.aio.AbortError."""
    assert isinstance(error, ApiError)
    status = msgspec.json.encode(error.status())
    code = _CODES.get(error.code, grpc.StatusCode.UNKNOWN)
    await context.abort(code, error.message, (("mesh-status-bin", status),))
    raise AssertionError("abort raises")


class GrpcServer(ApiServerServicer):
    """The servicer and the listening server around it; with `tls` it speaks mutual TLS."""

    def __init__(self, server: ApiServer, clock: Clock, tls: ServingTls | None = None) -> None:
        self._server, self._clock, self._tls = server, clock, tls
        self._peers = Peers()
        self._listener: grpc.aio.Server | None = None
        self._encoded = EventBytes()
        self._streams = Count(STREAMS_MAX, STREAMS_PER_IDENTITY)
        self._failed_logins = Rate(FAILED_LOGINS_PER_S, FAILED_LOGINS_PER_S)

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port. Raises: StartError when the address cannot be bound."""
        if port and not _is_free(host, port):
            raise StartError(f"cannot listen on {host}:{port}: the port is taken", EXIT_CONFIG)
        listener = self._listener = grpc.aio.server(options=SERVER_OPTIONS)
        listener.add_generic_rpc_handlers((self._handlers(),))
        try:
            if self._tls is None:
                bound = listener.add_insecure_port(f"{host}:{port}")
            else:
                bound = listener.add_secure_port(f"{host}:{port}", self._tls.grpc_credentials())
        except RuntimeError:
            bound = 0
        if not bound:
            raise StartError(f"cannot listen on {host}:{port}: is it an address of this machine?", EXIT_CONFIG)
        await listener.start()
        return bound

    def _handlers(self) -> Any:
        """Return the service; like the generated one, except that what the streams send is encoded already."""
        return grpc.method_handlers_generic_handler(
            "mesh.v1.ApiServer",
            {
                "Call": grpc.unary_unary_rpc_method_handler(
                    self.Call, _reader(pb.Request), pb.Response.SerializeToString
                ),
                "Mutate": grpc.stream_stream_rpc_method_handler(self.Mutate, _reader(pb.RequestBatch), bytes),
                "Watch": grpc.stream_stream_rpc_method_handler(self.Watch, _reader(pb.WatchControl), bytes),
            },
        )

    async def close(self) -> None:
        """Stop listening and end all open streams."""
        if self._listener is not None:
            await self._listener.stop(STOP_S)

    async def _caller(self, context: Any) -> _Caller:
        """Return who opens a stream: whom its token names, else its certificate (X-ID1, X-ID4)."""
        bearer, peer, agent = "", None, ""
        kind, _, address = str(context.peer()).partition(":")
        ips = (address.rpartition(":")[0].strip("[]"),) if kind in ("ipv4", "ipv6") else ()
        try:
            if self._tls is not None:
                peer = self._peers.of(context.auth_context()["x509_pem_cert"][0])
                peer.check(self._clock.wall())
            for key, value in context.invocation_metadata() or ():
                if key == "user-agent":
                    agent = str(value)
                if key == "authorization":
                    scheme, _, bearer = str(value).partition(" ")
                    if scheme.lower() != "bearer" or not bearer:
                        raise Unauthorized("Unauthorized")
            if peer is None:
                return _Caller(self._server.callers.authenticate(bearer), None, ips, agent)
            if bearer:
                return _Caller(self._server.callers.authenticate(bearer, peer.identity.user), peer, ips, agent)
            return _Caller(self._server.callers.certified_identity(peer.identity), peer, ips, agent)
        except Unauthorized as error:
            address = context.peer().rpartition(":")[0]
            if not self._failed_logins.take(address, self._clock.now()):
                await _abort(context, TooManyRequests("too many failed authentications", retry_after_s=1))
            await _abort(context, error)
        except ApiError as error:
            await _abort(context, error)

    @asynccontextmanager
    async def _admit(self, context: Any) -> AsyncIterator[_Caller]:
        """Yield whose stream it is and confirm to its client that it is accepted, or refuse it.

        A client that writes into a refusal loses the reason, so it writes nothing before this word.
        """
        caller = await self._caller(context)
        user = caller.identity.user
        if not self._streams.enter(user):
            text = f"{user} has {self._streams.of(user)} streams open, of {self._streams.total}"
            await _abort(context, TooManyRequests(text, retry_after_s=1))
        try:
            await context.send_initial_metadata(STREAM_TAKEN)
            yield caller
        finally:
            self._streams.leave(user)

    async def Call(self, request: pb.Request, context: Any) -> pb.Response:  # noqa: N802
        """Answer one call."""
        caller = await self._caller(context)
        if request is _UNREADABLE:
            await _abort(context, BadRequest("the frame is no message of mesh.v1"))
        try:
            identity, call = caller.of(self._server, request.token), request_of(request)
            trail = _begin_trail(self._server, caller, identity, call)
            if call.as_user:
                identity, call = _acting(self._server, identity, call, trail)
            response = await self._call(identity, call)
            _record_response(trail, response)
            if len(response.body) > FRAME_BYTES * 3:
                text = f"the answer has {len(response.body)} bytes: ask through Mutate, or with a limit"
                raise RequestEntityTooLarge(text)
        except Exception as error:
            response = refusal(_answer_to(error, request))
        warnings = [encodable(text) for text in response.warnings] or None
        return pb.Response(id=request.id, code=response.code, rv=response.rv, body=response.body, warnings=warnings)

    async def _call(self, identity: Identity, request: Request) -> Response:
        server, fairness = self._server, self._server.fairness
        if fairness is None:
            return await server.api_for(identity, "server").call(request)
        turn = fairness.enter_call(identity, request, server.hub.count_interested(request.resource))
        try:
            return await _in_turn(server, turn, identity, request)
        finally:
            fairness.leave(turn)

    # The stubs know iterators only; reading and writing through the context is what lets one task serve both.
    async def Mutate(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        """Answer many calls concurrently."""
        async with self._admit(context) as caller:
            await _CallStream(self._server, caller, context, self._clock).run()

    async def Watch(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        """Serve many watches concurrently."""
        async with self._admit(context) as caller:
            await _WatchStream(self._server, caller, context, self._clock, self._encoded).run()
