"""The server that kubectl and client-go know: HTTP/1.1 and JSON over the same registry as the mesh's own server.

A request becomes one `Request` (`paths`), goes through the caller's `Api` and comes back as the very bytes that were
stored; only Tables, metadata-only answers and YAML are made here. Health, version, discovery and OpenAPI are answered
without touching the store. This file is the shell; what it decides with is in the plain functions of its neighbours.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import aiohttp
import msgspec
import structlog
from aiohttp import web

from apiserver_fake.admission.service_account import is_without_default_account
from apiserver_fake.decode import json_object
from apiserver_fake.errors import invalid_option, method_not_allowed, no_such_path, not_found
from apiserver_fake.fairness import FLOW_HEADERS, attributes_of
from apiserver_fake.rbac.policy import Attributes
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
    reviews,
    streaming,
    tables,
    watch,
)
from apiserver_fake.rest.encoding import Encoding
from apiserver_fake.rest.http import (
    JSON_HEADERS,
    TEXT_HEADERS,
    HttpRequest,
    ServerLog,
    audit_id,
    bearer_of,
    cached_answer,
    encoded,
    host_name,
    indented,
    is_allowed_host,
    is_pretty,
    is_traceparent,
    json_answer,
    may_be_compressed,
    page_not_found,
    raw_json,
    read_body,
    refusal_answer,
    warning_header,
)
from apiserver_fake.rest.impersonation import impersonated
from apiserver_fake.rest.media_types import PLAIN, Form
from apiserver_fake.rest.paths import Parameters, Route
from apiserver_fake.rest.protobuf import NotAcceptable
from apiserver_fake.rest.streaming import Kubelets, KubeletTls, Target
from apiserver_fake.rest.versions import versioned
from apiserver_fake.server import ApiServer
from services.api.errors import ApiError, BadRequest, Forbidden, NotFound, Timeout, UnknownOutcome
from services.api.identity import ADMIN, ANONYMOUS, MASTERS_GROUP, Identity, external
from services.api.meta import Document, Resource
from services.api.seams import Clock, Span, Tracer
from services.api.times import format_time
from services.api.wire import Api, Request, Response
from services.runtime.serving_tls import ServingTls, identity_of_peer
from services.telemetry.metrics import render

log = structlog.get_logger()

REQUEST_LINE_BYTES_MAX = 1 << 20
"""As Go's server has it: selectors travel in the address, and clients send long ones."""
KEEPALIVE_S = 75.0
MUTATING = frozenset(("POST", "PUT", "PATCH", "DELETE"))
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
MONITOR = "system:monitor"
SHUTDOWN_S = 2.0
YEAR_S = 365 * 86400.0
PROTOBUF_PIECE = 50
"""How many objects are encoded in protobuf at a time; others have their turn between."""
ACCOUNT_TRIES, ACCOUNT_WAIT_S = 10, 0.15
"""How often and after how long a pod's creation is tried again that only lacks its namespace's default account."""
CONVERSIONS = ("Table", "PartialObjectMetadata")
EXACT = frozenset(("healthz", "livez", "readyz", "metrics", "openapi", "index.html"))
"""First segments of paths that are not served with a slash behind them."""


@dataclass(frozen=True)
class RestSettings:
    """How the REST server behaves.

    `allowed_hosts`: names besides the loopback ones under which it may be addressed (X-WEB).
    `first_request_max_s`: how long a connection may stay without having sent one whole request head (L-CONN).
    `has_sessions`: whether Nodes show the session of their kubelet (kubelet-unbinding 4.5).
    `send_blocked_max_s`: how long one send of a watch may block before the stream is cut (L-WS).
    """

    allowed_hosts: tuple[str, ...] = ()
    first_request_max_s: float = 10.0
    send_blocked_max_s: float = 10.0
    has_sessions: bool = True


