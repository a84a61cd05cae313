"""Spans of requests to servers other than the mesh's API server: DRA drivers, extenders, webhooks.

Each is a CLIENT span below the decision that makes it, named and attributed by OpenTelemetry's conventions for
RPC and HTTP. The callee's span is a child of the passed `traceparent`. A request outside any trace makes no
span and passes no traceparent.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal
from urllib.parse import urlsplit

from services.api.local_rpc import TRACEPARENT, RpcError
from services.api.seams import Span, Tracer
from services.telemetry.spans import Attribute

serving: Final[ContextVar[str]] = ContextVar("serving", default="")
"""Traceparent of the REST request being answered, for calls that do not get it in another way."""
_PORTS: Final = {"http": 80, "https": 443}


class Call:
    """One request being made or answered. `traceparent`: the value passed on, empty for none."""

    __slots__ = ("_span", "status", "traceparent")

    def __init__(self, span: Span | None) -> None:
        self._span = span
        self.status = 0
        self.traceparent = span.traceparent if span is not None else ""

    @property
    def headers(self) -> dict[str, str]:
        """Return the tracing headers of an HTTP request."""
        return {TRACEPARENT: self.traceparent} if self.traceparent else {}

    def on_answered(self, status: int) -> None:
        """Note the status of an HTTP answer."""
        self.status = status


@contextmanager
def http_call(tracer: Tracer, method: str, url: str, parent: str) -> Iterator[Call]:
    """Trace an HTTP request while the block runs; an exception of the block is the span's error.

    `url`: the URL with the host name, without parameters. Named as OpenTelemetry names HTTP client spans.
    """
    if not parent:
        yield Call(None)
        return
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path or "/"
    port = parts.port or _PORTS.get(parts.scheme, 0)
    # What is left out between scheme and host are a user's name and password.
    full = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"
    span = tracer.start(f"{method} {path}", kind="client", parent=parent)
    address: dict[str, Attribute] = {"server.address": host, "server.port": port, "url.full": full}
    span.set(**{"http.request.method": method, "url.template": path}, **address)
    call, error, kind = Call(span), "", ""
    try:
        yield call
    except BaseException as raised:
        error, kind = str(raised) or type(raised).__name__, type(raised).__name__
        raise
    finally:
        if call.status:
            span.set(**{"http.response.status_code": call.status})
        if call.status >= 400:
            error, kind = error or str(call.status), str(call.status)
        if kind:
            span.set(**{"error.type": kind})
        span.end(error)


@contextmanager
def rpc_call(
    tracer: Tracer, method: str, path: str, parent: str, kind: Literal["client", "server"] = "client"
) -> Iterator[Call]:
    """Trace a gRPC request over the Unix socket `path` while the block runs. `method`: `/package.Service/Method`.

    `kind`: `server` on the answering side. Named as OpenTelemetry names gRPC spans.
    """
    if not parent:
        yield Call(None)
        return
    name = method.removeprefix("/")
    span = tracer.start(name, kind=kind, parent=parent)
    span.set(**{"rpc.system.name": "grpc", "rpc.method": name, "server.address": path, "network.transport": "unix"})
    status, error = "OK", ""
    try:
        yield Call(span)
    except RpcError as raised:
        status, error = _upper(raised.code), raised.message
        raise
    except BaseException as raised:
        status, error = "CANCELLED", type(raised).__name__
        raise
    finally:
        span.set(**{"rpc.response.status_code": status})
        if error:
            span.set(**{"error.type": status})
        span.end(error)


def _upper(code: str) -> str:
    """Return a gRPC status code as its specification writes it; `code`: as Go does (`DeadlineExceeded`)."""
    if code == "Canceled":
        return "CANCELLED"
    return "".join(f"_{each}" if place and each.isupper() else each for place, each in enumerate(code)).upper()
