"""How a server treats service accounts, and the issuer of their tokens as the kernel knows it.

The write path, authentication and REST know tokens by the protocol here alone; a server without a signing key has none.
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
"""Annotations of a secret that holds a token: whose it is."""

Find = Callable[[str, str, str], Document | None]
"""`(resource, namespace, name)` to the stored object."""


class Rejected(Exception):
    """A token of this issuer that is not good any more; the text may be shown."""


@dataclass(frozen=True)
class Bound:
    """What a token is bound to: the kind as claims name it (`pod`), and the object. `node`: where a pod runs."""

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
        bound: Bound | None,
        *,
        token_id: str,
        now_s: float,
    ) -> str:
        """Return a token of that account for these audiences."""
        ...

    def legacy(self, account: Document, secret: Document) -> str:
        """Return the token that a secret of `LEGACY_TYPE` holds for its account."""
        ...

    def configuration(self) -> Document:
        """Return what `/.well-known/openid-configuration` says of this issuer."""
        ...

    def key_set(self) -> Document:
        """Return the public key as a JSON Web Key Set."""
        ...

    def is_own(self, bearer: str) -> bool:
        """Whether a token says that this server issued it."""
        ...

    def verified(self, bearer: str) -> Document:
        """Return the claims of a token that this server signed; they may be over. Raises: Rejected."""
        ...

    def identity(
        self, bearer: str, claims: Document, find: Find, now_s: float, audiences: Sequence[str] = ()
    ) -> tuple[Identity, tuple[str, ...]]:
        """Return whose token it is and for which of the audiences ("these": those of this API server) it is good.

        Raises: Rejected, also when the account or what the token is bound to is gone.
        """
        ...


@dataclass(frozen=True)
class ServiceAccounts:
    """How a server treats service accounts: `tokens` None issues none; `is_admitting`: pods run as accounts that there
    are, and get a volume with a token (upstream's admission plugin ServiceAccount)."""

    tokens: Tokens | None = None
    is_admitting: bool = False


NO_ACCOUNTS: Final = ServiceAccounts()
