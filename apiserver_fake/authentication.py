"""Who is calling: bearer tokens from the server's list, and those computed from one key (`services/api/tokens.py`).

Of tokens of nodes and of drivers on nodes the server needs to remember none; a kubelet host gets one for each of its
nodes (X-ID5). Secrets are compared in constant time, and every failure sounds alike (X-TOK4).
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from apiserver_fake.accounts.tokens import Find, Rejected, Tokens
from services.api.errors import UNREADABLE, BadRequest, Forbidden, Unauthorized
from services.api.identity import ANONYMOUS, NODE_HOSTS_GROUP, Identity
from services.api.meta import Document
from services.api.tokens import identity_of, node_token
from services.runtime.config import EXIT_CONFIG, StartError

TOKEN_BYTES_MAX = 8 << 10
CACHE_MAX = 50_000
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class TokenEntry(msgspec.Struct, frozen=True):
    """One line of the token file."""

    token: str
    user: str
    groups: tuple[str, ...] = ()


class TokenFile(msgspec.Struct, frozen=True):
    """The token file: who may call, and the key of node tokens as hex ("": the store's own)."""

    tokens: tuple[TokenEntry, ...] = ()
    node_key: str = ""


def read_tokens(path: Path) -> TokenFile:
    """Read the token file: `{"tokens": [...], "node_key": hex}` or the list. Raises: StartError naming the fault."""
    try:
        text = path.read_bytes()
        found = msgspec.json.decode(text, type=TokenFile | list[TokenEntry])
    except OSError as error:
        raise StartError(f"token file {path}: {error.strerror}", EXIT_CONFIG) from None
    except UNREADABLE as error:
        raise StartError(f"token file {path}: {error}", EXIT_CONFIG) from None
    read = found if isinstance(found, TokenFile) else TokenFile(tuple(found))
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
        *,
        binds_nodes: bool = False,
    ) -> None:
        """`accounts`: verifies tokens of service accounts, which live as long as the stored objects that `find` shows;
        None: there are none. `binds_nodes`: tokens of nodes are good only with the certificate of their host (X-ID5).
        """
        self._binds_nodes = binds_nodes
        self._accounts, self._find, self._wall = accounts, find, wall
        self._signed: dict[str, Document] = {}
        """Claims of tokens whose signature was found right; whether they still hold is asked each time."""
        self._by_digest = {_digest(t.token): (t.token, Identity(t.user, t.groups)) for t in tokens}
        self._node_key = node_key
        self._cache: dict[tuple[str, str], Identity] = {}

    def identify(self, bearer: str, peer: str = "") -> Identity:
        """Return whose token this is; "" is anonymous. `peer`: whose certificate the connection has. Raises:
        Unauthorized."""
        if not bearer:
            return ANONYMOUS
        known = self._cache.get((bearer, peer))
        if known is not None:
            return known
        if self._is_of_account(bearer):
            try:
                return self._account(bearer, ())[0]
            except Rejected:
                raise Unauthorized("Unauthorized") from None
        identity = self._check(bearer, peer)
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        self._cache[bearer, peer] = identity
        return identity

    def _is_of_account(self, bearer: str) -> bool:
        if self._accounts is None or len(bearer) > TOKEN_BYTES_MAX or not bearer.isascii():
            return False
        return bearer in self._signed or self._accounts.is_own(bearer)

    def _account(self, bearer: str, audiences: Sequence[str]) -> tuple[Identity, tuple[str, ...]]:
        assert self._accounts is not None, "asked of a token of a service account"
        claims = self._signed.get(bearer)
        if claims is None:
            claims = self._accounts.verified(bearer)
            if len(self._signed) >= CACHE_MAX:
                self._signed.clear()
            self._signed[bearer] = claims
        return self._accounts.identity(bearer, claims, self._find, self._wall(), audiences)

    def review(self, bearer: str, audiences: Sequence[str]) -> tuple[Identity, tuple[str, ...]] | None:
        """Return whose token it is and for which of these audiences (none: those of this API server); None for one that
        this server does not know. Raises: Rejected for a service account's that is not good any more."""
        if self._is_of_account(bearer):
            return self._account(bearer, audiences)
        own = self._accounts.audiences if self._accounts is not None else ()
        meant = tuple(each for each in audiences or own if each in own)
        if audiences and not meant:
            return None
        try:
            return self._check(bearer), meant
        except Unauthorized:
            return None

    def _check(self, bearer: str, peer: str = "") -> Identity:
        if len(bearer) <= TOKEN_BYTES_MAX and bearer.isascii():
            # Found by digest, so that the time taken says nothing about how much of a token was right.
            listed = self._by_digest.get(_digest(bearer))
            if listed is not None and hmac.compare_digest(listed[0], bearer):
                return listed[1]
            if (computed := identity_of(self._node_key, bearer, self._host(peer))) is not None:
                return computed
        raise Unauthorized("Unauthorized")

    def node_token(self, identity: Identity, name: str) -> str:
        """Return the token of a node for the host that runs it. Raises: Forbidden, BadRequest."""
        if NODE_HOSTS_GROUP not in identity.groups:
            raise Forbidden(f'nodetokens "{name}" is forbidden: {identity.user} is not in group {NODE_HOSTS_GROUP}')
        if len(name) > 253 or not _NODE_NAME.fullmatch(name):
            raise BadRequest(f"{name[:80]!r} cannot be the name of a node")
        return node_token(self._node_key, name, self._host(identity.user))

    def _host(self, user: str) -> str:
        """Return what tokens of nodes are bound to, of that user: itself, if they are bound at all."""
        return (user or ANONYMOUS.user) if self._binds_nodes else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
