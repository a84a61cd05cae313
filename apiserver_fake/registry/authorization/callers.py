"""Authentication, impersonation and authorization of the callers of one server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from apiserver_fake.registry.authorization.authentication import Authenticator
from apiserver_fake.registry.authorization.authorizer import forbidden_action
from apiserver_fake.registry.authorization.impersonation import acting_as
from apiserver_fake.registry.policy import Attributes, Decision, Policy, PolicyRule
from services.api.errors import ApiError
from services.api.identity import MASTERS_GROUP, MONITOR, PAGE, STAGE_PLAYER, Credential, Identity, external
from services.api.wire import Request

MONITORED = frozenset(("/metrics", "/healthz", "/livez", "/readyz"))
"""Paths that `system:monitor` may get (guarantees 8.3)."""
SHOWN = re.compile("/(metrics|rates|configz|explain/.+)")
"""Paths that `keplab:ui` may get of every process: metrics, settings, and explanations of pod placement."""


class Rights(Protocol):
    """Rights to resources, by the roles of the mesh and by RBAC objects; `Registry` implements it."""

    def policy_for(self, identity: Identity) -> Policy | None:
        """Return the RBAC policy for this caller; None for a component of the mesh, or without RBAC."""
        ...

    def authorize(self, identity: Identity, request: Request) -> str:
        """Return the RBAC binding that allows the request; empty string if none is needed. Raises: Forbidden."""
        ...

    def decision(self, identity: Identity, request: Request) -> tuple[bool, str]:
        """Return whether the identity may make the request, and the reason."""
        ...


class Callers:
    """Authenticates and authorizes the callers of a server. `is_rbac`: RBAC objects decide what clients may do."""

    def __init__(self, rights: Rights, authenticator: Authenticator, *, is_rbac: bool) -> None:
        self._rights, self._authenticator, self._is_rbac = rights, authenticator, is_rbac

    # -- authentication

    def authenticate(self, bearer: str, peer: str = "") -> Identity:
        """Return the identity of a token; "" is anonymous. `peer`: the user of the connection. Raises: Unauthorized."""
        return self._authenticator.identify(bearer, peer)

    def certified_identity(self, identity: Identity) -> Identity:
        """Return the identity of a certificate, with the nodes that the server's list has for a kubelet host.

        Raises: Unauthorized when the certificate has expired.
        """
        return self._authenticator.certified_identity(identity)

    def check(self, credential: Credential) -> None:
        """Check that a credential is still valid. Raises: Unauthorized."""
        self._authenticator.check(credential)

    def review_token(self, bearer: str, audiences: Sequence[str]) -> tuple[Identity, tuple[str, ...]] | None:
        """Return the token's identity and the audiences for which it is valid; None for an unknown token.

        Raises: Rejected for a token of this server that is no longer valid.
        """
        return self._authenticator.review(bearer, audiences)

    def kubelet_token(self) -> str:
        """Return the token that this server presents to kubelets that it calls without TLS."""
        return self._authenticator.kubelet_token()

    def node_token(self, identity: Identity, name: str) -> str:
        """Return a node's token for the host that runs it. Raises: Forbidden for a node of another host; BadRequest."""
        return self._authenticator.node_token(identity, name)

    def acting(self, caller: Identity, request: Request) -> tuple[Identity, Request]:
        """Return the identity under which a component's call is made, and the call without its `as_user`.

        RBAC objects decide which user it may impersonate. Without RBAC only the component that plays Stages may
        impersonate, and the mesh's roles of that user limit the call. Raises: Forbidden.
        """

        def authorize(caller: Identity, asked: Attributes) -> None:
            if self._is_rbac or caller.user != STAGE_PLAYER.user:
                self.authorize_action(external(caller), asked)

        user = acting_as(caller, request.as_user, authorize)
        return user, msgspec.structs.replace(request, as_user="")

    # -- authorization

    def authorize(self, identity: Identity, request: Request) -> str:
        """Check that the identity may make the request, without making it; return the binding that allows it.

        Raises: Forbidden.
        """
        return self._rights.authorize(identity, request)

    def authorize_action(self, identity: Identity, asked: Attributes) -> str:
        """Check a request for a path or an impersonation; return the reason why it is allowed. Raises: Forbidden."""
        if identity.user == MONITOR.user and asked.path in MONITORED and asked.verb == "get":
            return ""
        if identity.user == PAGE.user and asked.verb == "get" and SHOWN.fullmatch(asked.path):
            return ""
        policy = self._rights.policy_for(identity)
        decision = policy.decide(identity, asked) if policy is not None else Decision(MASTERS_GROUP in identity.groups)
        if not decision.allowed:
            raise forbidden_action(identity, asked, decision.reason)
        return decision.reason

    def rules_for(self, identity: Identity, namespace: str) -> tuple[list[PolicyRule], list[str]] | None:
        """Return every RBAC rule of an identity in a namespace; None if RBAC does not apply to it."""
        policy = self._rights.policy_for(identity)
        return None if policy is None else policy.rules_for(identity, namespace)

    def decision(self, identity: Identity, asked: Attributes | Request) -> tuple[bool, str]:
        """Return whether the identity may do what is asked, and the reason, for the audit log."""
        if isinstance(asked, Request):
            return self._rights.decision(identity, asked)
        if not asked.path:
            group = f".{asked.group}" if asked.group else ""
            request = Request(
                verb=asked.verb,
                resource=f"{asked.resource}{group}",
                subresource=asked.subresource,
                namespace=asked.namespace,
                name=asked.name,
            )
            return self._rights.decision(identity, request)
        try:
            return True, self.authorize_action(identity, asked)
        except ApiError as refused:
            return False, refused.message.partition("RBAC: ")[2]
