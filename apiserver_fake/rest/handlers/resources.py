"""Requests of resources: from the kind of path and the verb to what answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from apiserver_fake.extensions.fairness.flow_schemas import attributes_of
from apiserver_fake.extensions.fairness.gate import FairDispatch
from apiserver_fake.registry.authorization import reviews
from apiserver_fake.registry.authorization.callers import Callers
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.decode import json_object
from apiserver_fake.registry.errors import not_found
from apiserver_fake.rest import discovery, media_types, paths, streaming, tables, watch
from apiserver_fake.rest.encoding import Encoding
from apiserver_fake.rest.handlers.answers import Answers
from apiserver_fake.rest.handlers.calls import Calls
from apiserver_fake.rest.handlers.path_rights import PathRights
from apiserver_fake.rest.handlers.pod_connections import PodConnections
from apiserver_fake.rest.handlers.review_requests import ReviewRequests
from apiserver_fake.rest.http import HttpRequest, json_from, only, page_not_found, read_body
from apiserver_fake.rest.media_types import PLAIN, Form
from apiserver_fake.rest.parameters import Parameters
from apiserver_fake.rest.paths import Route
from apiserver_fake.rest.protobuf import NotAcceptable
from apiserver_fake.rest.versions import versioned_api
from apiserver_fake.storage.store import Store
from apiserver_fake.storage.watch_starts import Place
from apiserver_fake.storage.watches import Watches
from services.api.errors import ApiError, BadRequest, MethodNotAllowed, NotFound
from services.api.identity import Identity
from services.api.seams import Clock
from services.api.wire import Api, Response

CONVERSIONS = ("Table", "PartialObjectMetadata")
CREATED_SUBRESOURCES = frozenset(("binding", "eviction", "token"))
"""Subresources that are created and never read; like reviews, their answers are never Tables."""


class ResourceServer(Protocol):
    """What requests of resources need of `ApiServer`."""

    store: Store
    fairness: FairDispatch | None

    @property
    def callers(self) -> Callers:
        """Who calls and what they may."""
        ...

    @property
    def watches(self) -> Watches:
        """Watches, and those that wait for their turn."""
        ...

    def api_for(self, identity: Identity) -> Api:
        """Return the server as that identity reaches it."""
        ...

    def streaming_api(
        self, identity: Identity, place: Place | None, send_blocked_max_s: float, started: Callable[[], None]
    ) -> Api:
        """Return the server for one watch of a client that is at the other end of a connection."""
        ...


class ResourceRequests:
    """Answers the requests of resources."""

    def __init__(
        self,
        server: ResourceServer,
        catalogue: Catalogue,
        *,
        clock: Clock,
        encoding: Encoding,
        rights: PathRights,
        reviews: ReviewRequests,
        connections: PodConnections,
        calls: Calls,
        answers: Answers,
        next_piece: Callable[[], Awaitable[None]],
        send_blocked_max_s: float,
    ) -> None:
        """`send_blocked_max_s`: how long one send of a watch may block before the stream is cut (L-WS)."""
        self._server, self._catalogue, self._clock, self._encoding = server, catalogue, clock, encoding
        self._rights, self._reviews, self._connections = rights, reviews, connections
        self._calls, self._answers, self._next_piece = calls, answers, next_piece
        self._send_blocked_max_s = send_blocked_max_s

    async def resource(
        self, request: web.BaseRequest, identity: Identity, group: str, version: str, rest: list[str]
    ) -> web.StreamResponse:
        """Return the answer to a request below a group version. Raises: ApiError."""
        if (review := reviews.review_at(group, version, rest)) is not None:
            return await self._reviews.review(request, identity, *review)
        if not group and rest[0] == "namespaces" and rest[2:] == ["bindings"]:
            return await self._bind(request, identity, rest[1])
        parameters = Parameters(request.rel_url.query)
        resource, namespace, name, connected = streaming.stream_target(group, version, rest)
        if connected:
            return await self._connections.connect(request, identity, resource, namespace, name, connected)
        try:
            route = paths.parse(self._catalogue, group, version, rest)
        except NotFound:
            self._rights.authorize_unserved(request, identity)
            if not group or discovery.is_built_in(self._catalogue, group):
                raise
            return self._not_defined(request, group, version)
        try:
            verb = paths.verb_of(request.method, route)
        except MethodNotAllowed:
            self._rights.authorize_unserved(request, identity)
            raise
        if (verb, route.subresource) == ("get", "log"):
            return await self._connections.log(request, identity, route)
        form = self._form(request, identity, route, verb)
        include = tables.check_include(parameters.text("includeObject"))
        if paths.is_watch(verb, route, parameters):
            return await self._watch(request, identity, route, parameters, include)
        response = await self._call(request, identity, route, verb, parameters)
        return await self._answers.complete(request, response, route, form, include)

    def _form(self, request: web.BaseRequest, identity: Identity, route: Route, verb: str) -> Form:
        """Return the form in which a client takes the answer. Raises: NotAcceptable; Forbidden for who may not read it,
        and learns no more than that."""
        try:
            conversions = () if route.subresource in CREATED_SUBRESOURCES else CONVERSIONS
            return media_types.negotiate(request.headers.get("Accept", ""), conversions)
        except NotAcceptable:
            self._server.callers.authorize(identity, route.request(verb))
            raise

    async def _watch(
        self, request: web.BaseRequest, identity: Identity, route: Route, parameters: Parameters, include: str
    ) -> web.StreamResponse:
        form = media_types.negotiate(request.headers.get("Accept", ""), CONVERSIONS, is_stream=True)
        encoder = watch.EventEncoder(route, form, include, self._clock.wall, self._encoding)
        watched = paths.watch_request(route, parameters, self._server.store.rv)
        place = await self._server.watches.begin(identity, watched)
        api = self._server.streaming_api(identity, place, self._send_blocked_max_s, self._leaving(request))
        batches = versioned_api(api, route.served).watch(watched)
        return await watch.stream(request, batches, encoder, send_blocked_max_s=self._send_blocked_max_s)

    async def _call(
        self, request: web.BaseRequest, identity: Identity, route: Route, verb: str, parameters: Parameters
    ) -> Response:
        """Return the response to a call, within a span of its own. Raises: ApiError."""
        api = versioned_api(self._server.api_for(identity), route.served)
        span = self._calls.span(request, route, verb)
        try:
            if verb not in ("get", "list"):
                # Before the body is read: who may not write learns nothing about what was sent (8.2).
                self._server.callers.authorize(identity, route.request(verb))
            if isinstance(request, HttpRequest) and request.turn is not None and request.turn.work.is_long:
                await self._next_piece()
            response = await self._calls.call(request, api, route, verb, parameters, span)
        except BaseException as error:
            refused = isinstance(error, ApiError) and error.code < 500
            if isinstance(error, ApiError):
                span.set(**{"http.response.status_code": error.code})
            span.end("" if refused else type(error).__name__)
            raise
        span.set(**{"http.response.status_code": response.code})
        span.end("" if response.code < 500 else str(response.code))
        return response

    def _leaving(self, request: web.BaseRequest) -> Callable[[], None]:
        """Return what ends a watch's turn before its end: it counts while it starts."""
        fairness, turn = self._server.fairness, request.turn if isinstance(request, HttpRequest) else None
        return (lambda: fairness.leave(turn)) if fairness is not None and turn is not None else lambda: None

    async def _bind(self, request: web.BaseRequest, identity: Identity, namespace: str) -> web.StreamResponse:
        """Bind the pod that a Binding names, as the older path of it."""
        only(request, "POST")
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
        return self._answers.answer(response, pods, PLAIN, "")

    def _not_defined(self, request: web.BaseRequest, group: str, version: str) -> web.Response:
        """Answer what leads nowhere in a group of definitions. Raises: NotFound that names the object whose subresource
        is not defined."""
        parts = paths.split(request.rel_url.raw_path)
        asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
        served = self._catalogue.served_versions[group, version].get(asked.resource)
        if served is not None and asked.subresource:
            raise not_found(served.resource, asked.name)
        return page_not_found()
