"""Authentication by bearer tokens: from the server's list, or computed from one key
(`services/api/tokens.py`).

The server needs to store no tokens of nodes and of drivers on nodes. A kubelet host gets a token for each of
its own nodes, valid for an hour and only over its own connections (X-ID5, X-TOK1). Secrets are compared in
constant time, and every failure has the same text (X-TOK4).
"""

import hashlib
import hmac
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from apiserver_fake.registry.accounts import Find, Rejected, Tokens
from services.api.errors import UNREADABLE, BadRequest, Forbidden, Unauthorized
from services.api.identity import ANONYMOUS, NODE_HOSTS_GROUP, Credential, Hosting, Identity, Stages
from services.api.meta import Document
from services.api.tokens import LEEWAY_S, LIFE_S, Owner, node_token, owner_of, server_token
from services.runtime.config import EXIT_CONFIG, StartError

TOKEN_BYTES_MAX = 8 << 10
CACHE_MAX = 50_000
KUBELET_TOKEN_LIFE_S = 60
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class TokenEntry(msgspec.Struct, frozen=True):
    """One line of the token file. For a kubelet host it also has the host's nodes, and the fields that its
    stages change.

    `nodes`, `node_prefix`: the host's nodes by name or by prefix; without either it gets no node's token.
    """

    token: str
    user: str
    groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    node_prefix: str = ""
    stages: Stages = Stages()

    @property
    def identity(self) -> Identity:
        """The identity of the line."""
        hosting = Hosting(frozenset(self.nodes), self.node_prefix, self.stages)
        return Identity(self.user, self.groups, hosting=hosting)


class TokenFile(msgspec.Struct, frozen=True):
    """The token file: the callers, and the key of node tokens as hex ("": the store's own key)."""

    tokens: tuple[TokenEntry, ...] = ()
    node_key: str = ""


def read_tokens(path: Path) -> TokenFile:
    """Read the token file: `{"tokens": [...], "node_key": hex}` or the list. Raises: StartError naming the error."""
    try:
        text = path.read_bytes()
        content = msgspec.json.decode(text, type=TokenFile | list[TokenEntry])
    except OSError as error:
        raise StartError(f"token file {path}: {error.strerror}", EXIT_CONFIG) from None
    except UNREADABLE as error:
        raise StartError(f"token file {path}: {error}", EXIT_CONFIG) from None
    read = content if isinstance(content, TokenFile) else TokenFile(tuple(content))
    for entry in read.tokens:
        if not entry.token or not entry.user:
            raise StartError(f"token file {path}: an entry has no token or no user", EXIT_CONFIG)
    return read


