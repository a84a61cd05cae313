"""Bearer tokens computed from the mesh's key: of nodes, and of DRA drivers' service accounts on nodes. Pure.

Source: guarantees 8.1 (X-ID5, X-TOK1); KEP-4193 (tokens that are bound to a node); decision 0039.
"""

import hashlib
import hmac
import math
import re
from typing import NamedTuple

from services.api.identity import KUBELET_CLIENT, Identity, driver_identity, node_identity

LIFE_S = 3600
"""Lifetime of a node's token in seconds (X-TOK1)."""
LEEWAY_S = 10
_TIME = re.compile(r"[0-9]{1,12}")


class Owner(NamedTuple):
    """Identity behind a token, and when the token expires, in seconds since the epoch."""

    identity: Identity
    expires_s: float = math.inf


def node_token(key: bytes, node: str, host: str, expires_s: int) -> str:
    """Return a token for a node that is valid until `expires_s`, and only over connections of that host."""
    return f"node.{node}.{expires_s}.{_mac(key, _node_claim(node, host, str(expires_s)))}"


def _node_claim(node: str, host: str, expires: str) -> str:
    # No node's name has an "@", and no user of a host one or a blank.
    return f"{node}@{host} {expires}"


def server_token(key: bytes, expires_s: int) -> str:
    """Return the API server's own token for its calls to kubelets."""
    return f"kubelets.{expires_s}.{_mac(key, f'kubelets/{expires_s}')}"


def driver_token(key: bytes, driver: str, node: str) -> str:
    """Return the token of a driver's service account, bound to a node."""
    name = f"{node}/{driver}"
    return f"driver.{name}.{_mac(key, f'driver/{name}')}"


def owner_of(key: bytes, token: str, host: str = "") -> Owner | None:
    """Return the owner of a computed token; None if the token is invalid. Takes equal time for wrong and right
    tokens.

    `host`: the host whose connection it came over. The caller must check expiry.
    """
    prefix, _, rest = token.partition(".")
    name, _, mac = rest.rpartition(".")
    if not name:
        return None
    if prefix == "node":
        node, _, expires = name.rpartition(".")
        is_right = hmac.compare_digest(mac, _mac(key, _node_claim(node, host, expires)))
        return Owner(node_identity(node), float(expires)) if is_right and _TIME.fullmatch(expires) else None
    if prefix == "kubelets" and hmac.compare_digest(mac, _mac(key, f"kubelets/{name}")):
        return Owner(KUBELET_CLIENT, float(name)) if _TIME.fullmatch(name) else None
    if prefix == "driver" and hmac.compare_digest(mac, _mac(key, f"driver/{name}")):
        node, _, driver = name.partition("/")
        return Owner(driver_identity(driver, node))
    return None


def _mac(key: bytes, name: str) -> str:
    return hmac.digest(key, name.encode(), hashlib.sha256).hex()
