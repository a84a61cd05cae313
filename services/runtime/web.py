"""Names by which an HTTP server may be addressed (X-WEB). Pure.

A web page can make its own name resolve to a loopback address, but it cannot put another name into the Host
header.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


def host_name(host: str) -> str:
    """Return the name in a Host header without its port; IPv6 without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower() if host.count(":") <= 1 else host.lower()


def is_allowed_host(host: str, allowed: Iterable[str], local_address: str) -> bool:
    """Whether the server may be addressed by this name: a listed name, or the connection's local address."""
    name = host_name(host)
    if name in allowed:
        return True
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(local_address)
    except ValueError:
        return False