class Authenticator:
    """Turns bearer tokens into identities."""

    def __init__(
        self,
        tokens: Iterable[TokenEntry],
        node_key: bytes,
        accounts: Tokens | None = None,
        find: Find = lambda resource, namespace, name: None,
        wall: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Take the listed tokens. `accounts`: verifies service account tokens; None if there are none.

        `find`: returns the stored objects on which the validity of service account tokens depends.
        """
        self._accounts, self._find, self._wall = accounts, find, wall
        self._signed: dict[str, Document] = {}
        """Claims of tokens whose signature was found right; whether they still hold is asked each time."""
        listed = [(entry.token, entry.identity) for entry in tokens]
        self._by_digest = {_digest(token): (token, identity) for token, identity in listed}
        self._hosting = {known.user: known.hosting for _, known in listed if NODE_HOSTS_GROUP in known.groups}
        self._node_key = node_key
        self._cache: dict[tuple[str, str], Owner] = {}

    def identify(self, bearer: str, peer: str = "") -> Identity:
        """Return the identity of a bearer token; "" is anonymous. Raises: Unauthorized.

        `peer`: the user of the connection, by its certificate or by the credential that opened the stream.
        """
        if not bearer:
            return ANONYMOUS
        known = self._cache.get((bearer, peer))
        if known is not None and self._wall() < known.expires_s + LEEWAY_S:
            return known.identity
        if self._is_of_account(bearer):
            try:
                return replace(self._account(bearer, ())[0], credential=Credential(bearer, peer))
            except Rejected:
                raise Unauthorized("Unauthorized") from None
        owner = self._check(bearer, peer)
        if owner.expires_s < math.inf:
            owner = owner._replace(identity=replace(owner.identity, credential=Credential(bearer, peer)))
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        self._cache[bearer, peer] = owner
        return owner.identity

    def certified_identity(self, identity: Identity) -> Identity:
        """Return the identity of a certificate, with the nodes that the server's list has for a kubelet host.

        Raises: Unauthorized when the certificate has expired.
        """
        self.check(identity.credential)
        if NODE_HOSTS_GROUP not in identity.groups or identity.user not in self._hosting:
            return identity
        return replace(identity, hosting=self._hosting[identity.user])

    def check(self, credential: Credential) -> None:
        """Check that a credential is still valid. Raises: Unauthorized."""
        if credential.is_over(self._wall()):
            raise Unauthorized("Unauthorized")
        if credential.bearer:
            self.identify(credential.bearer, credential.peer)

    def _is_of_account(self, bearer: str) -> bool:
        if self._accounts is None or len(bearer) > TOKEN_BYTES_MAX or not bearer.isascii():
            return False
        return bearer in self._signed or self._accounts.is_own(bearer)

    def _account(self, bearer: str, audiences: Sequence[str]) -> tuple[Identity, tuple[str, ...]]:
        assert self._accounts is not None, "asked of a token of a service account"
        claims = self._signed.get(bearer)
        if claims is None:
            claims = self._accounts.verified_claims(bearer)
            if len(self._signed) >= CACHE_MAX:
                self._signed.clear()
            self._signed[bearer] = claims
        return self._accounts.identity(bearer, claims, self._find, self._wall(), audiences)

    def review(self, bearer: str, audiences: Sequence[str]) -> tuple[Identity, tuple[str, ...]] | None:
        """Return the token's identity and those of `audiences` for which it is valid; None if the token is unknown.

        No audiences: those of this API server. Raises: Rejected for a service account token that is no longer valid.
        """
        if self._is_of_account(bearer):
            return self._account(bearer, audiences)
        own = self._accounts.audiences if self._accounts is not None else ()
        meant = tuple(each for each in audiences or own if each in own)
        if audiences and not meant:
            return None
        try:
            return self._check(bearer).identity, meant
        except Unauthorized:
            return None

    def _check(self, bearer: str, peer: str = "") -> Owner:
        if len(bearer) <= TOKEN_BYTES_MAX and bearer.isascii():
            # Found by digest, so that the time taken says nothing about how much of a token was right.
            listed = self._by_digest.get(_digest(bearer))
            if listed is not None and hmac.compare_digest(listed[0], bearer):
                return Owner(listed[1])
            computed = owner_of(self._node_key, bearer, peer)
            if computed is not None and self._wall() < computed.expires_s + LEEWAY_S:
                return computed
        raise Unauthorized("Unauthorized")

    def kubelet_token(self) -> str:
        """Return the API server's own token for calls of kubelets without TLS."""
        return server_token(self._node_key, int(self._wall()) + KUBELET_TOKEN_LIFE_S)

    def node_token(self, identity: Identity, name: str) -> str:
        """Return a node's token for the host that runs it. Raises: Forbidden for a node of another host; BadRequest."""
        if NODE_HOSTS_GROUP not in identity.groups:
            raise Forbidden(f'nodetokens "{name}" is forbidden: {identity.user} is not in group {NODE_HOSTS_GROUP}')
        if len(name) > 253 or not _NODE_NAME.fullmatch(name):
            raise BadRequest(f"{name[:80]!r} cannot be the name of a node")
        if not identity.hosting.has(name):
            why = f"the credential of {identity.user} is {identity.hosting}"
            raise Forbidden(f'nodetokens "{name}" is forbidden: {why}')
        return node_token(self._node_key, name, identity.user, int(self._wall()) + LIFE_S)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
