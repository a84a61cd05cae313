"""Authorization of paths: non-resource paths, and paths that nothing serves."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from apiserver_fake.extensions.fairness.flow_schemas import attributes_of
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.registry.authorization.reviews import Reviewer
from apiserver_fake.registry.policy import Attributes
from apiserver_fake.rest import paths
from services.api.identity import Identity
from services.api.wire import Request


class AuthorizingServer(Protocol):
    """The part of `ApiServer` that the authorization of paths uses."""

    access: Access

    @property
    def callers(self) -> Reviewer:
        """Authorization of callers."""
        ...


class PathRights:
    """Authorizes requests for paths."""

    def __init__(self, server: AuthorizingServer) -> None:
        self._server = server

    def authorize_path(self, request: web.BaseRequest, identity: Identity) -> None:
        """Check that RBAC lets the caller use the non-resource path. Raises: Forbidden."""
        asked = Attributes(request.method.lower(), path=request.path)
        self._server.callers.authorize_action(identity, asked)

    def authorize_unserved(self, request: web.BaseRequest, identity: Identity) -> None:
        """Authorize a request for a path that nothing serves, before it is refused as not served. Raises: Forbidden.

        Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/filters/authorization.go`, which runs first.
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

    def only_monitors(self, request: web.BaseRequest, identity: Identity) -> None:
        """Check that the caller may read the pages of monitors. Raises: Forbidden."""
        if not self._server.access.is_rbac:  # with RBAC, the path is authorized already
            self._server.callers.authorize_action(identity, Attributes("get", path=request.path))