class RestHandler:
    """Handles every request of one listener."""

    def __init__(
        self, server: ApiServer, *, clock: Clock, tracer: Tracer, kubelets: Kubelets, settings: RestSettings, host: str
    ) -> None:
        self._server, self._clock, self._tracer = server, clock, tracer
        self._catalogue = server.catalogue
        self._kubelets, self._settings = kubelets, settings
        self._encoding = Encoding(has_sessions=settings.has_sessions)
        self._rows = lists.Rows()
        self.active: dict[object, None] = {}
        """The connections that have sent a request; `_SilenceSweep` forgets those that are gone."""
        self._allowed_hosts = frozenset((*LOOPBACK_NAMES, host.lower(), *(h.lower() for h in settings.allowed_hosts)))

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer; every refusal is a `Status`, and a bug is a 500 that is logged."""
        self.active[request.protocol] = None
        if isinstance(request, HttpRequest):
            request.answer_headers["Audit-Id"] = audit_id(request.headers.get("Audit-Id", ""))
        answer = await self._handled(request)
        if isinstance(answer, web.Response) and answer.headers.get("Content-Type") == media_types.JSON:
            self._finish_json(request, answer)
        return answer

    def _finish_json(self, request: web.BaseRequest, answer: web.Response) -> None:
        """End JSON as Go's encoder does, or indent it; what clients may keep stays as it is."""
        if "ETag" in answer.headers or not isinstance(answer.body, bytes) or answer.body.endswith(b"\n}"):
            return
        body = answer.body
        answer.body = indented(body) if is_pretty(request) else body + b"\n"

    async def _handled(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            self._check_web(request)
            return await self._dispatch(request, self._identity(request))
        except ApiError as error:
            return self._refusal(request, error)
        except UnknownOutcome as error:
            return self._refusal(request, Timeout(f"no answer came in time, the outcome is unknown: {error}"))
        except (ConnectionError, asyncio.IncompleteReadError):
            raise
        except Exception as error:  # a bug must answer this caller and leave the others alone (V2)
            log.error("rest.request_failed", method=request.method, path=request.path, exc_info=error)
            return refusal_answer(ApiError(f"internal error: {type(error).__name__}"))

    def _refusal(self, request: web.BaseRequest, error: ApiError) -> web.Response:
        """Return a refusal in the form the client asked for, or in JSON where it takes none of ours."""
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
        if origin and request.method in MUTATING and origin.lower() != f"{request.scheme}://{host}".lower():
            raise Forbidden("requests that change something must come from this server's own origin")

    def _identity(self, request: web.BaseRequest) -> Identity:
        peer = request.transport.get_extra_info("peercert") if request.transport is not None else None
        caller = identity_of_peer(peer)
        if caller is None:
            caller = self._server.authenticate(bearer_of(request.headers.get("Authorization", "")))
        if self._server.access.is_rbac:
            caller = external(caller)
        return impersonated(caller, request.headers, self._server.authorize_action)

    async def _dispatch(self, request: web.BaseRequest, identity: Identity) -> web.StreamResponse:
        raw_path = request.rel_url.raw_path
        if paths.is_malformed(request.raw_path):
            return web.Response(text="400 Bad Request", status=400)
        parts = paths.split(raw_path)
        if isinstance(request, HttpRequest):
            asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
            if (flow := self._server.flow_of(identity, asked)) is not None:
                request.answer_headers |= dict(zip(FLOW_HEADERS, flow, strict=True))
        is_resource = parts[0] in ("api", "apis") and len(parts) > (2 if parts[0] == "api" else 3)
        if self._server.access.is_rbac and not is_resource:
            self._authorize_path(request, identity)
        if request.method == "CONNECT":
            raise method_not_allowed()
        if raw_path.startswith("//") or (raw_path.endswith("/") and parts[0] in EXACT):
            return page_not_found()
        match parts:
            case ["api", version, _, *_] if discovery.is_served(self._catalogue, "", version):
                return await self._resource(request, identity, "", version, parts[2:])
            case ["apis", group, version, _, *_] if group and discovery.is_served(self._catalogue, group, version):
                return await self._resource(request, identity, group, version, parts[3:])
            case ["healthz" | "livez" | "readyz" as check, *rest]:
                return self._health(request, identity, check, rest)
            case ["version"]:
                self._only(request, "GET")
                return raw_json(discovery.version(self._server.release))
        if identity.user == ANONYMOUS.user and not self._server.access.is_rbac:
            raise Forbidden(f'forbidden: User "{identity.user}" cannot {request.method.lower()} path "{request.path}"')
        match parts:
            case ["metrics"]:
                if not self._server.access.is_rbac:
                    self._only_monitors(request, identity)
                return web.Response(body=render(self._server.metrics()), content_type="text/plain", charset="utf-8")
            case ["openapi", "v2"]:
                content_type = openapi.second_type(request.headers.get("Accept", ""))
                if not content_type:
                    return web.Response(status=406, headers={"Vary": "Accept"})
                found = openapi.second(self._catalogue, is_protobuf=content_type != media_types.JSON)
                return cached_answer(request, found, content_type)
            case ["openapi", "v3"]:
                return cached_answer(request, openapi.index(self._catalogue))
            case ["openapi", "v3", "api", version]:
                return self._openapi(request, "", version)
            case ["openapi", "v3", "apis", group, version]:
                return self._openapi(request, group, version)
            case [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"]:
                self._only(request, "GET")
                return self._issuer(parts[0] == "openid")
            case [""] | ["index.html"]:
                return raw_json({"paths": self._paths()})
            case ["version", *_]:
                raise no_such_path()
        return self._discovery(request, parts)

    def _authorize_path(self, request: web.BaseRequest, identity: Identity) -> None:
        asked = Attributes(request.method.lower(), path=request.path)
        if identity.user != MONITOR or request.path != "/metrics":
            self._server.authorize_action(identity, asked)

    def _issuer(self, is_key_set: bool) -> web.Response:
        """Return who signs tokens of service accounts, or with which key (RFC 8414, RFC 7517)."""
        tokens = self._server.access.accounts.tokens
        if tokens is None:
            return page_not_found()
        found, form = tokens.key.key_set(), "application/jwk-set+json"
        if not is_key_set:
            found, form = tokens.configuration(), "application/json"
        headers = {"Cache-Control": "public, max-age=3600"}
        return web.Response(body=msgspec.json.encode(found), content_type=form, headers=headers)

    def _only(self, request: web.BaseRequest, method: str) -> None:
        if request.method != method:
            raise method_not_allowed()

    def _only_monitors(self, request: web.BaseRequest, identity: Identity) -> None:
        if MASTERS_GROUP not in identity.groups and identity.user != MONITOR:
            raise Forbidden(f'forbidden: User "{identity.user}" cannot get path "{request.path}"')

    def _paths(self) -> list[str]:
        roots = ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
        served = [
            f"/apis/{group}/{v}" if group else f"/api/{v}"
            for group, vs in discovery.groups(self._catalogue).items()
            for v in vs
        ]
        return sorted(roots + served)

    def _health(self, request: web.BaseRequest, identity: Identity, endpoint: str, rest: list[str]) -> web.Response:
        check, query, is_ready = "/".join(rest), request.rel_url.query, self._server.is_ready
        if check and check not in health.checks_of(endpoint):
            return page_not_found()
        if check:
            is_passing = health.is_passing(endpoint, check, is_ready=is_ready)
            said = (200, "ok") if is_passing else (500, "internal server error: not ready\n")
        else:
            if "verbose" in query and not self._server.access.is_rbac:
                self._only_monitors(request, identity)
            excluded = query.getall("exclude", [])
            said = health.report(endpoint, is_ready=is_ready, is_verbose="verbose" in query, excluded=excluded)
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
            self._server.authorize(identity, streaming.right(request, resource, namespace, name, connected))
            return await self._connect(request, identity, resource, namespace, name, connected)
        try:
            route = paths.parse(self._catalogue, group, version, rest)
        except NotFound:
            if not group or self._is_built_in(group):
                raise
            return self._not_defined(request, identity, group, version)
        verb = paths.verb_of(request.method, route)
        api = versioned(api, route.served)
        if verb == "get" and route.subresource == "log":
            itself = self._server.api_for(ADMIN)
            return await pod_streams.stream(
                request, route, parameters, api, itself, self._kubelets.session, self._kubelets.tls
            )
        try:
            form = media_types.negotiate(request.headers.get("Accept", ""), CONVERSIONS)
        except NotAcceptable:
            # Who may not read it learns no more than that.
            self._server.authorize(identity, route.request(verb))
            raise
        include = tables.check_include(parameters.text("includeObject"))
        if paths.is_watch(verb, route, parameters):
            form = media_types.negotiate(request.headers.get("Accept", ""), CONVERSIONS, is_stream=True)
            encoder = watch.EventEncoder(route, form, include, self._clock.wall, self._encoding)
            watched = paths.watch_request(route, parameters, self._server.store.rv)
            place = await self._server.begin(identity, watched)
            streaming_api = self._server.streaming_api(identity, place, self._settings.send_blocked_max_s)
            batches = versioned(streaming_api, route.served).watch(watched)
            return await watch.stream(request, batches, encoder, send_blocked_max_s=self._settings.send_blocked_max_s)
        span = self._span(request, route, verb)
        try:
            if verb not in ("get", "list"):
                # Before the body is read: who may not write learns nothing about what was sent (8.2).
                self._server.authorize(identity, route.request(verb))
            response = await self._call(request, api, route, verb, parameters, span)
        except BaseException as error:
            refused = isinstance(error, ApiError) and error.code < 500
            if isinstance(error, ApiError):
                span.set(**{"http.response.status_code": error.code})
            span.end("" if refused else type(error).__name__)
            raise
        span.set(**{"http.response.status_code": response.code})
        span.end("" if response.code < 500 else str(response.code))
        response = await self._whole(response, route, form, include)
        shown = form
        if response.items is not None:
            response, shown = await self._list(response, route, form, include), PLAIN
        answer = self._answer(response, route, shown, include)
        if form.is_pretty and form.media_type == media_types.JSON and isinstance(answer.body, bytes):
            answer.body = indented(answer.body)
        if isinstance(answer.body, bytes) and may_be_compressed(request, len(answer.body)):
            answer.enable_compression(web.ContentCoding.gzip)
        return answer

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
        if not answer.prepared:
            for text in found.warnings:
                answer.headers.add("Warning", warning_header(text))
        return answer

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
                # A long list leaves others their turn.
                await asyncio.sleep(0)
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
                await asyncio.sleep(0)
        return protobuf.encode_list(msgspec.json.decode(response.body), made)

    def _not_defined(self, request: web.BaseRequest, identity: Identity, group: str, version: str) -> web.Response:
        """Answer what leads nowhere in a group of definitions. Raises: NotFound that names the object whose subresource
        is not defined."""
        parts = paths.split(request.rel_url.raw_path)
        asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
        self._server.authorize_action(identity, asked)
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
            attributes[f"k8s.{route.resource.singular}.name"] = route.name
        return self._tracer.start(
            f"{request.method} {route.template}", parent=parent if is_traceparent(parent) else "", **attributes
        )

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
        if verb in ("create", "update", "delete", "deletecollection"):
            body = media_types.json_of(body, content_type)
        elif patch_type == "apply":
            body = media_types.json_from_yaml(body)
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
        deprecated = (route.resource.deprecated,) if route.resource.deprecated else ()
        for text in (*deprecated, *response.warnings):
            answer.headers.add("Warning", warning_header(text))
        return answer

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
            await asyncio.sleep(0)
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
        sent = media_types.json_of(await read_body(request), request.headers.get("Content-Type", ""))
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
        self._only(request, "POST")
        if self._server.access.is_rbac or review.kind not in reviews.OF_ONESELF:
            asked = Request(verb="create", resource=review.name, namespace=namespace)
            self._server.authorize(identity, asked)
        elif identity.user == ANONYMOUS.user:
            raise Forbidden(f'{review.plural}.{review.group} is forbidden: User "{identity.user}" cannot create it')
        body = await read_body(request)
        question: Document = {}
        if review.kind != "SelfSubjectReview" and body:
            sent = media_types.json_of(body, request.headers.get("Content-Type", ""))
            question = json_object(sent, "the body is not JSON", "the body is not an object")
        answer = reviews.answer(review, namespace, question, identity, self._server, self._catalogue)
        return json_answer(msgspec.json.encode(answer), status=201)


class _SilenceSweep:
    """Closes connections that never speak: the HTTP library's own time-outs begin with the first request."""

    def __init__(self, server: web.Server, handler: RestHandler, clock: Clock, allowed_s: float) -> None:
        self._server, self._handler, self._clock, self._allowed_s = server, handler, clock, allowed_s
        self._silent_since: dict[object, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look again and again until `stop`; a silent connection lives at most 1.4 times what is allowed."""
        now, active = self._clock.now(), self._handler.active
        connections = self._server.connections
        silent = [c for c in connections if c not in active]
        self._silent_since = {c: self._silent_since.get(c, now) for c in silent}
        self._handler.active = {c: None for c in connections if c in active}
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
        server, clock=clock, tracer=tracer, kubelets=Kubelets(session, kubelet_tls), settings=chosen, host=host
    )
    listener = web.Server(
        handler.handle,
        handler_cancellation=True,
        tcp_keepalive=True,
        keepalive_timeout=KEEPALIVE_S,
        access_log=None,
        max_line_size=REQUEST_LINE_BYTES_MAX,
        max_field_size=REQUEST_LINE_BYTES_MAX,
        request_factory=_request,
        auto_decompress=False,  # a body that is not what its head says is answered, and a bomb is cut (`read_body`)
        logger=ServerLog(logging.getLogger(__name__)),
    )
    runner = web.ServerRunner(listener, shutdown_timeout=SHUTDOWN_S)
    running.push_async_callback(runner.cleanup)
    sweep = _SilenceSweep(listener, handler, clock, chosen.first_request_max_s)
    running.callback(sweep.stop)
    try:
        await runner.setup()
        context = tls.context if tls is not None else None
        await web.TCPSite(runner, host, port, backlog=1024, ssl_context=context).start()
    except OSError:
        await running.aclose()
        raise
    sweep.start()
    return running, runner.addresses[0][1]
