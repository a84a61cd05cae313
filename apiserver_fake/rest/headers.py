"""What stands in the headers of HTTP requests, and what may: credentials, hosts, traces, warnings."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Iterable

from services.api.errors import (
    Unauthorized,
)


def bearer_of(authorization: str) -> str:
    """Return the token of an Authorization header; "" when there is none.

    Basic credentials carry the token as their password: kubectl sends no bearer token over plain HTTP, but it
    does send what stands before the `@` of its server URL. Raises: Unauthorized for anything else.
    """
    scheme, _, value = authorization.partition(" ")
    match scheme.lower():
        case "":
            return ""
        case "bearer":
            return value.strip()
        case "basic":
            try:
                return base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")[2]
            except (binascii.Error, UnicodeDecodeError) as error:
                raise Unauthorized("Unauthorized") from error
        case _:
            raise Unauthorized("Unauthorized")


def host_name(host: str) -> str:
    """Return the name in a Host header without its port; IPv6 without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower() if host.count(":") <= 1 else host.lower()


def is_allowed_host(host: str, allowed: Iterable[str], local_address: str) -> bool:
    """Whether the server may be addressed so: a listed name, or the very address the connection came in on.

    A page in a browser can make its own name resolve to a loopback address; it cannot make the Host header say
    another name than its own (X-WEB).
    """
    name = host_name(host)
    if name in allowed:
        return True
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(local_address)
    except ValueError:
        return False


def is_traceparent(text: str) -> bool:
    """Whether this is a W3C traceparent; others are ignored, never stored."""
    parts = text.split("-")
    return (
        len(text) == 55
        and [len(part) for part in parts] == [2, 32, 16, 2]
        and all(char in "0123456789abcdef-" for char in text)
    )


def warning_header(text: str) -> str:
    """Return the value of a `Warning` header; control characters cannot end it early."""
    printable = "".join(char if char.isprintable() and char.isascii() else " " for char in text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'
