"""Common parts of a channel's streams: options, reconnects after a break, and the reason why a stream ended."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import msgspec
import structlog

from protos.mesh.v1.apiserver_pb2_grpc import ApiServerStub
from services.api.errors import Unauthorized
from services.api.seams import Clock, Random
from services.client.client import BACKOFF_MAX_S, Backoff
from services.client.handshake import speaks_tls

if TYPE_CHECKING:
    # A process without certificates need not load what reads them.
    from services.client.tls import ClientTls

BATCH_REQUESTS_MAX = 256
TRIES_BEFORE_LOGGING = 3
RELOAD_S = 2.0
"""Interval in seconds between checks for changed certificate files."""
LEAVE_MAX_S = 5.0
"""Seconds that open calls may still take on a channel that is being replaced."""
PORT_MAX = 65535
CONNECTED_POLL_S = 0.05
"""Interval in seconds at which a stream that waits for its next attempt checks for a connection."""
NEXT_SERVER_MAX_S = 0.5
"""Seconds to wait for one of several servers that refuses connections, before the next one is tried."""

_BOTH_ENDS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Without this one a dead peer costs 60 s whatever the documented timeout above says (L-KA).
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", 4 << 20),
)
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_BOTH_ENDS,
    # A refused attempt costs one packet, and a process has one connection: a server that is back is found soon. The
    # second is the time that an attempt may take: a server short of CPU needs longer for a handshake than to refuse.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_BOTH_ENDS,
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),
    ("grpc.server.max_pending_requests", 10_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 1_000),
)
"""The server's keepalive options (L-KA). A taken port must be an error, and bursts of opens must not be shed."""

STREAM_TAKEN = (("mesh-taken", "1"),)
"""Initial metadata by which a server confirms that it has taken a stream."""

_log = structlog.get_logger()


def targets_of(server: str) -> list[str]:
    """Return the servers of a comma-separated list. Raises: ValueError for one that is not HOST:PORT."""
    targets = [each.strip() for each in server.split(",")]
    for target in targets:
        host, _, port = target.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
            raise ValueError(f"{target!r}: want HOST:PORT")
    return targets


class Renewed(Exception):
    """Signal: a stream ended because there is a newer certificate."""


