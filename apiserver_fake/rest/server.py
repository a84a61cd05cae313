"""The server that kubectl and client-go know: HTTP/1.1 and JSON over the same registry as the mesh's own server.

A request becomes one `Request` (`paths`), goes through the caller's `Api` and comes back as the very bytes that were
stored; only Tables, metadata-only answers and YAML are made here. Health, version, discovery and OpenAPI are answered
without touching the store. This file is the shell; what it decides with is in the plain functions of its neighbours.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import aiohttp
import msgspec
import structlog
from aiohttp import HttpVersion11, web
from aiohttp.web_protocol import RequestHandler

from apiserver_fake.extensions.fairness.flow_schemas import FLOW_HEADERS, attributes_of
from apiserver_fake.extensions.fairness.gate import REQUEST_S, Overloaded
from apiserver_fake.extensions.fairness.queue_set import ONE, WAITING
from apiserver_fake.rates import Count, Rate
from apiserver_fake.registry.admission.service_account import is_without_default_account
from apiserver_fake.registry.authorization import reviews
from apiserver_fake.registry.decode import json_object
from apiserver_fake.registry.errors import invalid_option, method_not_allowed, no_such_path, not_found
from apiserver_fake.registry.policy import Attributes
from apiserver_fake.registry.read import with_items
from apiserver_fake.rest import (
    connections,
    discovery,
    health,
    lists,
    media_types,
    openapi,
    paths,
    pod_streams,
    protobuf,
    streaming,
    tables,
    watch,
    zpages,
)
from apiserver_fake.rest.encoding import Encoding
from apiserver_fake.rest.http import (
    GZIP_MIN_BYTES,
    JSON_HEADERS,
    TEXT_HEADERS,
    BodyTimeout,
    HttpRequest,
    ServerLog,
    audit_id,
    bearer_of,
    cached_answer,
    encoded,
    indented,
    is_encodable,
    is_pretty,
    is_traceparent,
    json_answer,
    json_from,
    may_be_compressed,
    page_answer,
    page_not_found,
    raw_json,
    read_body,
    refusal_answer,
    source_of,
    trail_of,
    warning_header,
)
from apiserver_fake.rest.impersonation import impersonated
from apiserver_fake.rest.listener import Listener
from apiserver_fake.rest.media_types import PLAIN, Form
from apiserver_fake.rest.paths import Parameters, Route
from apiserver_fake.rest.protobuf import NotAcceptable
from apiserver_fake.rest.streaming import Kubelets, KubeletTls, Target
from apiserver_fake.rest.versions import versioned
from apiserver_fake.server import ApiServer
from apiserver_fake.storage.memory import end_for_memory
from services.api.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnknownOutcome,
)
from services.api.identity import ADMIN, ANONYMOUS, MASTERS_GROUP, Identity, external
from services.api.meta import Document, Resource
from services.api.release import RELEASES
from services.api.seams import Clock, Span, Tracer
from services.api.times import format_time
from services.api.wire import Api, Request, Response
from services.runtime.health import joined
from services.runtime.serving_tls import ServingTls, identity_of_peer
from services.runtime.web import LOOPBACK_NAMES, host_name, is_allowed_host
from services.telemetry.calls import serving
from services.telemetry.exposition import Exposition

log = structlog.get_logger()

REQUEST_LINE_BYTES_MAX = 1 << 20
"""As Go's server has it: selectors travel in the address, and clients send long ones."""
KEEPALIVE_S = 75.0
LINGERING_S = 2.0
"""For how long more of a body is read and dropped that was refused before its end."""
_NAMED = (
    "cronjobs.batch daemonsets.apps deployments.apps jobs.batch namespaces nodes"
    " persistentvolumeclaims persistentvolumes pods replicasets.apps replicationcontrollers"
    " resourcequotas services statefulsets.apps"
)
_NAMES_OF = {name: f"k8s.{name.partition('.')[0].removesuffix('s')}.name" for name in _NAMED.split()}
"""Resource to the attribute that OpenTelemetry's conventions have for the name of an object of it."""
MUTATING = frozenset(("POST", "PUT", "PATCH", "DELETE"))
SHUTDOWN_S = 2.0
YEAR_S = 365 * 86400.0
STREAMED_ABOVE = 500
"""Lists of more objects are sent while they are written."""
PROTOBUF_PIECE = 50
"""How many objects are encoded in protobuf at a time; others have their turn between."""
ACCOUNT_TRIES, ACCOUNT_WAIT_S = 10, 0.15
"""How often and after how long a pod's creation is tried again that only lacks its namespace's default account."""
FAILED_LOGINS_PER_S = 20
"""How many failed authentications of one address are answered with 401."""
LONG_RUNNING = frozenset(("attach", "exec", "proxy", "log", "portforward"))
"""Subresources whose requests last as long as their clients want; they are not counted."""
CONVERSIONS = ("Table", "PartialObjectMetadata")
CREATED_SUBRESOURCES = frozenset(("binding", "eviction", "token"))
"""What is created and never read: its answers are made into no table, as those of reviews."""
EXACT = frozenset(("healthz", "livez", "readyz", "metrics", "openapi", "index.html", "statusz", "flagz"))
"""First segments of paths that are not served with a slash behind them."""


