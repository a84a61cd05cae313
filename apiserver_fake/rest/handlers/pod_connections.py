"""Connections that a kubelet answers: exec, attach, port-forward, proxies and logs."""

from __future__ import annotations

from typing import Protocol
from urllib.parse import unquote

from aiohttp import web

from apiserver_fake.registry.admission.attributes import Complete, Connection
from apiserver_fake.registry.authorization.callers import Callers
from apiserver_fake.rest import connections, pod_streams, streaming
from apiserver_fake.rest.http import trail_of, warning_header
from apiserver_fake.rest.paths import Route
from apiserver_fake.rest.streaming import Kubelets, Target
from services.api.identity import ADMIN, Identity
from services.api.meta import Document
from services.api.wire import Api, Request


class ConnectingServer(Protocol):
    """The part of `ApiServer` that connections use."""

    @property
    def callers(self) -> Callers:
        """Authentication and authorization of callers."""
        ...

    def api_for(self, identity: Identity) -> Api:
        """Return the API of this server for an identity."""
        ...

    async def admit_connection(
        self, identity: Identity, request: Request, options: Document, complete: Complete
    ) -> Connection:
        """Return a connection's options after admission. Raises: ApiError."""
        ...


class PodConnections:
    """Opens connections to pods, services and nodes through their kubelets."""

    def __init__(self, server: ConnectingServer, kubelets: Kubelets) -> None:
        self._server, self._kubelets = server, kubelets

    async def log(self, request: web.BaseRequest, identity: Identity, route: Route) -> web.StreamResponse:
        """Authorize the caller and send a container's log. Raises: ApiError."""
        self._server.callers.authorize(identity, route.request("get"))
        itself = self._server.api_for(ADMIN)
        return await pod_streams.stream(request, route.namespace, route.name, itself, self._kubelets)

    async def connect(
        self, request: web.BaseRequest, identity: Identity, resource: str, namespace: str, name: str, kind: str
    ) -> web.StreamResponse:
        """Authorize and admit a connection, then serve it. Raises: ApiError."""
        self._server.callers.authorize(identity, streaming.right(request, resource, namespace, name, kind))
        query: connections.Query = request.rel_url.query
        path = streaming.path_behind(request, resource)
        options = connections.options_of(resource, kind, query, unquote(path))
        asked = Request(verb="connect", resource=resource, namespace=namespace, name=name, subresource=kind)
        connection = await self._server.admit_connection(identity, asked, options, connections.complete_options)
        if connection.options != options:
            query, path = connections.query_of(connection.options), connections.raw_path_of(connection.options)
        itself = self._server.api_for(ADMIN)
        target = Target(resource, namespace, name, kind, query, path.removeprefix("/"))
        answer = await streaming.serve(request, target, itself, self._kubelets)
        if (trail := trail_of(request)) is not None:
            trail.on_annotations(connection.audit)
        if not answer.prepared:
            for text in connection.warnings:
                answer.headers.add("Warning", warning_header(text))
        return answer
