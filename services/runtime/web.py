"""Which names an HTTP server may be addressed by (X-WEB). Pure.

A page in a browser can make its own name resolve to a loopback address; it cannot make the Host header say another name
than its own.
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
    """Whether the server may be addressed so: a listed name, or the very address the connection came in on."""
    name = host_name(host)
    if name in allowed:
        return True
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(local_address)
    except ValueError:
        return False