@dataclass(frozen=True)
class RestSettings:
    """How the REST server behaves.

    `allowed_hosts`: names besides the loopback ones under which it may be addressed (X-WEB).
    `first_request_max_s`: how long a connection may stay without having sent one whole request head (L-CONN).
    `has_sessions`: whether Nodes show the session of their kubelet (kubelet-unbinding 4.5).
    `send_blocked_max_s`: how long one send of a watch may block before the stream is cut (L-WS).
    `connections_max`, `connections_per_address_max`: how many there may be, `idle_max` of them between two requests;
    `handshake_max_s`: how long a TLS handshake may take (L-CONN).
    `flags`: what the process was started with, which `/flagz` shows.
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


class RestHandler:
    """Handles every request of one listener."""

    def __init__(
        self, server: ApiServer, *, clock: Clock, tracer: Tracer, kubelets: Kubelets, settings: RestSettings, host: str
    ) -> None:
        self._server, self._clock, self._tracer = server, clock, tracer
        self._catalogue = server.catalogue
        self._kubelets, self._settings = kubelets, settings
        self._began_s = clock.wall()
        self._encoding = Encoding(has_sessions=settings.has_sessions)
        self._rows, self._exposition = lists.Rows(), Exposition()
        self.active: dict[object, None] = {}
        """The connections that have sent a request, in the order of their last answers; `_SilenceSweep` forgets those
        that are gone."""
        self.busy: dict[object, None] = {}
        """Those whose request is being answered."""
        self._failed_logins = Rate(FAILED_LOGINS_PER_S, FAILED_LOGINS_PER_S)
        self._allowed_hosts = frozenset((*LOOPBACK_NAMES, host.lower(), *(h.lower() for h in settings.allowed_hosts)))

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer; every refusal is a `Status`, and a bug is a 500 that is logged."""
        connection = request.protocol
        self.busy[connection] = None
        if isinstance(request, HttpRequest):
            request.answer_headers["Audit-Id"] = audit_id(request.headers.get("Audit-Id", ""))
        try:
            answer = await (self._handled(request) if self._server.audit is None else self._audited(request))
            if isinstance(answer, web.Response) and answer.headers.get("Content-Type") == media_types.JSON:
                self._finish_json(request, answer)
            return answer
        except Exception as error:
            return self._failure(request, error)
        finally:
            self.busy.pop(connection, None)
            self.active.pop(connection, None)
            self.active[connection] = None

    def _failure(self, request: web.BaseRequest, error: Exception) -> web.Response:
        """Return what is answered because of a bug: this caller must get an answer, and the others be left alone (V2).

        Raises: the error, where the connection is what failed.
        """
        if isinstance(error, ConnectionError | asyncio.IncompleteReadError):
            raise error
        if isinstance(error, MemoryError):
            end_for_memory()
        log.error("rest.request_failed", method=request.method, path=request.path, exc_info=error)
        return refusal_answer(ApiError(f"internal error: {type(error).__name__}"))

    async def _audited(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer, and record that it is given."""
        try:
            answer = await self._handled(request)
        except BaseException:
            # The client has gone; what it was answered until then stands.
            if (trail := trail_of(request)) is not None:
                trail.completed(200 if trail.is_long_running else 500)
            raise
        if (trail := trail_of(request)) is not None:
            is_json = answer.headers.get("Content-Type", "") == media_types.JSON
            body = answer.body if isinstance(answer, web.Response) and is_json else b""
            trail.completed(answer.status, body if isinstance(body, bytes) else b"")
        return answer

    def _begin_trail(self, request: web.BaseRequest, caller: Identity | None) -> None:
        """Begin the audit trail of a request, whose caller is known, or known to be none."""
        audit = self._server.audit
        if audit is None or not isinstance(request, HttpRequest):
            return
        parts = paths.split(request.rel_url.raw_path)
        asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
        version = "" if asked.path else parts[1] if parts[0] == "api" else parts[2]
        known = request.answer_headers["Audit-Id"]
        if caller is None:
            tried = "bearer" if request.headers.get("Authorization", "").lower().startswith("bearer ") else ""
            audit.refused(asked, source_of(request), audit_id=known, version=version, tried=tried)
            return
        request.trail = audit.begin(caller, asked, source_of(request), audit_id=known, version=version)

    def _finish_json(self, request: web.BaseRequest, answer: web.Response) -> None:
        """End JSON as Go's encoder does, or indent it; what clients may keep stays as it is."""
        if "ETag" in answer.headers or not isinstance(answer.body, bytes) or answer.body.endswith(b"\n}"):
            return
        body = answer.body
        answer.body = indented(body) if is_pretty(request) else body + b"\n"

    async def _handled(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer, or the one to a bug: also to one in a refusal."""
        try:
            return await self._answered(request)
        except Exception as error:
            answer = self._failure(request, error)
            if (trail := trail_of(request)) is not None:
                trail.panicked(error)
            return answer

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer or the refusal."""
        try:
            if request.method == "CONNECT":
                # The HTTP library reads no end of such a request: it would answer for ever.
                refused = self._refusal(request, method_not_allowed())
                refused.force_close()
                return refused
            self._check_web(request)
            return await self._dispatch(request, await self._caller(request))
        except BodyTimeout as error:
            refused = self._refusal(request, error)
            refused.force_close()
            return refused
        except Unauthorized as error:
            self._begin_trail(request, None)
            if not self._failed_logins.take(request.remote, self._clock.now()):
                return self._refusal(request, TooManyRequests("too many failed authentications", retry_after_s=1))
            return self._refusal(request, error)
        except ApiError as error:
            return self._refusal(request, error)
        except UnknownOutcome as error:
            return self._refusal(request, Timeout(f"no answer came in time, the outcome is unknown: {error}"))

    def _refusal(self, request: web.BaseRequest, error: ApiError) -> web.Response:
        """Return a refusal in the form the client asked for, or in JSON where it takes none of ours."""
        if isinstance(error, Overloaded):
            headers = {"Retry-After": str(error.retry_after_s), "X-Content-Type-Options": "nosniff"}
            return web.Response(text=f"{error.message}\n", status=error.code, headers=headers)
        try:
            return refusal_answer(error, media_types.negotiate(request.headers.get("Accept", "")))
        except NotAcceptable:
            return refusal_answer(error)

    def _check_web(self, request: web.BaseRequest) -> None:
        local = request.transport.get_extra_info("sockname") if request.transport is not None else None
        host = request.headers.get("Host", "")
        if not is_allowed_host(host, self._allowed_hosts, local[0] if local else ""):
            raise Forbidden(f"the host name {host_name(host)[:100]!r} is not one of this server's")
        origin = request.headers.get("Origin", "")
        # Bytes that are no UTF-8 could be shown in no answer and stored in no object.
        if not request.raw_path.isascii() and not is_encodable(request.raw_path):
            raise BadRequest("the address of the request is not UTF-8")
        for name, value in request.headers.items():
            # A credential is never shown, and is refused as any other that is wrong.
            if not value.isascii() and name.lower() != "authorization" and not is_encodable(value):
                raise BadRequest(f"the header {name} is not UTF-8")
        if origin and request.method in MUTATING and origin.lower() != f"{request.scheme}://{host}".lower():
            raise Forbidden("requests that change something must come from this server's own origin")

    async def _caller(self, request: web.BaseRequest) -> Identity:
        """Return who is calling. A token may be good by what another API server has written just now."""
        try:
            return self._identity(request)
        except Unauthorized:
            if not self._server.is_shared:
                raise
        await self._server.catch_up()
        return self._identity(request)

    def _authenticated(self, request: web.BaseRequest) -> Identity:
        """Return whom the certificate names, and without a good one the token."""
        peer = request.transport.get_extra_info("peercert") if request.transport is not None else None
        certified, authorization = identity_of_peer(peer), request.headers.get("Authorization", "")
        if certified is not None:
            try:
                return self._server.callers.certified(certified)
            except Unauthorized:
                if not authorization:
                    raise
        return self._server.callers.authenticate(bearer_of(authorization))

    def _identity(self, request: web.BaseRequest) -> Identity:
        caller = self._authenticated(request)
        if self._server.access.is_rbac:
            caller = external(caller)
        if self._server.audit is None:
            return impersonated(caller, request.headers, self._server.callers.authorize_action)
        self._begin_trail(request, caller)
        trail = trail_of(request)
        try:
            acting = impersonated(caller, request.headers, self._server.callers.authorize_action)
        except ApiError:
            if trail is not None:
                trail.decided(allowed=False, reason="")
            raise
        if trail is not None:
            if acting is not caller:
                trail.impersonates(acting)
            parts = paths.split(request.rel_url.raw_path)
            asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
            trail.decided(*self._server.callers.decision(acting, asked))
        return acting

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
            cost = fairness.work_of(flow, asked, resource, limit, self._server.hub.interested(resource))
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
        is_resource = parts[0] in ("api", "apis") and len(parts) > (2 if parts[0] == "api" else 3)
        if self._server.access.is_rbac and not is_resource:
            self._authorize_path(request, identity)
        if raw_path.startswith("//") or (raw_path.endswith("/") and parts[0] in EXACT):
            return page_not_found()
        match parts:
            case ["api", version, _, *_] if discovery.is_served(self._catalogue, "", version):
                return await self._resource(request, identity, "", version, parts[2:])
            case ["apis", group, version, _, *_] if group and discovery.is_served(self._catalogue, group, version):
                return await self._resource(request, identity, group, version, parts[3:])
            case ["healthz" | "livez" | "readyz" as check, *rest]:
                return await self._health(request, identity, check, rest)
            case ["version"]:
                self._only(request, "GET")
                return raw_json(discovery.version(self._server.release))
        if identity.user == ANONYMOUS.user and not self._server.access.is_rbac:
            raise Forbidden(f'forbidden: User "{identity.user}" cannot {request.method.lower()} path "{request.path}"')
        match parts:
            case ["metrics"]:
                self._only_monitors(request, identity)
                content_type, pieces = self._exposition.pieces(
                    self._server.metrics(), request.headers.get("Accept", "")
                )
                return web.Response(body=await joined(pieces), headers={"Content-Type": content_type})
            case ["openapi", "v2"]:
                content_type = openapi.second_type(request.headers.get("Accept", ""))
                if not content_type:
                    return web.Response(status=406, headers={"Vary": "Accept"})
                await self._compose_openapi()
                found = openapi.second(self._catalogue, is_protobuf=content_type != media_types.JSON)
                return cached_answer(request, found, content_type)
            case ["openapi", "v3"]:
                await self._compose_openapi()
                return cached_answer(request, openapi.index(self._catalogue))
            case ["openapi", "v3", "api", version]:
                return self._openapi(request, "", version)
            case ["openapi", "v3", "apis", group, version]:
                return self._openapi(request, group, version)
            case ["statusz"]:
                self._only_monitors(request, identity)
                return page_answer(zpages.status_page(request.headers.get("Accept", ""), self._status()))
            case ["flagz"]:
                self._only_monitors(request, identity)
                return page_answer(zpages.flags_page(request.headers.get("Accept", ""), self._settings.flags))
            case ["debug", "pprof", *rest]:
                self._only_monitors(request, identity)
                return page_answer(zpages.profiles_page(rest, raw_path))
            case ["debug", "api_priority_and_fairness", what]:
                return self._fairness_dump(request, identity, what)
            case [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"]:
                self._only(request, "GET")
                return self._issuer(parts[0] == "openid")
            case [""] | ["index.html"]:
                return raw_json({"paths": self._paths()})
            case ["version", *_]:
                raise no_such_path()
        if is_resource:
            self._authorize_unserved(request, identity)
        return self._discovery(request, parts)

    def _authorize_path(self, request: web.BaseRequest, identity: Identity) -> None:
        asked = Attributes(request.method.lower(), path=request.path)
        self._server.callers.authorize_action(identity, asked)

    def _authorize_unserved(self, request: web.BaseRequest, identity: Identity) -> None:
        """Refuse who may not do what the path means, before it is said that nothing serves it. Raises: Forbidden.

        Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/filters/authorization.go`, which comes first.
        """
        parts = paths.split(request.rel_url.raw_path)
        asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
        resource = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
        meant = Request(
            verb=asked.verb,
            resource=resource,
            namespace=asked.namespace,
            name=asked.name,
            subresource=asked.subresource,
        )
        self._server.callers.authorize(identity, meant)

    def _status(self) -> zpages.Status:
        release, found = self._server.release, discovery.version(self._server.release)
        return zpages.Status(
            began_s=self._began_s,
            now_s=self._clock.wall(),
            runtime=found["goVersion"],
            release=RELEASES[release].removeprefix("v"),
            paths=zpages.debugging_paths(path for path in self._paths() if path != "/statusz"),
        )

    def _issuer(self, is_key_set: bool) -> web.Response:
        """Return who signs tokens of service accounts, or with which key (RFC 8414, RFC 7517)."""
        tokens = self._server.access.accounts.tokens
        if tokens is None:
            return page_not_found()
        found, form = tokens.key_set(), "application/jwk-set+json"
        if not is_key_set:
            found, form = tokens.configuration(), "application/json"
        headers = {"Cache-Control": "public, max-age=3600"}
        return web.Response(body=msgspec.json.encode(found), content_type=form, headers=headers)

    def _only(self, request: web.BaseRequest, method: str) -> None:
        if request.method != method:
            raise method_not_allowed()

    def _only_monitors(self, request: web.BaseRequest, identity: Identity) -> None:
        if not self._server.access.is_rbac:  # else it has been asked already
            self._server.callers.authorize_action(identity, Attributes("get", path=request.path))

    def _fairness_dump(self, request: web.BaseRequest, identity: Identity, what: str) -> web.Response:
        """Answer upstream's debug endpoints of priority and fairness."""
        if not self._server.access.is_rbac and MASTERS_GROUP not in identity.groups:
            raise Forbidden(f'forbidden: User "{identity.user}" cannot get path "{request.path}"')
        fairness, has_details = self._server.fairness, bool(request.rel_url.query.get("includeRequestDetails"))
        text = fairness.dump(what, has_details=has_details) if fairness is not None else None
        return page_not_found() if text is None else web.Response(text=text, headers=TEXT_HEADERS)

    def _paths(self) -> list[str]:
        pages = ("flagz", "healthz", "livez", "metrics", "readyz", "statusz", "version")
        roots = ["/api", "/apis", "/openapi/v2", "/openapi/v3", *(f"/{page}" for page in pages)]
        served = [
            f"/apis/{group}/{v}" if group else f"/api/{v}"
            for group, vs in discovery.groups(self._catalogue).items()
            for v in vs
        ]
        return sorted(roots + served)

    async def _health(
        self, request: web.BaseRequest, identity: Identity, endpoint: str, rest: list[str]
    ) -> web.Response:
        check, query, is_ready = "/".join(rest), request.rel_url.query, self._server.is_ready
        if check and check not in health.checks_of(endpoint):
            return page_not_found()
        if not check and "verbose" in query:
            self._only_monitors(request, identity)
        excluded = query.getall("exclude", [])
        is_asked = {check} if check else set(health.checks_of(endpoint)) - set(excluded)
        failure = await self._server.etcd_failure() if is_ready and is_asked & health.OF_ETCD else ""
        failing = health.OF_ETCD if failure else ()
        if check:
            is_passing = health.is_passing(endpoint, check, is_ready=is_ready, failing=failing)
            said = (200, "ok") if is_passing else (500, f"internal server error: {failure or 'not ready'}\n")
        else:
            said = health.report(
                endpoint,
                is_ready=is_ready,
                is_verbose="verbose" in query,
                excluded=excluded,
                read_only=self._server.writer.read_only,
                failing=failing,
            )
        return web.Response(text=said[1], status=said[0], headers=TEXT_HEADERS)

    def _openapi(self, request: web.BaseRequest, group: str, version: str) -> web.Response:
        found = openapi.group_version_answer(self._catalogue, group, version)
        if found is None:
            # A group version that is not there has an answer of nothing.
            return web.Response(headers={"Vary": "Accept", "Cache-Control": "no-cache, private"})
        hashed = request.rel_url.query.get("hash", "")
        if hashed and hashed != found.etag.strip('"'):
            target = openapi.url_of(group, version, found.etag)
            return web.Response(status=301, headers={"Location": target, "Vary": "Accept", "ETag": found.etag})
        return cached_answer(request, found, good_until_s=self._clock.wall() + YEAR_S if hashed else 0.0)

    def _discovery(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        path = "/".join(parts)
        is_root = path in ("api", "apis")
        plain = discovery.document_at(self._catalogue, path)
        if plain is None:
            # What lies below a group of this server's is answered by that group.
            is_below = parts[0] == "api" or (parts[0] == "apis" and len(parts) > 1 and self._is_built_in(parts[1]))
            if is_below:
                raise no_such_path()
            return page_not_found()
        self._only(request, "GET")
        form = media_types.negotiate(request.headers.get("Accept", ""), ("APIGroupDiscoveryList",) if is_root else ())
        found = discovery.document_at(self._catalogue, path, form.version) if form.convert else plain
        assert found is not None, "the aggregated form exists where the plain one does"
        return cached_answer(request, found, content_type=form.content_type if form.convert else "application/json")

    def _is_built_in(self, group: str) -> bool:
        """Whether a group is one that no definition adds kinds to."""
        versions = discovery.groups(self._catalogue).get(group, ())
        served = (each for v in versions for each in self._catalogue.served.get((group, v), {}).values())
        return bool(versions) and all(each.schema is None for each in served)

    async def _resource(
        self, request: web.BaseRequest, identity: Identity, group: str, version: str, rest: list[str]
    ) -> web.StreamResponse:
        if (review := reviews.review_at(group, version, rest)) is not None:
            return await self._review(request, identity, *review)
        if not group and rest[0] == "namespaces" and rest[2:] == ["bindings"]:
            return await self._bind(request, identity, rest[1])
        parameters = Parameters(request.rel_url.query)
        api = self._server.api_for(identity)
        resource, namespace, name, connected = streaming.asked(group, version, rest)
        if connected:
            self._server.callers.authorize(identity, streaming.right(request, resource, namespace, name, connected))
            return await self._connect(request, identity, resource, namespace, name, connected)
        try:
            route = paths.parse(self._catalogue, group, version, rest)
        except NotFound:
            self._authorize_unserved(request, identity)
            if not group or self._is_built_in(group):
                raise
            return self._not_defined(request, group, version)
        try:
            verb = paths.verb_of(request.method, route)
        except MethodNotAllowed:
            self._authorize_unserved(request, identity)
            raise
        api = versioned(api, route.served)
        if verb == "get" and route.subresource == "log":
            self._server.callers.authorize(identity, route.request(verb))
            return await pod_streams.stream(request, route, self._server.api_for(ADMIN), self._kubelets)
        try:
            conversions = () if route.subresource in CREATED_SUBRESOURCES else CONVERSIONS
            form = media_types.negotiate(request.headers.get("Accept", ""), conversions)
        except NotAcceptable:
            # Who may not read it learns no more than that.
            self._server.callers.authorize(identity, route.request(verb))
            raise
        include = tables.check_include(parameters.text("includeObject"))
        if paths.is_watch(verb, route, parameters):
            form = media_types.negotiate(request.headers.get("Accept", ""), CONVERSIONS, is_stream=True)
            encoder = watch.EventEncoder(route, form, include, self._clock.wall, self._encoding)
            watched = paths.watch_request(route, parameters, self._server.store.rv)
            place = await self._server.watches.begin(identity, watched)
            streaming_api = self._server.streaming_api(
                identity, place, self._settings.send_blocked_max_s, self._leaving(request)
            )
            batches = versioned(streaming_api, route.served).watch(watched)
            return await watch.stream(request, batches, encoder, send_blocked_max_s=self._settings.send_blocked_max_s)
        span = self._span(request, route, verb)
        try:
            if verb not in ("get", "list"):
                # Before the body is read: who may not write learns nothing about what was sent (8.2).
                self._server.callers.authorize(identity, route.request(verb))
            if isinstance(request, HttpRequest) and request.turn is not None and request.turn.work.is_long:
                await self.next_piece()
            response = await self._call(request, api, route, verb, parameters, span)
        except BaseException as error:
            refused = isinstance(error, ApiError) and error.code < 500
            if isinstance(error, ApiError):
                span.set(**{"http.response.status_code": error.code})
            span.end("" if refused else type(error).__name__)
            raise
        span.set(**{"http.response.status_code": response.code})
        span.end("" if response.code < 500 else str(response.code))
        if self._is_streamed(request, response, form, include):
            return await self._streamed(request, response, route, form, include)
        response = await self._whole(response, route, form, include)
        shown = form
        if response.items is not None:
            response, shown = await self._list(response, route, form, include), PLAIN
        if (trail := trail_of(request)) is not None:
            trail.annotated(response.audit)
            if trail.takes_answers:
                trail.answered(response.body)
        answer = self._answer(response, route, shown, include)
        if form.is_pretty and form.media_type == media_types.JSON and isinstance(answer.body, bytes):
            answer.body = indented(answer.body)
        if isinstance(answer.body, bytes) and may_be_compressed(request, len(answer.body)):
            answer.enable_compression(web.ContentCoding.gzip)
        return answer

    def _leaving(self, request: web.BaseRequest) -> Callable[[], None]:
        """Return what ends a watch's turn before its end: it counts while it starts."""
        fairness, turn = self._server.fairness, request.turn if isinstance(request, HttpRequest) else None
        return (lambda: fairness.leave(turn)) if fairness is not None and turn is not None else lambda: None

    async def _connect(
        self, request: web.BaseRequest, identity: Identity, resource: str, namespace: str, name: str, kind: str
    ) -> web.StreamResponse:
        """Answer a connection that the caller may have, once admission lets it pass."""
        query: connections.Query = request.rel_url.query
        path = streaming.path_behind(request, resource)
        options = connections.options_of(resource, kind, query, unquote(path))
        asked = Request(verb="connect", resource=resource, namespace=namespace, name=name, subresource=kind)
        found = await self._server.admit_connection(identity, asked, options, connections.completed)
        if found.options != options:
            query, path = connections.query_of(found.options), connections.raw_path_of(found.options)
        itself = self._server.api_for(ADMIN)
        target = Target(resource, namespace, name, kind, query, path.removeprefix("/"))
        answer = await streaming.serve(request, target, itself, self._kubelets)
        if (trail := trail_of(request)) is not None:
            trail.annotated(found.audit)
        if not answer.prepared:
            for text in found.warnings:
                answer.headers.add("Warning", warning_header(text))
        return answer

    async def _compose_openapi(self) -> None:
        """Have the document of every group version made; others have their turn after each."""
        for group, versions in discovery.groups(self._catalogue).items():
            for version in versions:
                openapi.group_version_answer(self._catalogue, group, version)
                await self.next_piece()

    async def next_piece(self) -> None:
        """Wait for the turn of a long answer's next piece: others have theirs between."""
        fairness = self._server.fairness
        await (fairness.slices.next() if fairness is not None else asyncio.sleep(0))

    def _is_streamed(self, request: web.BaseRequest, response: Response, form: Form, include: str) -> bool:
        """Whether a list is so long that it is sent while it is written, as upstream's encoders do: so it is never
        held as a whole."""
        if response.items is None or len(response.items) <= STREAMED_ABOVE or form.media_type != media_types.JSON:
            return False
        if (trail := trail_of(request)) is not None and trail.takes_answers:
            return False
        is_plain = not form.convert or lists.is_made_of_slices(form, include)
        is_list = request.method in ("GET", "DELETE") and request.version >= HttpVersion11
        return is_list and is_plain and not form.is_pretty and not is_pretty(request)

    async def _streamed(
        self, request: web.BaseRequest, response: Response, route: Route, form: Form, include: str
    ) -> web.StreamResponse:
        """Send a long list piece by piece. A client that has not taken it within a request's time is cut off."""
        answer = web.StreamResponse(headers={**JSON_HEADERS, "Content-Type": form.content_type})
        self._warn(answer, response, route)
        answer.enable_chunked_encoding()
        if may_be_compressed(request, GZIP_MIN_BYTES):
            answer.enable_compression(web.ContentCoding.gzip)
        pieces = self._pieces(response, route, form, include)
        try:
            async with asyncio.timeout(REQUEST_S):
                await answer.prepare(request)
                while True:
                    await self.next_piece()
                    if (piece := next(pieces, None)) is None:
                        break
                    await answer.write(piece)
                await answer.write_eof(b"\n")
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return answer

    def _pieces(self, response: Response, route: Route, form: Form, include: str) -> Iterator[bytes]:
        """Yield a list in the form that was asked for, in pieces that take a moment each."""
        if form.convert:
            head = msgspec.json.decode(response.body)
            if form.convert != "Table":
                yield from self._rows.metadata(head, response.records, form.version)
                return
            yield from self._rows.table(
                route.resource, head, response.records, self._clock.wall(), include=include, version=form.version
            )
            return
        items, version, kind = response.items or (), route.resource.api_version, route.resource.kind
        made = [list(items)] if route.is_of_definition else self._encoding.items(items, version, kind)
        before = response.body[:-1] + b',"items":['
        for piece in made:
            if piece:
                yield before + b",".join(piece)
                before = b","
        yield b"]}"

    async def _whole(self, response: Response, route: Route, form: Form, include: str) -> Response:
        """Return the answer with its items, and where whole objects are shown, with all that Go's encoder writes."""
        items = response.items
        if items is not None and lists.is_made_of_slices(form, include):
            return response
        if items is not None and form == Form(media_types.PROTOBUF):
            return msgspec.structs.replace(response, body=await self._protobuf_list(response, route), items=None)
        is_shown = not form.convert or (form.convert == "Table" and include == "Object")
        if response.is_ok and is_shown and form.media_type != media_types.PROTOBUF and not route.is_of_definition:
            if items is None:
                return msgspec.structs.replace(response, body=self._encoding.answer(response.body))
            whole: list[bytes] = []
            for piece in self._encoding.items(items, route.resource.api_version, route.resource.kind):
                whole += piece
                await self.next_piece()
            items = tuple(whole)
        if items is None:
            return response
        return msgspec.structs.replace(response, body=with_items(response.body, items), items=None)

    async def _protobuf_list(self, response: Response, route: Route) -> bytes:
        """Return a list in protobuf. Raises: NotAcceptable for a kind that has none."""
        version, kind = route.resource.api_version, route.resource.kind
        made: list[bytes] = []
        for body in response.items or ():
            made.append(protobuf.encode_item(version, kind, msgspec.json.decode(body)))
            if len(made) % PROTOBUF_PIECE == 0:
                await self.next_piece()
        return protobuf.encode_list(msgspec.json.decode(response.body), made)

    def _not_defined(self, request: web.BaseRequest, group: str, version: str) -> web.Response:
        """Answer what leads nowhere in a group of definitions. Raises: NotFound that names the object whose subresource
        is not defined."""
        parts = paths.split(request.rel_url.raw_path)
        asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
        served = self._catalogue.served[group, version].get(asked.resource)
        if served is not None and asked.subresource:
            raise not_found(served.resource, asked.name)
        return page_not_found()

    def _span(self, request: web.BaseRequest, route: Route, verb: str) -> Span:
        parent = request.headers.get("traceparent", "")
        attributes: dict[str, str] = {"http.request.method": request.method, "http.route": route.template}
        if route.namespace:
            attributes["k8s.namespace.name"] = route.namespace
        if route.name:
            attributes[_NAMES_OF.get(route.resource.name, "keplab.name")] = route.name
        span = self._tracer.start(
            f"{request.method} {route.template}",
            kind="server",
            parent=parent if is_traceparent(parent) else "",
            **attributes,
        )
        serving.set(span.traceparent)
        return span

    async def _call(
        self, request: web.BaseRequest, api: Api, route: Route, verb: str, parameters: Parameters, span: Span
    ) -> Response:
        body, patch_type = b"", ""
        content_type = request.headers.get("Content-Type", "")
        if verb == "patch":
            patch_type = media_types.patch_type_of(content_type)
            if patch_type == "strategic" and not route.served.has_strategic_merge:
                raise media_types.unsupported([n for n, kind in media_types.PATCH_TYPES.items() if kind != "strategic"])
        if verb not in ("get", "list"):
            body = await read_body(request)
        if verb in ("create", "update", "delete", "deletecollection") or patch_type == "apply":
            body = await json_from(body, content_type)
        call = paths.to_request(
            verb,
            route,
            parameters,
            body=body,
            patch_type=patch_type,
            traceparent=span.traceparent,
            request_id=request.headers.get("x-request-id", ""),
            lease_epoch=request.headers.get("x-lease-epoch", ""),
            # Who names no manager is called by its user agent up to the first slash.
            default_manager=request.headers.get("User-Agent", "").partition("/")[0][:128],
        )
        if patch_type == "apply":
            if not parameters.text("fieldManager"):
                message = "Required value: is required for apply patch"
                raise invalid_option("PatchOptions", "fieldManager", "FieldValueRequired", message)
            call = msgspec.structs.replace(call, force=parameters.flag("force"))
        if (trail := trail_of(request)) is not None:
            trail.sent(call.body, is_patch=verb == "patch")
        response = await api.call(call)
        if response.code == 403 and verb == "create" and self._server.access.accounts.is_admitting:
            response = await self._again_with_account(api, call, response)
        if call.verb == "delete" and call.resource == "pods" and response.is_ok:
            return self._deleted_pod(response)
        return response

    async def _again_with_account(self, api: Api, call: Request, response: Response) -> Response:
        """Try a pod's creation again while its namespace is so new that it has no default account yet, as upstream's
        admission plugin waits for it."""
        for _ in range(ACCOUNT_TRIES - 1):
            if response.code != 403 or not is_without_default_account(call, response.error().message):
                break
            await asyncio.sleep(ACCOUNT_WAIT_S)
            response = await api.call(call)
        return response

    def _deleted_pod(self, response: Response) -> Response:
        """Return the answer with the marks of a deletion at once, which a pod that is gone was not stored with."""
        pod = msgspec.json.decode(response.body)
        if "deletionTimestamp" in pod["metadata"]:
            return response
        marks = {"deletionTimestamp": format_time(self._clock.wall()), "deletionGracePeriodSeconds": 0}
        body = msgspec.json.encode({**pod, "metadata": {**pod["metadata"], **marks}})
        return msgspec.structs.replace(response, body=body)

    def _answer(self, response: Response, route: Route, form: Form, include: str) -> web.Response:
        headers = dict(JSON_HEADERS)
        body = response.body
        if response.code >= 400:
            if response.code in (429, 503, 504) and (wait_s := response.error().retry_after_s) is not None:
                headers["Retry-After"] = str(wait_s)
            if form.media_type != media_types.JSON:
                headers["Content-Type"] = form.media_type
                body = encoded(msgspec.json.decode(body), form)
        elif form.media_type == media_types.PROTOBUF and body.startswith(protobuf.MAGIC):
            headers["Content-Type"] = form.content_type
        elif form is not PLAIN and form != PLAIN:
            headers["Content-Type"] = form.content_type
            body = self._converted(msgspec.json.decode(body), route, form, include)
        answer = web.Response(body=body, status=response.code, headers=headers)
        self._warn(answer, response, route)
        return answer

    def _warn(self, answer: web.StreamResponse, response: Response, route: Route) -> None:
        deprecated = (route.resource.deprecated,) if route.resource.deprecated else ()
        for text in (*deprecated, *response.warnings):
            answer.headers.add("Warning", warning_header(text))

    async def _list(self, response: Response, route: Route, form: Form, include: str) -> Response:
        """Return a list that is made of slices of what is stored; a long one leaves others their turn."""
        head, records = msgspec.json.decode(response.body), response.records
        if form.convert == "Table":
            now_s = self._clock.wall()
            parts = self._rows.table(route.resource, head, records, now_s, include=include, version=form.version)
        else:
            parts = self._rows.metadata(head, records, form.version)
        made: list[bytes] = []
        for part in parts:
            made.append(part)
            await self.next_piece()
        return msgspec.structs.replace(response, body=b"".join(made), items=None)

    def _converted(self, document: Any, route: Route, form: Form, include: str) -> bytes:
        if form.convert and document.get("kind") != "Status":
            if form.convert == "Table":
                document = tables.table_of(
                    route.resource, document, self._clock.wall(), include=include, version=form.version
                )
            elif "items" in document:
                document = tables.partial_metadata_list(document, form.version)
            else:
                document = tables.partial_metadata(document, form.version)
        return encoded(document, form)

    async def _bind(self, request: web.BaseRequest, identity: Identity, namespace: str) -> web.StreamResponse:
        """Bind the pod that a Binding names, as the older path of it."""
        self._only(request, "POST")
        parameters = Parameters(request.rel_url.query)
        api = self._server.api_for(identity)
        sent = await json_from(await read_body(request), request.headers.get("Content-Type", ""))
        body = json_object(sent, "the body is not JSON", "the body is not an object")
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not name:
            raise BadRequest("name is required")
        pods = paths.parse(self._catalogue, "", "v1", ["namespaces", namespace, "pods", name, "binding"])
        response = await api.call(paths.to_request("create", pods, parameters, body=sent))
        return self._answer(response, pods, PLAIN, "")

    async def _review(
        self, request: web.BaseRequest, identity: Identity, review: Resource, namespace: str
    ) -> web.StreamResponse:
        if request.method != "POST":
            self._authorize_unserved(request, identity)
            raise method_not_allowed()
        media_types.negotiate(request.headers.get("Accept", ""))
        if self._server.access.is_rbac or review.kind not in reviews.OF_ONESELF:
            asked = Request(verb="create", resource=review.name, namespace=namespace)
            self._server.callers.authorize(identity, asked)
        elif identity.user == ANONYMOUS.user:
            raise Forbidden(f'{review.plural}.{review.group} is forbidden: User "{identity.user}" cannot create it')
        body = await read_body(request)
        question: Document = {}
        if review.kind != "SelfSubjectReview" and body:
            sent = await json_from(body, request.headers.get("Content-Type", ""))
            question = json_object(sent, "the body is not JSON", "the body is not an object")
        answer = reviews.answer(review, namespace, question, identity, self._server.callers, self._catalogue)
        said = msgspec.json.encode(answer)
        if (trail := trail_of(request)) is not None:
            trail.sent(msgspec.json.encode(question))
            trail.answered(said)
        return json_answer(said, status=201)


def _limit_of(request: web.BaseRequest) -> int:
    """Return the length of the page that a list asks for; 0 for all of it, or what the list will refuse."""
    limit = request.rel_url.query.get("limit", "")
    return int(limit) if limit.isascii() and limit.isdigit() and len(limit) < 10 else 0


def _begins_with_state(request: web.BaseRequest) -> bool:
    """Whether a watch begins with the objects that there are."""
    query = request.rel_url.query
    return "sendInitialEvents" in query or query.get("resourceVersion", "") in ("", "0")


class _Protocols(web.Server):
    """What the HTTP library makes for each connection; `gone` is called with those that ended."""

    gone: Callable[[asyncio.BaseProtocol], None]

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        super().connection_lost(handler, exc)
        self.gone(handler)


class _SilenceSweep:
    """Closes connections that never speak: the HTTP library's own time-outs begin with the first request.

    Where too many wait for another request, those that said nothing for longest are closed as well.
    """

    def __init__(self, server: web.Server, handler: RestHandler, clock: Clock, settings: RestSettings) -> None:
        self._server, self._handler, self._clock = server, handler, clock
        self._allowed_s, self._idle_max = settings.first_request_max_s, settings.idle_max
        self._silent_since: dict[object, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look again and again until `stop`; a silent connection lives at most 1.4 times what is allowed."""
        now, active = self._clock.now(), self._handler.active
        connections = self._server.connections
        # A watch, and whatever else takes long, may be the first request of its connection.
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
        """Look no more."""
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
    """Listen on `host:port` (0: any free one) and return what ends it and everything it started, and the port.

    With `tls` it speaks HTTPS, else plain HTTP. `kubelet_tls`: what calls of kubelets are made with.

    Ending stops accepting, gives running requests a moment, and closes connections.

    Raises: OSError when the address cannot be had.
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
        auto_decompress=False,  # a body that is not what its head says is answered, and a bomb is cut (`read_body`)
        logger=ServerLog(logging.getLogger(__name__)),
    )
    runner = web.ServerRunner(protocols, shutdown_timeout=SHUTDOWN_S)
    running.push_async_callback(runner.cleanup)
    sweep = _SilenceSweep(protocols, handler, clock, chosen)
    running.callback(sweep.stop)
    count = Count(chosen.connections_max, chosen.connections_per_address_max)
    context = tls.context if tls is not None else None
    listener = Listener(protocols, count, clock, context, chosen.handshake_max_s, handler.next_piece)
    protocols.gone = listener.gone
    running.push_async_callback(listener.close)
    try:
        await runner.setup()
        bound = await listener.open(host, port)
    except OSError:
        await running.aclose()
        raise
    sweep.start()
    return running, bound
