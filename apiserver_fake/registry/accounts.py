"""The settings of service accounts on a server, and the protocol by which the kernel knows their token
issuer.

The write path, authentication and REST know tokens by this protocol alone; a server without a signing key has
none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from services.api.identity import Identity
from services.api.meta import Document

DEFAULT_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
LEGACY_TYPE: Final = "kubernetes.io/service-account-token"
"""Type of a secret that holds a token."""
ACCOUNT_NAME, ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
"""Annotations of a service account token secret: name and uid of its account."""

Find = Callable[[str, str, str], Document | None]
"""Function that returns the stored object for `(resource, namespace, name)`; None if there is none."""


class Rejected(Exception):
    """A token of this issuer is no longer valid; the text may be shown."""


@dataclass(frozen=True)
class BoundObject:
    """The object that a token is bound to, and its kind as claims name it (`pod`). `node`: the node of a bound pod."""

    kind: str
    object: Document
    node: Document | None = None


class Tokens(Protocol):
    """Issues and verifies the tokens of service accounts."""

    @property
    def audiences(self) -> Sequence[str]:
        """The audiences of this API server."""
        ...

    def issue(
        self,
        account: Document,
        audiences: Sequence[str],
        lives_s: int,
        bound: BoundObject | None,
        *,
        token_id: str,
        now_s: float,
    ) -> str:
        """Return a token of the account for these audiences."""
        ...

    def legacy(self, account: Document, secret: Document) -> str:
        """Return the token that a secret of `LEGACY_TYPE` holds for its account."""
        ...

    def configuration(self) -> Document:
        """Return the document that `/.well-known/openid-configuration` serves for this issuer."""
        ...

    def key_set(self) -> Document:
        """Return the public key as a JSON Web Key Set."""
        ...

    def is_own(self, bearer: str) -> bool:
        """Whether a token names this server as its issuer."""
        ...

    def verified_claims(self, bearer: str) -> Document:
        """Return the claims of a token that this server signed; the token may have expired. Raises: Rejected."""
        ...

    def identity(
        self, bearer: str, claims: Document, find: Find, now_s: float, audiences: Sequence[str] = ()
    ) -> tuple[Identity, tuple[str, ...]]:
        """Return the token's identity, and those of `audiences` for which it is valid (empty: those of this API
        server).

        Raises: Rejected, also when the account or the object that the token is bound to is gone.
        """
        ...


@dataclass(frozen=True)
class ServiceAccounts:
    """The service account settings of a server. `tokens`: the issuer; None issues no tokens.

    `is_admitting`: a pod's service account must exist, and the pod gets a volume with a token (upstream's admission
    plugin ServiceAccount).
    """

    tokens: Tokens | None = None
    is_admitting: bool = False


NO_ACCOUNTS: Final = ServiceAccounts()
