"""Transport to an API server in another process: one channel, one stream of calls, one stream of watches.

All requests of the process go through the multiplexed `Mutate` stream, all watches through the multiplexed
`Watch` stream (`protos/mesh/v1`), for all of its identities. Both streams reconnect by themselves. A request
without an answer at a broken connection is an `UnknownOutcome` for the caller, never a guess. An unsent request
waits for the next connection, within its deadline.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from services.api.errors import ApiError, Unauthorized
from services.api.seams import Clock, Random
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest
from services.client.channel import Link
from services.client.client import ATTEMPT_MAX_S
from services.client.mutate_stream import Calls
from services.client.watch_stream import Watches
from services.telemetry.metrics import Metrics, Samples, counter, gauge, histogram

if TYPE_CHECKING:
    from services.client.tls import ClientTls

CANCEL_AGAIN_S = 0.1

_log = structlog.get_logger()


class _IdentityApi:
    """The API for one identity with a fixed token."""

    def __init__(self, calls: Calls, watches: Watches, token: str) -> None:
        self._calls, self._watches, self._token = calls, watches, token

    async def call(self, request: Request) -> Response:
        """Return the definite answer. Raises: UnknownOutcome."""
        return await self._calls.call(request, self._token)

    def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches. Raises: ApiError when refused, UnknownOutcome when the connection is lost."""
        return self._watches.watch(request, self._token)


class _NodeApi:
    """The API for one node; a refused token is exchanged once before the refusal reaches the caller."""

    def __init__(self, calls: Calls, watches: Watches, renew: Callable[[], Awaitable[str]], token: str) -> None:
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
    """Connection to the API server at `target` with this process's tokens; implements `Transport`.

    `target` is HOST:PORT, or a comma-separated list of equivalent ones. `tokens`: {identity: token}, the first is
    the main one. `tls`: the process's certificate. If it names the main identity, or there are no tokens, it is the
    credential, and the main token is not sent. Make it inside the running event loop. The streams start with the
    first use and end with `close`.
    """

    def __init__(
        self, target: str, tokens: Mapping[str, str], *, clock: Clock, random: Random, tls: "ClientTls | None" = None
    ) -> None:
        self._tokens = dict(tokens)
        certified = tls.user if tls is not None else ""
        self._main = next(iter(self._tokens), certified)
        self._link = Link(target, self._tokens[self._main] if self._main != certified else "", clock, random, tls)
        self._calls = Calls(self._link)
        self._watches = Watches(self._link)
        self._tasks: list[asyncio.Task[None]] = []
        self._node_apis: dict[str, _NodeApi] = {}

    def api(self, identity: str = "") -> Api:
        """Return the API for one of this process's identities. Raises: KeyError without its token."""
        self._start()
        identity = identity or self._main
        if identity != self._main and identity not in self._tokens:
            raise KeyError(f"this process has no token of {identity}; it has {', '.join(self._tokens) or 'none'}")
        return _IdentityApi(self._calls, self._watches, "" if identity == self._main else self._tokens[identity])

    async def node_api(self, node: str) -> Api:
        """Return the API for `system:node:<node>`. Raises: Forbidden when this process may not host that node;
        UnknownOutcome.
        """
        self._start()
        if node not in self._node_apis:
            token = await self._node_token(node)
            self._node_apis[node] = _NodeApi(self._calls, self._watches, lambda: self._node_token(node), token)
        return self._node_apis[node]

    async def _node_token(self, node: str) -> str:
        response = await self._calls.call(
            Request(verb="create", resource="nodetokens", name=node, deadline_s=ATTEMPT_MAX_S), ""
        )
        return str(msgspec.json.decode(response.unwrap().body)["token"])

    def _start(self) -> None:
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._calls.run()), loop.create_task(self._watches.run())]
            if self._link.tls is not None:
                self._tasks.append(loop.create_task(self._link.follow_certificates()))
            for task in self._tasks:
                task.add_done_callback(_report)

    def request_progress(self, resources: Iterable[str]) -> None:
        """Ask the server for a bookmark on each watch of these resources, to confirm that quiet ones are current."""
        self._start()
        self._watches.request_progress(resources)

    @property
    def has_credentials(self) -> bool:
        """Whether the API server can identify this connection."""
        return bool(self._main)

    @property
    def tls(self) -> "ClientTls | None":
        """The process's certificate; None for a plain connection."""
        return self._link.tls

    def metrics(self) -> Samples:
        """Return the connection's metrics."""
        return METRICS.of(self)

    async def close(self) -> None:
        """End both streams; waiting callers must be cancelled by their owners."""
        self._calls.stop_sweeping()
        await end(self._tasks)
        await self._link.close()


METRICS: Final[Metrics[RpcTransport]] = Metrics(
    counter("keplab_rpc_requests_total", "Requests sent.", lambda rpc: rpc._calls.requests),
    counter("keplab_rpc_batches_total", "Frames that carried them.", lambda rpc: rpc._calls.batches),
    counter(
        "keplab_rpc_messages_total",
        "Messages by direction: requests sent, answers and watch events received.",
        lambda rpc: {"sent": rpc._calls.requests, "received": rpc._calls.answers + rpc._watches.events},
        "direction",
    ),
    counter(
        "keplab_rpc_bytes_total",
        "Bytes of the objects in them, without envelopes.",
        lambda rpc: {
            "sent": rpc._calls.sent_bytes,
            "received": rpc._calls.received_bytes + rpc._watches.received_bytes,
        },
        "direction",
    ),
    counter(
        "keplab_rpc_errors_total",
        "Requests without an answer (unknown), and answers that the server cannot (server).",
        lambda rpc: rpc._calls.errors,
        "reason",
    ),
    histogram("keplab_rpc_duration_seconds", "How long answers took.", lambda rpc: rpc._calls.took_s),
    counter("keplab_rpc_renewals_total", "Channels made for newer certificates.", lambda rpc: rpc._link.renewals),
    counter("keplab_rpc_reconnects_total", "Connections made after the first.", lambda rpc: rpc._link.reconnects),
    gauge("keplab_rpc_requests_in_flight", "Requests without an answer.", lambda rpc: rpc._calls.in_flight),
    gauge("keplab_rpc_watches_open", "Watches over the connection.", lambda rpc: rpc._watches.open),
)


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel the tasks until they are done.

    One cancellation is not enough: up to Python 3.12, a task group that is already failing reports only the
    failure, and a stream that keeps itself up would go on.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("rpc.stream_failed", error=repr(error), exc_info=error)
