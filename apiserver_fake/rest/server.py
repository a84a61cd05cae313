"""The REST server for kubectl and client-go: HTTP/1.1 and JSON over the same registry as the mesh's gRPC server.

A request becomes one `Request` (`paths`) and goes through the caller's `Api`. Its answer has the stored bytes; only
Tables, metadata-only answers and YAML are made here. Health, version, discovery and OpenAPI are answered without
reading the store. This module authenticates a request, waits for its turn and dispatches it to its handler
(`handlers`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from apiserver_fake.extensions.fairness.flow_schemas import FLOW_HEADERS, attributes_of
from apiserver_fake.extensions.fairness.gate import Overloaded
from apiserver_fake.extensions.fairness.queue_set import ONE, WAITING
from apiserver_fake.rates import Count
from apiserver_fake.registry.errors import method_not_allowed
from apiserver_fake.rest import compression, discovery, media_types, paths
from apiserver_fake.rest.encoding import Encoding
from apiserver_fake.rest.handlers.answers import Answers
from apiserver_fake.rest.handlers.authentication import Authentication
from apiserver_fake.rest.handlers.calls import Calls
from apiserver_fake.rest.handlers.discovery_pages import DiscoveryPages
from apiserver_fake.rest.handlers.path_rights import PathRights
from apiserver_fake.rest.handlers.pod_connections import PodConnections
from apiserver_fake.rest.handlers.resources import ResourceRequests
from apiserver_fake.rest.handlers.review_requests import ReviewRequests
from apiserver_fake.rest.handlers.server_pages import ServerPages
from apiserver_fake.rest.http import (
    BodyTimeout,
    HttpRequest,
    ServerLog,
    audit_id,
    indent_json,
    is_pretty,
    page_not_found,
    refusal_answer,
    trail_of,
)
from apiserver_fake.rest.listener import Listener
from apiserver_fake.rest.protobuf import NotAcceptable
from apiserver_fake.rest.streaming import Kubelets, KubeletTls
from apiserver_fake.server import ApiServer
from apiserver_fake.storage.memory import end_for_memory
from services.api.errors import ApiError, Forbidden, Timeout, TooManyRequests, Unauthorized, UnknownOutcome
from services.api.identity import ANONYMOUS, Identity
from services.api.seams import Clock, Tracer
from services.runtime.serving_tls import ServingTls
from services.runtime.web import LOOPBACK_NAMES

log = structlog.get_logger()

REQUEST_LINE_BYTES_MAX = 1 << 20
"""Largest request line in bytes, as in Go's server: selectors are part of the URL, and clients send long ones."""
KEEPALIVE_S = 75.0
LINGERING_S = 2.0
"""Seconds for which the rest of a refused body is still read and dropped."""
SHUTDOWN_S = 2.0
LONG_RUNNING = frozenset(("attach", "exec", "proxy", "log", "portforward"))
"""Subresources whose requests last as long as the client wants; priority and fairness does not count them."""
EXACT = frozenset(("healthz", "livez", "readyz", "metrics", "openapi", "index.html", "statusz", "flagz"))
"""First segments of paths that are not served with a trailing slash."""


@dataclass(frozen=True)
class RestSettings:
    """Settings of the REST server.

    `allowed_hosts`: host names, besides the loopback ones, under which it may be addressed (X-WEB).
    `first_request_max_s`: seconds that a connection may last without one whole request head (L-CONN).
    `has_sessions`: whether Nodes show the session of their kubelet (kubelet-unbinding 4.5). `send_blocked_max_s`:
    seconds for which one send of a watch may block before the stream is cut (L-WS). `connections_max`,
    `connections_per_address_max`: limits of connections; `idle_max`: limit of those between two requests;
    `handshake_max_s`: time limit of a TLS handshake in seconds (L-CONN). `flags`: the flags of the process, which
    `/flagz` shows.
    """

    allowed_hosts: tuple[str, ...] = ()
    first_request_max_s: float = 10.0
    send_blocked_max_s: float = 10.0
    has_sessions: bool = True
    connections_max: int = 12_000
    connections_per_address_max: int = 2_000
    idle_max: int = 1_000
    handshake_max_s: float = 10.0
    flags: Mapping[str, str] = field(default_factory=dict)


Page = Callable[[web.BaseRequest, Identity, list[str]], Awaitable[web.Response | None]]
"""Handler of a path: `(request, identity, segments of the path)`; returns None for a path that it does not serve."""


