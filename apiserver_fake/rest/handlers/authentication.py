"""Authentication of a request: host and origin checks, credential, impersonation, and the audit trail."""

from __future__ import annotations

from typing import Any, Protocol

from aiohttp import web

from apiserver_fake.extensions.audit.auditor import Auditor
from apiserver_fake.extensions.fairness.flow_schemas import attributes_of
from apiserver_fake.rates import Rate
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.registry.authorization.callers import Callers
from apiserver_fake.rest import paths
from apiserver_fake.rest.http import HttpRequest, bearer_of, is_encodable, source_of, trail_of
from apiserver_fake.rest.impersonation import impersonate
from services.api.errors import ApiError, BadRequest, Forbidden, Unauthorized
from services.api.identity import Identity, external
from services.api.seams import Clock
from services.runtime.serving_tls import identity_of_peer
from services.runtime.web import host_name, is_allowed_host

FAILED_LOGINS_PER_S = 20
"""Failed authentications per second and address that are answered with 401; further ones get 429."""
EXTERNALS_MAX = 512
MUTATING = frozenset(("POST", "PUT", "PATCH", "DELETE"))


class AuthenticatingServer(Protocol):
    """The part of `ApiServer` that authentication uses."""

    audit: Auditor | None
    access: Access

    @property
    def callers(self) -> Callers:
        """Authentication and authorization of callers."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other API servers write to the same store."""
        ...

    async def catch_up(self) -> None:
        """Wait until this server knows everything that other servers committed before the call."""
        ...


class Authentication:
    """Authenticates requests and begins their audit trails."""

    def __init__(self, server: AuthenticatingServer, clock: Clock, allowed_hosts: frozenset[str]) -> None:
        """`allowed_hosts`: names, in lower case, under which the server may be addressed."""
        self._server, self._clock, self._allowed_hosts = server, clock, allowed_hosts
        self._failed_logins = Rate(FAILED_LOGINS_PER_S, FAILED_LOGINS_PER_S)
        self._certified: dict[int, tuple[dict[str, Any], Identity | None]] = {}
        """Client certificates, as `ssl` describes them, and the identities in them, by the id of the description."""
        self._externals: dict[int, tuple[Identity, Identity]] = {}
        """Callers and what they are for RBAC, by the id of the caller's object."""

    def check_web(self, request: web.BaseRequest) -> None:
        """Refuse a request for another host, from another origin, or with bytes that are not UTF-8.

        Raises: Forbidden, BadRequest.
        """
        headers = request.headers
        host = headers.get("Host", "")
        local = request.transport.get_extra_info("sockname") if request.transport is not None else None
        if not is_allowed_host(host, self._allowed_hosts, local[0] if local else ""):
            raise Forbidden(f"the host name {host_name(host)[:100]!r} is not one of this server's")
        # Bytes that are not UTF-8 cannot be shown in an answer or stored in an object.
        if not request.raw_path.isascii() and not is_encodable(request.raw_path):
            raise BadRequest("the address of the request is not UTF-8")
        if not "".join(headers.values()).isascii():
            for name, value in headers.items():
                # A credential is never shown: a bad one is refused like any wrong credential.
                if name.lower() != "authorization" and not is_encodable(value):
                    raise BadRequest(f"the header {name} is not UTF-8")
        origin = headers.get("Origin", "")
        if origin and request.method in MUTATING and origin.lower() != f"{request.scheme}://{host}".lower():
            raise Forbidden("requests that change something must come from this server's own origin")

    async def caller(self, request: web.BaseRequest) -> Identity:
        """Return the identity of the caller, or the user that it impersonates.

        An unknown token is checked again after the server has caught up with the other API servers.

        Raises: Unauthorized, Forbidden.
        """
        try:
            return self._identity(request)
        except Unauthorized:
            if not self._server.is_shared:
                raise
        await self._server.catch_up()
        return self._identity(request)

    def _authenticate(self, request: web.BaseRequest) -> Identity:
        """Return the identity of the client certificate; without a valid certificate, that of the token."""
        peer = request.transport.get_extra_info("peercert") if request.transport is not None else None
        authorization = request.headers.get("Authorization", "")
        certified = self._identity_in(peer)
        if certified is not None:
            try:
                return self._server.callers.certified_identity(certified)
            except Unauthorized:
                if not authorization:
                    raise
        return self._server.callers.authenticate(bearer_of(authorization))

    def _identity_in(self, peer: dict[str, Any] | None) -> Identity | None:
        """Return `identity_of_peer(peer)`, read once for each connection: its description is always the same object.

        An entry holds the description, so the id of another one is never the same. Whether the certificate is still
        valid is asked for each request.
        """
        if not peer:
            return identity_of_peer(peer)
        known = self._certified.get(id(peer))
        if known is None:
            if len(self._certified) >= EXTERNALS_MAX:
                self._certified.clear()
            known = self._certified[id(peer)] = (peer, identity_of_peer(peer))
        return known[1]

    def _identity(self, request: web.BaseRequest) -> Identity:
        caller = self._authenticate(request)
        if self._server.access.is_rbac:
            caller = self._as_external(caller)
        if self._server.audit is None:
            return impersonate(caller, request.headers, self._server.callers.authorize_action)
        self.begin_trail(request, caller)
        trail = trail_of(request)
        try:
            acting = impersonate(caller, request.headers, self._server.callers.authorize_action)
        except ApiError:
            if trail is not None:
                trail.on_decision(allowed=False, reason="")
            raise
        if trail is not None:
            if acting is not caller:
                trail.impersonates(acting)
            parts = paths.split(request.rel_url.raw_path)
            asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
            trail.on_decision(*self._server.callers.decision(acting, asked))
        return acting

    def _as_external(self, caller: Identity) -> Identity:
        """Return `external(caller)`. An entry holds its caller, so the id of another one is never the same."""
        known = self._externals.get(id(caller))
        if known is None:
            if len(self._externals) >= EXTERNALS_MAX:
                self._externals.clear()
            known = self._externals[id(caller)] = (caller, external(caller))
        return known[1]

    def begin_trail(self, request: web.BaseRequest, caller: Identity | None) -> None:
        """Begin the audit trail of a request. `caller`: None if its authentication has failed."""
        audit = self._server.audit
        if audit is None or not isinstance(request, HttpRequest):
            return
        parts = paths.split(request.rel_url.raw_path)
        asked = attributes_of(request.method, request.path, parts, request.rel_url.query)
        version = "" if asked.path else parts[1] if parts[0] == "api" else parts[2]
        known = request.answer_headers["Audit-Id"]
        if caller is None:
            tried = "bearer" if request.headers.get("Authorization", "").lower().startswith("bearer ") else ""
            audit.record_unauthenticated(asked, source_of(request), audit_id=known, version=version, tried=tried)
            return
        request.trail = audit.begin(caller, asked, source_of(request), audit_id=known, version=version)

    def takes_failure(self, request: web.BaseRequest) -> bool:
        """Whether a failed authentication is answered with its reason: the number per second and address is limited."""
        return self._failed_logins.take(request.remote, self._clock.now())
