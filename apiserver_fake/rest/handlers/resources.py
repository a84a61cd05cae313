"""Requests for resources: chooses the handler by path and verb."""

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
"""Subresources that are created and never read; their answers are never Tables, as with reviews."""


class ResourceServer(Protocol):
    """The part of `ApiServer` that requests for resources use."""

    store: Store
    fairness: FairDispatch | None

    @property
    def callers(self) -> Callers:
        """Authentication and authorization of callers."""
        ...

    @property
    def watches(self) -> Watches:
        """The open watches, and those that wait for their turn."""
        ...

    def api_for(self, identity: Identity) -> Api:
        """Return the API of this server for an identity."""
        ...

    def streaming_api(
        self, identity: Identity, place: Place | None, send_blocked_max_s: float, started: Callable[[], None]
    ) -> Api:
        """Return the API for one watch of a client at the other end of a connection."""
        ...


class ResourceRequests:
    """Answers requests for resources."""

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
        self._send_blocked_max_s, self._lines = send_blocked_max_s, watch.SharedLines()

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
        """Return the form of the answer that the client accepts.

        Raises: NotAcceptable; Forbidden instead for a caller that may not make the request, so that it learns no more.
        """
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
        encoder = watch.EventEncoder(route, form, include, self._clock.wall, self._encoding, self._lines)
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
                # Before the body is read: a caller that may not write learns nothing about its body (8.2).
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
        """Return the function that ends a watch's turn in priority and fairness: only its start counts."""
        fairness, turn = self._server.fairness, request.turn if isinstance(request, HttpRequest) else None
        return (lambda: fairness.leave(turn)) if fairness is not None and turn is not None else lambda: None

    async def _bind(self, request: web.BaseRequest, identity: Identity, namespace: str) -> web.StreamResponse:
        """Bind the pod that a Binding names, posted to the older path `bindings`."""
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
        """Answer a path that is not served in a group of custom resources.

        Raises: NotFound that names the object, for a subresource that is not defined.
        """
        parts = paths.split(request.rel_url.raw_path)
        asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
        served = self._catalogue.served_versions[group, version].get(asked.resource)
        if served is not None and asked.subresource:
            raise not_found(served.resource, asked.name)
        return page_not_found()