class RestHandler:
    """Handles every request of one listener."""

    def __init__(
        self, server: ApiServer, *, clock: Clock, tracer: Tracer, kubelets: Kubelets, settings: RestSettings, host: str
    ) -> None:
        self._server, self._catalogue = server, server.catalogue
        hosts = frozenset((*LOOPBACK_NAMES, host.lower(), *(h.lower() for h in settings.allowed_hosts)))
        self._authentication = Authentication(server, clock, hosts)
        self._rights = PathRights(server)
        encoding = Encoding(has_sessions=settings.has_sessions)
        self._resources = ResourceRequests(
            server,
            server.catalogue,
            clock=clock,
            encoding=encoding,
            rights=self._rights,
            reviews=ReviewRequests(server, server.catalogue, self._rights),
            connections=PodConnections(server, kubelets),
            calls=Calls(clock, tracer, is_admitting=server.access.accounts.is_admitting),
            answers=Answers(clock, encoding, self.next_piece),
            next_piece=self.next_piece,
            send_blocked_max_s=settings.send_blocked_max_s,
        )
        self._discovery = DiscoveryPages(server.catalogue, clock, self.next_piece)
        server_pages = ServerPages(server, server.catalogue, clock, self._rights, settings.flags)
        self._open_pages: dict[str, Page] = {
            "healthz": server_pages.health,
            "livez": server_pages.health,
            "readyz": server_pages.health,
            "version": server_pages.version,
        }
        """Pages that anonymous callers may get even without RBAC, by the first segment of their paths."""
        self._pages: dict[str, Page] = {
            "": self._discovery.index,
            "index.html": self._discovery.index,
            "openapi": self._discovery.openapi,
            "metrics": server_pages.metrics,
            "statusz": server_pages.status,
            "flagz": server_pages.flags,
            "debug": server_pages.debug,
            ".well-known": server_pages.issuer,
            "openid": server_pages.issuer,
            "version": server_pages.below_version,
        }
        """Pages for authenticated callers, or for callers that RBAC allows, by the first segment of their paths."""
        self.active: dict[object, None] = {}
        """Connections that have sent a request, ordered by their last answer; `_SilenceSweep` removes closed ones."""
        self.busy: dict[object, None] = {}
        """Connections whose request is being answered."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer; every refusal is a `Status`, and a bug is a 500 that is logged."""
        connection = request.protocol
        self.busy[connection] = None
        if isinstance(request, HttpRequest):
            request.answer_headers["Audit-Id"] = audit_id(request.headers.get("Audit-Id", ""))
        try:
            answer = await (
                self._answer_or_failure(request) if self._server.audit is None else self._answer_with_audit(request)
            )
            if isinstance(answer, web.Response) and answer.headers.get("Content-Type") == media_types.JSON:
                self._finish_json(request, answer)
            if isinstance(request, HttpRequest) and request.is_compressed and isinstance(answer, web.Response):
                await _compress(answer)
            return answer
        except Exception as error:
            return self._failure(request, error)
        finally:
            self.busy.pop(connection, None)
            self.active.pop(connection, None)
            self.active[connection] = None

    def _failure(self, request: web.BaseRequest, error: Exception) -> web.Response:
        """Log a bug and return the answer 500, so that it affects no other caller (V2).

        Raises: the error itself, if the connection failed.
        """
        if isinstance(error, ConnectionError | asyncio.IncompleteReadError):
            raise error
        if isinstance(error, MemoryError):
            end_for_memory()
        log.error("rest.request_failed", method=request.method, path=request.path, exc_info=error)
        return refusal_answer(ApiError(f"internal error: {type(error).__name__}"))

    async def _answer_with_audit(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer, and record its completion in the audit trail."""
        try:
            answer = await self._answer_or_failure(request)
        except BaseException:
            # The client has gone: the status that was sent until then is recorded.
            if (trail := trail_of(request)) is not None:
                trail.on_response_complete(200 if trail.is_long_running else 500)
            raise
        if (trail := trail_of(request)) is not None:
            is_json = answer.headers.get("Content-Type", "") == media_types.JSON
            body = answer.body if isinstance(answer, web.Response) and is_json else b""
            trail.on_response_complete(answer.status, body if isinstance(body, bytes) else b"")
        return answer

    def _finish_json(self, request: web.BaseRequest, answer: web.Response) -> None:
        """End JSON with a line feed as Go's encoder does, or indent it; leave answers with an ETag unchanged."""
        body = answer.body
        if not isinstance(body, bytes) or body.endswith(b"\n}") or "ETag" in answer.headers:
            return
        answer.body = indent_json(body) if is_pretty(request) else body + b"\n"

    async def _answer_or_failure(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer; 500 for a bug, even in the code of refusals."""
        try:
            return await self._answer_or_refusal(request)
        except Exception as error:
            answer = self._failure(request, error)
            if (trail := trail_of(request)) is not None:
                trail.on_panic(error)
            return answer

    async def _answer_or_refusal(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer or the refusal."""
        try:
            if request.method == "CONNECT":
                # The HTTP library never finds the end of such a request: it would answer for ever.
                refused = self._refusal(request, method_not_allowed())
                refused.force_close()
                return refused
            self._authentication.check_web(request)
            return await self._dispatch(request, await self._authentication.caller(request))
        except BodyTimeout as error:
            refused = self._refusal(request, error)
            refused.force_close()
            return refused
        except Unauthorized as error:
            self._authentication.begin_trail(request, None)
            if not self._authentication.takes_failure(request):
                return self._refusal(request, TooManyRequests("too many failed authentications", retry_after_s=1))
            return self._refusal(request, error)
        except ApiError as error:
            return self._refusal(request, error)
        except UnknownOutcome as error:
            return self._refusal(request, Timeout(f"no answer came in time, the outcome is unknown: {error}"))

    def _refusal(self, request: web.BaseRequest, error: ApiError) -> web.Response:
        """Return a refusal in the form that the client asked for, or in JSON if it accepts no served form."""
        if isinstance(error, Overloaded):
            headers = {"Retry-After": str(error.retry_after_s), "X-Content-Type-Options": "nosniff"}
            return web.Response(text=f"{error.message}\n", status=error.code, headers=headers)
        try:
            return refusal_answer(error, media_types.negotiate(request.headers.get("Accept", "")))
        except NotAcceptable:
            return refusal_answer(error)

    async def _dispatch(self, request: web.BaseRequest, identity: Identity) -> web.StreamResponse:
        if paths.is_malformed(request.raw_path):
            return web.Response(text="400 Bad Request", status=400)
        parts = paths.split(request.rel_url.raw_path)
        if (fairness := self._server.fairness) is None or not isinstance(request, HttpRequest):
            return await self._serve(request, identity, parts)
        asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
        flow = fairness.flow_of(identity, asked)
        if flow.uids[0]:
            request.answer_headers |= dict(zip(FLOW_HEADERS, flow.uids, strict=True))
        if asked.subresource in LONG_RUNNING or asked.verb == "proxy":
            return await self._serve(request, identity, parts)
        cost = ONE
        if asked.resource and asked.verb != "get" and (asked.verb != "watch" or _begins_with_state(request)):
            resource = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
            limit = _limit_of(request) if asked.verb == "list" else 0
            cost = fairness.work_of(flow, asked, resource, limit, self._server.hub.count_interested(resource))
        turn = request.turn = fairness.enter(flow, identity, asked, cost)
        try:
            if turn.state is WAITING:
                await fairness.wait(turn)
            return await self._serve(request, identity, parts)
        finally:
            fairness.leave(turn)

    async def _serve(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.StreamResponse:
        """Return the answer to a request whose turn it is."""
        raw_path = request.rel_url.raw_path
        place = _place_of(parts)
        if self._server.access.is_rbac and place is None:
            self._rights.authorize_path(request, identity)
        if raw_path.startswith("//") or (raw_path.endswith("/") and parts[0] in EXACT):
            return page_not_found()
        if place is not None and (place[0] or parts[0] == "api") and discovery.is_served(self._catalogue, *place[:2]):
            return await self._resources.resource(request, identity, *place)
        if (answer := await _page(self._open_pages, request, identity, parts)) is not None:
            return answer
        if identity.user == ANONYMOUS.user and not self._server.access.is_rbac:
            raise Forbidden(f'forbidden: User "{identity.user}" cannot {request.method.lower()} path "{request.path}"')
        if (answer := await _page(self._pages, request, identity, parts)) is not None:
            return answer
        if place is not None:
            self._rights.authorize_unserved(request, identity)
        return self._discovery.document(request, parts)

    async def next_piece(self) -> None:
        """Wait for the turn of a long answer's next piece; other requests are served in between."""
        fairness = self._server.fairness
        await (fairness.slices.next() if fairness is not None else asyncio.sleep(0))


async def _compress(answer: web.Response) -> None:
    if isinstance(answer.body, bytes):
        answer.body = await compression.compress(answer.body)
        answer.headers.update(compression.HEADERS)


def _place_of(parts: list[str]) -> tuple[str, str, list[str]] | None:
    """Return group, version and further segments of a resource's path; None for another path."""
    match parts:
        case ["api", version, _, *_]:
            return "", version, parts[2:]
        case ["apis", group, version, _, *_]:
            return group, version, parts[3:]
    return None


async def _page(
    pages: Mapping[str, Page], request: web.BaseRequest, identity: Identity, parts: list[str]
) -> web.Response | None:
    """Return the page of a path; None if there is none."""
    page = pages.get(parts[0])
    return await page(request, identity, parts) if page is not None else None


def _limit_of(request: web.BaseRequest) -> int:
    """Return the `limit` of a list; 0 if it is absent or malformed."""
    limit = request.rel_url.query.get("limit", "")
    return int(limit) if limit.isascii() and limit.isdigit() and len(limit) < 10 else 0


def _begins_with_state(request: web.BaseRequest) -> bool:
    """Whether a watch begins with the existing objects."""
    query = request.rel_url.query
    return "sendInitialEvents" in query or query.get("resourceVersion", "") in ("", "0")


class _Protocols(web.Server):
    """Factory of the HTTP library's protocol for each connection; `gone` is called with those that have ended."""

    gone: Callable[[asyncio.BaseProtocol], None]

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Report the end of a connection."""
        super().connection_lost(handler, exc)
        self.gone(handler)


class _SilenceSweep:
    """Closes connections that never send a request; the HTTP library's own time-outs begin with the first request.

    If too many connections are idle between requests, it also closes those that are idle for longest.
    """

    def __init__(self, server: web.Server, handler: RestHandler, clock: Clock, settings: RestSettings) -> None:
        self._server, self._handler, self._clock = server, handler, clock
        self._allowed_s, self._idle_max = settings.first_request_max_s, settings.idle_max
        self._silent_since: dict[object, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check connections periodically until `stop`; a silent one lasts at most 1.4 times the allowed time."""
        now, active = self._clock.now(), self._handler.active
        connections = self._server.connections
        # A long request, such as a watch, may be the first request of its connection.
        silent = [c for c in connections if c not in active and c not in self._handler.busy]
        self._silent_since = {c: self._silent_since.get(c, now) for c in silent}
        present = frozenset(connections)
        self._handler.active = {c: None for c in active if c in present}
        idle = [c for c in self._handler.active if c not in self._handler.busy]
        for connection in idle[: max(0, len(idle) - self._idle_max)]:
            connection.force_close()  # type: ignore[attr-defined]
        for connection in silent:
            if now - self._silent_since[connection] >= self._allowed_s:
                connection.force_close()
        self._timer = asyncio.get_running_loop().call_later(self._allowed_s / 5, self.start)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> HttpRequest:
    return HttpRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())


async def serve(
    server: ApiServer,
    host: str,
    port: int,
    *,
    clock: Clock,
    tracer: Tracer,
    settings: RestSettings | None = None,
    tls: ServingTls | None = None,
    kubelet_tls: KubeletTls | None = None,
) -> tuple[AsyncExitStack, int]:
    """Listen on `host:port` (0: any free port). Return an exit stack that stops the server, and the port.

    With `tls` it serves HTTPS, else plain HTTP. `kubelet_tls`: TLS settings for calls to kubelets.

    The exit stack stops accepting, gives running requests a moment, and closes connections.

    Raises: OSError when the address cannot be bound.
    """
    chosen = settings or RestSettings()
    running = AsyncExitStack()
    session = await running.enter_async_context(aiohttp.ClientSession(auto_decompress=True))
    handler = RestHandler(
        server,
        clock=clock,
        tracer=tracer,
        kubelets=Kubelets(session, kubelet_tls, lambda: server.callers.kubelet_token()),
        settings=chosen,
        host=host,
    )
    protocols = _Protocols(
        handler.handle,
        handler_cancellation=True,
        tcp_keepalive=True,
        keepalive_timeout=KEEPALIVE_S,
        lingering_time=LINGERING_S,
        access_log=None,
        max_line_size=REQUEST_LINE_BYTES_MAX,
        max_field_size=REQUEST_LINE_BYTES_MAX,
        request_factory=_request,
        auto_decompress=False,  # `read_body` refuses a body that contradicts its header, and cuts a compression bomb
        logger=ServerLog(logging.getLogger(__name__)),
    )
    runner = web.ServerRunner(protocols, shutdown_timeout=SHUTDOWN_S)
    running.push_async_callback(runner.cleanup)
    sweep = _SilenceSweep(protocols, handler, clock, chosen)
    running.callback(sweep.stop)
    count = Count(chosen.connections_max, chosen.connections_per_address_max)
    context = tls.context if tls is not None else None
    listener = Listener(protocols, count, clock, context, chosen.handshake_max_s, handler.next_piece)
    protocols.gone = listener.on_disconnect
    running.push_async_callback(listener.close)
    try:
        await runner.setup()
        bound = await listener.open(host, port)
    except OSError:
        await running.aclose()
        raise
    sweep.start()
    return running, bound
