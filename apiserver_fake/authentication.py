"""Who is calling: bearer tokens from the server's list, and those computed from one key (`services/api/tokens.py`).

Of tokens of nodes and of drivers on nodes the server needs to remember none; a kubelet host gets one for each of its
nodes (X-ID5). Secrets are compared in constant time, and every failure sounds alike (X-TOK4).
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from services.api.errors import BadRequest, Forbidden, Unauthorized
from services.api.identity import ANONYMOUS, NODE_HOSTS_GROUP, Identity
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
    except msgspec.MsgspecError as error:
        raise StartError(f"token file {path}: {error}", EXIT_CONFIG) from None
    read = found if isinstance(found, TokenFile) else TokenFile(tuple(found))
    for entry in read.tokens:
        if not entry.token or not entry.user:
            raise StartError(f"token file {path}: an entry has no token or no user", EXIT_CONFIG)
    return read


class Authenticator:
    """Turns bearer tokens into identities."""

    def __init__(self, tokens: Iterable[TokenEntry], node_key: bytes) -> None:
        self._by_digest = {_digest(t.token): (t.token, Identity(t.user, t.groups)) for t in tokens}
        self._node_key = node_key
        self._cache: dict[str, Identity] = {}

    def identify(self, bearer: str) -> Identity:
        """Return whose token this is; "" is anonymous. Raises: Unauthorized."""
        if not bearer:
            return ANONYMOUS
        known = self._cache.get(bearer)
        if known is not None:
            return known
        identity = self._check(bearer)
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        self._cache[bearer] = identity
        return identity

    def _check(self, bearer: str) -> Identity:
        if len(bearer) <= TOKEN_BYTES_MAX and bearer.isascii():
            # Found by digest, so that the time taken says nothing about how much of a token was right.
            listed = self._by_digest.get(_digest(bearer))
            if listed is not None and hmac.compare_digest(listed[0], bearer):
                return listed[1]
            if (computed := identity_of(self._node_key, bearer)) is not None:
                return computed
        raise Unauthorized("Unauthorized")

    def node_token(self, identity: Identity, name: str) -> str:
        """Return the token of a node for the host that runs it. Raises: Forbidden, BadRequest."""
        if NODE_HOSTS_GROUP not in identity.groups:
            raise Forbidden(f'nodetokens "{name}" is forbidden: {identity.user} is not in group {NODE_HOSTS_GROUP}')
        if len(name) > 253 or not _NODE_NAME.fullmatch(name):
            raise BadRequest(f"{name[:80]!r} cannot be the name of a node")
        return node_token(self._node_key, name)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
