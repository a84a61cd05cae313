"""Bearer tokens that are computed from the mesh's key: of nodes, and of DRA drivers' service accounts on nodes. Pure.

Source: guarantees 8.1 (X-ID5); KEP-4193 (tokens that are bound to a node).
"""

import hashlib
import hmac

from services.api.identity import Identity, driver_identity, node_identity


def node_token(key: bytes, node: str, host: str = "") -> str:
    """Return the token of a node; with `host` it is good only over connections with a certificate of that user."""
    return f"node.{node}.{_mac(key, _bound(node, host))}"


def _bound(node: str, host: str) -> str:
    # No node's name has an "@".
    return f"{node}@{host}" if host else node


def driver_token(key: bytes, driver: str, node: str) -> str:
    """Return the token of a driver's service account that is bound to a node."""
    name = f"{node}/{driver}"
    return f"driver.{name}.{_mac(key, f'driver/{name}')}"


def identity_of(key: bytes, token: str, host: str = "") -> Identity | None:
    """Return whose computed token this is; None when it is none. Takes as long for a wrong token as for a right one.

    `host`: whose certificate the connection has, where tokens of nodes are bound to their hosts'.
    """
    prefix, _, rest = token.partition(".")
    name, _, mac = rest.rpartition(".")
    if not name:
        return None
    if prefix == "node" and hmac.compare_digest(mac, _mac(key, _bound(name, host))):
        return node_identity(name)
    if prefix == "driver" and hmac.compare_digest(mac, _mac(key, f"driver/{name}")):
        node, _, driver = name.partition("/")
        return driver_identity(driver, node)
    return None


def _mac(key: bytes, name: str) -> str:
    return hmac.digest(key, name.encode(), hashlib.sha256).hex()