class Link:
    """State that both streams share: the stub, the main credential, and the reconnect logic.

    `target` is a comma-separated list of HOST:PORT. A server is used until a stream over it breaks, then the next
    one; the first is drawn at random. With `tls` the channel uses mutual TLS; after its certificates were renewed
    the streams move to a new channel.
    """

    def __init__(self, target: str, token: str, clock: Clock, random: Random, tls: "ClientTls | None" = None) -> None:
        self._targets = targets_of(target)
        self._at = int(random.random() * len(self._targets)) if len(self._targets) > 1 else 0
        self.clock, self.random, self.tls = clock, random, tls
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.reconnects = self.renewals = 0
        self._failures = 0
        self._renewed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._connect()

    @property
    def target(self) -> str:
        """The server in use."""
        return self._targets[self._at]

    def _connect(self) -> None:
        if self.tls is None:
            self.channel = grpc.aio.insecure_channel(self.target, options=CHANNEL_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(self.target, self.tls.credentials(), options=CHANNEL_OPTIONS)
        self.stub: Any = ApiServerStub(self.channel)

    async def follow_certificates(self) -> None:
        """Make a new channel whenever the certificate files have changed; only cancellation ends it."""
        while self.tls is not None:
            await asyncio.sleep(RELOAD_S)
            if not self.tls.has_changed():
                continue
            renewed = self._renewed
            self._renewed = asyncio.Event()
            self._leave_channel()
            self.renewals += 1
            renewed.set()

    def _leave_channel(self) -> None:
        """Make a new channel; what is under way over the old one may still end."""
        old = self.channel
        self._connect()
        closing = asyncio.create_task(old.close(LEAVE_MAX_S))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _try_next(self, broken: Any) -> None:
        """Use the next server, unless the other stream has gone there already."""
        if len(self._targets) > 1 and broken is self.channel:
            self._at = (self._at + 1) % len(self._targets)
            self._leave_channel()

    async def close(self) -> None:
        """Close the channel, and the old ones that still have open calls."""
        await self.channel.close()
        for closing in list(self._closing):
            closing.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _leave_when_renewed(self, renewed: asyncio.Event, leave: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await renewed.wait()
        await leave()
        raise Renewed

    async def keep_up(
        self,
        method: str,
        has_work: asyncio.Event,
        parts: Callable[[Any, AsyncIterator[Any]], tuple[Coroutine[Any, Any, None], ...]],
        broken: Callable[[str, bytes | None], None],
        leave: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Keep a stream of that method up while `has_work` is set; only cancellation ends it.

        `parts`: the sender and the receiver (of the iterator's frames); both run until the first of them fails.
        `broken` gets the reason, and the Status document of a refused stream. `leave` waits until the stream may be
        replaced by one with newer certificates.
        """
        backoff = Backoff(self.random)
        while True:
            await has_work.wait()
            began, channel = self.clock.now(), self.channel
            stream, renewed = getattr(self.stub, method)(metadata=self.metadata), self._renewed
            is_renewed = False
            try:
                async with asyncio.TaskGroup() as group:
                    if self.tls is not None:
                        group.create_task(self._leave_when_renewed(renewed, leave))
                    for part in parts(stream, self._frames(stream, backoff)):
                        group.create_task(part)
            except* Renewed:
                is_renewed = True
                broken("it was left for one with newer certificates", None)
            except* Exception as errors:
                error = await _ending(stream, errors)
                why = str(error) or type(error).__name__
                if isinstance(error, grpc.aio.AioRpcError):
                    why = f"{error.code().name}: {error.details()}"
                await self._on_failed(why)
                self._try_next(channel)
                broken(why, _status_of(error))
            finally:
                stream.cancel()
            # A stream that broke after a healthy while comes back at once; what is unsent waits.
            if not is_renewed and self.clock.now() - began < BACKOFF_MAX_S:
                most_s = NEXT_SERVER_MAX_S if len(self._targets) > 1 else BACKOFF_MAX_S
                await wait_for_attempt(lambda: self.channel.get_state(try_to_connect=True), backoff.next_s(), most_s)

    async def _frames(self, stream: Any, backoff: Backoff) -> AsyncIterator[Any]:
        """Yield what the server sends. Raises: ConnectionError when it has closed the stream; AioRpcError."""
        while (frame := await stream.read()) is not grpc.aio.EOF:
            backoff.reset()
            if self._failures >= TRIES_BEFORE_LOGGING:
                _log.info("apiserver.reached", target=self.target, tries=self._failures)
            self._failures = 0
            yield frame
        await stream.code()
        raise ConnectionError("the server closed the stream")

    async def _explain(self, why: str) -> tuple[str, str]:
        """Return why no stream comes to be, and what may help."""
        if self.tls is not None:
            why = await self.tls.why_refused(self.target) or why
            return why, "is an API server listening there, and does it trust this certificate?"
        if why.startswith("UNAVAILABLE") and await speaks_tls(self.target):
            return (
                f"{self.target} wants a client certificate, and this process has none",
                "start it with --security strict, --client-certificate, --client-key and --certificate-authority",
            )
        return why, "is an API server listening there, and does it accept this token?"

    async def _on_failed(self, why: str) -> None:
        """Note a stream that broke or never came to be; a row of them is logged, with the reason if a handshake shows
        it (X-TLS3)."""
        self.reconnects += 1
        self._failures += 1
        if self._failures == TRIES_BEFORE_LOGGING or self._failures % 100 == 0:
            # A task of its own: after a group that failed, a timeout in this one ends it for good (Python 3.11.2).
            why, hint = await asyncio.create_task(self._explain(why))
            _log.warning("apiserver.unreachable", target=self.target, tries=self._failures, error=why, hint=hint)


async def wait_for_attempt(
    state: Callable[[], grpc.ChannelConnectivity], backoff_s: float, refused_most_s: float
) -> None:
    """Wait before the next stream attempt: `backoff_s` for a reachable server.

    If connections are refused, wait only until there is one, and at most `refused_most_s`.
    """
    loop = asyncio.get_running_loop()
    until, was_refused = loop.time() + backoff_s, False
    while (left_s := until - loop.time()) > 0:
        match state():
            case grpc.ChannelConnectivity.READY if was_refused:
                return
            case grpc.ChannelConnectivity.TRANSIENT_FAILURE if not was_refused:
                was_refused = True
                until = min(until, loop.time() + refused_most_s)
        await asyncio.sleep(min(left_s, CONNECTED_POLL_S))


async def wait_until_accepted(stream: Any) -> None:
    """Wait until the server has taken a stream; nothing may be written before.

    A write to a stream without a connection succeeds and is lost. A write to a stream that the server is refusing
    hides the reason (grpcio answers it with a status of its own). Raises: AioRpcError, with the server's reason
    when it has refused the stream.
    """
    await stream.wait_for_connection()
    if STREAM_TAKEN[0][0] not in (await stream.initial_metadata() or {}):
        raise await _status(stream)


async def _status(stream: Any) -> grpc.aio.AioRpcError:
    """Return what a stream ended with, once it has ended."""
    return grpc.aio.AioRpcError(
        await stream.code(), await stream.initial_metadata(), await stream.trailing_metadata(), await stream.details()
    )


async def _ending(stream: Any, errors: BaseExceptionGroup[Exception]) -> BaseException:
    """Return why a stream ended, preferring what the other side said over what we noticed first."""
    for error in errors.exceptions:
        if isinstance(error, grpc.aio.AioRpcError | ConnectionError):
            return error
        if not isinstance(error, asyncio.InvalidStateError):
            _log.error("rpc.stream_failed", error=repr(error), exc_info=error)
            return error
    # Writing to a stream that is over says only that; its status says why.
    return await _status(stream)


def _status_of(error: BaseException) -> bytes | None:
    """Return the Status document a refusal carried; None when the other end has not spoken."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return None
    for key, value in error.trailing_metadata() or ():
        if key == "mesh-status-bin":
            return value if isinstance(value, bytes) else value.encode()
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return msgspec.json.encode(Unauthorized(error.details() or "the token was refused").status())
    return None
