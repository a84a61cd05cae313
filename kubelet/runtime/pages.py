"""The HTTP page that an emulated container serves on its declared ports. Pure.

The annotation `keplab.dev/http`, or `keplab.dev/http.<container>` for one container, sets another answer: a
status, and after it the body: `503 not yet`.
"""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from services.api.meta import Document

ANNOTATION: Final = "keplab.dev/http"
_PHRASES: Final = {
    200: "OK", 201: "Created", 204: "No Content", 301: "Moved Permanently", 302: "Found", 400: "Bad Request",
    401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 418: "I'm a teapot", 429: "Too Many Requests",
    500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip


class PageRequest(NamedTuple):
    """A complete HTTP request: its method and target, its length, and whether the connection stays open."""

    method: str
    target: str
    length: int
    keeps_open: bool


def read_head(head: bytes) -> PageRequest | None:
    """Return the request in a head of HTTP; None if it is not an HTTP/1 request."""
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in rest if line)}
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or len(length) > 9 or "transfer-encoding" in headers:
        return None
    connection = headers.get("connection", "").lower()
    keeps_open = "close" not in connection and (words[2] != "HTTP/1.0" or "keep-alive" in connection)
    return PageRequest(words[0], words[1], int(length), keeps_open)


def _phrase(status: int) -> str:
    try:
        return _PHRASES.get(status) or HTTPStatus(status).phrase
    except ValueError:
        return "Status"


BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def container_on(pod: Document, port: int) -> str | None:
    """Return the container that declares the TCP port; None when no container does."""
    spec: dict[str, Any] = pod.get("spec") or {}
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in (*(spec.get("containers") or ()), *sidecars):
        for container_port in container.get("ports") or ():
            if container_port.get("containerPort") == port and container_port.get("protocol", "TCP") == "TCP":
                return str(container.get("name"))
    return None


def page(pod: Document, container: str, port: int, asked: PageRequest) -> bytes:
    """Return the whole answer of that container."""
    meta = pod.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    annotation = annotations.get(f"{ANNOTATION}.{container}", annotations.get(ANNOTATION, ""))
    code, _, text = annotation.strip().partition(" ")
    status = int(code) if code.isascii() and code.isdigit() and len(code) == 3 and int(code) >= 200 else 200
    if not code:
        text = f"pod {meta.get('namespace')}/{meta.get('name')}, container {container}, port {port}: "
        text += f"{asked.method} {asked.target}"
    return answer(asked, status, f"{text}\n".encode() if text else b"")


def answer(asked: PageRequest, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """Return a whole answer; `headers` win over those that every answer has."""
    given = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(body)),
        "Server": "keplab",
        "Connection": "keep-alive" if asked.keeps_open else "close",
    }
    for name, value in headers:
        canonical = "-".join(part.capitalize() for part in name.split("-"))
        if canonical not in ("Content-Length", "Connection", "Transfer-Encoding"):
            given[canonical] = value
    lines = [f"HTTP/1.1 {status} {_phrase(status)}", *(f"{k}: {v}" for k, v in given.items()), "", ""]
    return "\r\n".join(lines).encode() + (b"" if asked.method == "HEAD" or status in (204, 304) else body)
