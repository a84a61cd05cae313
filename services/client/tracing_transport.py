"""Spans of requests: each API request of a traced decision is a CLIENT span, below the decision's span.

The server's span is a child of it, so that a service graph drawn from traces shows caller and callee. A request
outside any sampled trace (a renewal of a Lease, a list) makes no span. The span is made when its request ends,
with one call of the tracer; its id comes from a random stream of its own.
"""

from collections.abc import AsyncIterator

import msgspec

from services.api.seams import Transport
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest, rpc_method
from services.telemetry.spans import FinishedSpan
from services.telemetry.traces import Tracer

SAMPLED = "-01"


class TracedTransport:
    """A transport whose requests are traced; implements `Transport`."""

    def __init__(self, inner: Transport, tracer: Tracer) -> None:
        self._inner, self._tracer = inner, tracer

    def api(self, identity: str = "") -> Api:
        """Return the API for one of this process's identities. Raises: KeyError without its token."""
        return _TracedApi(self._inner.api(identity), self._tracer)

    async def node_api(self, node: str) -> Api:
        """Return the API for `system:node:<node>`. Raises: Forbidden, UnknownOutcome."""
        return _TracedApi(await self._inner.node_api(node), self._tracer)


class _TracedApi:
    __slots__ = ("_api", "_tracer")

    def __init__(self, api: Api, tracer: Tracer) -> None:
        self._api, self._tracer = api, tracer

    async def call(self, request: Request) -> Response:
        """Return the definite answer. Raises: UnknownOutcome."""
        parent, tracer = request.traceparent, self._tracer
        if not parent.endswith(SAMPLED):
            return await self._api.call(request)
        span_id, began = tracer.call_id(), tracer.clock.now()
        offset_ns, code, error = tracer.offset_ns(began), 0, ""
        try:
            own = msgspec.structs.replace(request, traceparent=f"{parent[:36]}{span_id}{SAMPLED}")
            response = await self._api.call(own)
            code = response.code
            if code >= 400:
                error = str(code)
            return response
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            attributes: dict[str, str | int | float | bool] = {"keplab.resource": request.resource}
            if code:
                attributes["keplab.code"] = code
            tracer.finish(
                FinishedSpan(
                    service=tracer.service,
                    instance=tracer.instance,
                    name=rpc_method(request),
                    trace_id=parent[3:35],
                    span_id=span_id,
                    parent=parent[36:52],
                    start_ns=offset_ns + round(began * 1e9),
                    end_ns=offset_ns + round(tracer.clock.now() * 1e9),
                    attributes=attributes,
                    links=[],
                    events=[],
                    error=error,
                    kind="client",
                    resource=tracer.resource,
                )
            )

    def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches. Raises: ApiError when refused, UnknownOutcome when the connection is lost."""
        return self._api.watch(request)
