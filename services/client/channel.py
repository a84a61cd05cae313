"""What the streams of a channel share: its options, the way back after a break, and why a stream ended."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import grpc.aio
import msgspec
import structlog

from protos.mesh.v1.apiserver_pb2_grpc import ApiServerStub
from services.api.errors import Unauthorized
from services.api.seams import Clock, Random
from services.client.client import BACKOFF_MAX_S, Backoff

BATCH_REQUESTS_MAX = 256
TRIES_BEFORE_LOGGING = 3

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
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.enable_retries", 0),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_BOTH_ENDS,
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),
    ("grpc.server.max_pending_requests", 10_000),
)
"""The server's half of L-KA; a port that is taken must be an error, and bursts of opens must not be shed."""

STREAM_TAKEN = (("mesh-taken", "1"),)
"""The metadata a server begins a stream with that it has taken."""

_log = structlog.get_logger()


class Link:
    """What both streams share: the stub, the main credential, and the way back after a break."""

    def __init__(self, target: str, token: str, clock: Clock, random: Random) -> None:
        self.target, self.clock, self.random = target, clock, random
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.channel = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        self.stub: Any = ApiServerStub(self.channel)
        self.reconnects = 0
        self._failures = 0

    async def keep_up(
        self,
        opened: Callable[..., Any],
        has_work: asyncio.Event,
        parts: Callable[[Any, AsyncIterator[Any]], tuple[Coroutine[Any, Any, None], ...]],
        broken: Callable[[str, bytes | None], None],
    ) -> None:
        """Keep a stream up while there is anything to do over it; only cancellation ends it.

        `parts`: what sends, what receives (the frames of the iterator), all at work until the first of them fails.
        `broken` learns why, and the Status document that the refusal of a stream carried.
        """
        backoff = Backoff(self.random)
        while True:
            await has_work.wait()
            began = self.clock.now()
            stream = opened(metadata=self.metadata)
            try:
                async with asyncio.TaskGroup() as group:
                    for part in parts(stream, self._frames(stream, backoff)):
                        group.create_task(part)
            except* Exception as errors:
                error = await _ending(stream, errors)
                why = str(error) or type(error).__name__
                if isinstance(error, grpc.aio.AioRpcError):
                    why = f"{error.code().name}: {error.details()}"
                self._failed(why)
                broken(why, _status_of(error))
            finally:
                stream.cancel()
            # A stream that broke after a healthy while comes back at once; what is unsent waits.
            if self.clock.now() - began < BACKOFF_MAX_S:
                await asyncio.sleep(backoff.next_s())

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

    def _failed(self, why: str) -> None:
        """Note a stream that broke or never came to be; a row of them is logged."""
        self.reconnects += 1
        self._failures += 1
        if self._failures == TRIES_BEFORE_LOGGING or self._failures % 100 == 0:
            hint = "is an API server listening there, and does it accept this token?"
            _log.warning("apiserver.unreachable", target=self.target, tries=self._failures, error=why, hint=hint)


async def taken(stream: Any) -> None:
    """Wait until the server has taken a stream, before which nothing may be written.

    A write to a stream without a connection succeeds and is lost; one to a stream that the server is
    refusing hides why it does (grpcio answers it with a status of its own).
    Raises: AioRpcError, with the server's reason when it has refused the stream.
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
