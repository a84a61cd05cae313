"""Conversion of spans to the OpenTelemetry SDK's objects and conventions; imported only with an OTLP endpoint
configured.

No other module of the mesh uses the SDK. Attributes that follow from the span's kind and name (`rpc.*`,
`messaging.*`) are added here, in the exporting thread, so that they cost no component anything. A write that
was published is exported as two spans: the server's, and below it a producer's, under the id that the change
carries to its readers. Spans of readers are consumers, and children of the producer's span or linked to it.
A service graph draws its edges from client to server and from producer to consumer, by the parent's id. Names
are those of OpenTelemetry's semantic conventions 1.45: RPC and HTTP, which are stable, messaging and
Kubernetes.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from services.telemetry.spans import RPC_PREFIX, Attribute, FinishedSpan, parse_traceparent, service_attributes

WATCH: Final = "kubernetes.watch"
"""Value of `messaging.system` for changes that watches bring."""
SCHEMA: Final = "https://opentelemetry.io/schemas/1.45.0"
KINDS: Final = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "consumer": SpanKind.CONSUMER,
}
STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    410: "OUT_OF_RANGE",
    413: "RESOURCE_EXHAUSTED",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""gRPC status codes by HTTP code; other codes below 400 are OK."""
_SERVER_ID: Final = 0x9E3779B97F4A7C15
_SCOPE = InstrumentationScope("keplab", schema_url=SCHEMA)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_ANY = SpanContext(1, 1, False, _SAMPLED)


class Deferred(ReadableSpan):
    """Carrier of a keplab span through the batch processor's queue; the exporting thread converts it."""

    def __init__(self, value: FinishedSpan) -> None:
        self.value = value
        self._context = _ANY


def resource_of(service: str, instance: str) -> Resource:
    """Return the origin of spans. `OTEL_RESOURCE_ATTRIBUTES` adds to it, and takes precedence except for the
    service's own name and instance, which distinguish the mesh's processes.
    """
    given = OTELResourceDetector().detect().attributes
    return Resource.create(
        {**service_attributes(), **given, "service.name": service, "service.instance.id": instance}, schema_url=SCHEMA
    )


class ConvertingExporter(SpanExporter):
    """Exporter that converts spans and counts them: `handed` over, and `failed` among these."""

    def __init__(self, inner: SpanExporter, service: str, instance: str, server: str = "") -> None:
        """`server`: the target of this process's requests, HOST:PORT or a comma-separated list of them."""
        self._inner = inner
        self._resource = resource_of(service, instance)
        self._server = _address_of(server)
        self.handed = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send one batch; a failure is counted and the batch dropped."""
        self.handed += len(spans)
        result = SpanExportResult.FAILURE
        try:
            values = [span.value for span in spans if isinstance(span, Deferred)]
            result = self._inner.export([made for value in values for made in self._convert(value)])
        finally:
            if result is not SpanExportResult.SUCCESS:
                self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        """Close the inner exporter."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return True: this exporter buffers nothing."""
        return True

    def _convert(self, span: FinishedSpan) -> list[ReadableSpan]:
        attributes = {**span.attributes, **self._conventional(span)}
        if not span.sent_ns:
            return [
                self._readable_span(
                    span, span.name, KINDS[span.kind], span.span_id, span.parent, attributes, span.start_ns
                )
            ]
        server_id = f"{int(span.span_id, 16) ^ _SERVER_ID or 1:016x}"
        destination = str(span.attributes.get("keplab.resource", "objects"))
        sending = {**_messaging("publish", "send"), "messaging.destination.name": destination}
        named = {key: value for key, value in span.attributes.items() if key.startswith("k8s.")}
        return [
            self._readable_span(span, span.name, KINDS[span.kind], server_id, span.parent, attributes, span.start_ns),
            self._readable_span(
                span,
                f"publish {destination}",
                SpanKind.PRODUCER,
                span.span_id,
                server_id,
                {**named, **sending},
                max(span.start_ns, span.sent_ns),
                is_sent=True,
            ),
        ]

    def _conventional(self, span: FinishedSpan) -> Mapping[str, Attribute]:
        """Return the attributes that follow from a span's kind and name."""
        attributes: dict[str, Attribute] = {}
        if span.name.startswith(RPC_PREFIX):
            code = int(span.attributes.get("keplab.code", 0))
            status = STATUSES.get(code, "UNKNOWN" if code >= 400 or not code else "OK")
            attributes |= {"rpc.system.name": "grpc", "rpc.method": span.name, "rpc.response.status_code": status}
            if span.error:
                attributes["error.type"] = status if code else span.error
        if span.kind == "client" and "server.address" not in span.attributes:
            attributes |= self._server
        elif span.kind == "consumer":
            attributes |= _messaging(span.name.partition(" ")[0], "process")
        return attributes

    def _readable_span(
        self,
        span: FinishedSpan,
        name: str,
        kind: SpanKind,
        span_id: str,
        parent: str,
        attributes: Mapping[str, Attribute],
        start_ns: int,
        *,
        is_sent: bool = False,
    ) -> ReadableSpan:
        """Return one span for the SDK. `is_sent`: the producer's, which has no links, events or errors."""
        trace_id = int(span.trace_id, 16)
        is_local = is_sent or span.kind == "client"
        return ReadableSpan(
            name=name,
            context=SpanContext(trace_id, int(span_id, 16), False, _SAMPLED),
            parent=SpanContext(trace_id, int(parent, 16), not is_local, _SAMPLED) if parent else None,
            resource=Resource(span.resource).merge(self._resource) if span.resource else self._resource,
            attributes=attributes,
            events=[] if is_sent else [Event(e.name, e.attributes, e.at_ns) for e in span.events],
            links=[]
            if is_sent
            else [Link(link_context) for text in span.links if (link_context := _context(text)) is not None],
            kind=kind,
            status=Status(StatusCode.ERROR, span.error) if span.error and not is_sent else Status(StatusCode.UNSET),
            start_time=start_ns,
            end_time=max(start_ns, span.end_ns),
            instrumentation_scope=_SCOPE,
        )


def _messaging(name: str, kind: str) -> dict[str, Attribute]:
    return {"messaging.system": WATCH, "messaging.operation.name": name, "messaging.operation.type": kind}


def _address_of(server: str) -> dict[str, Attribute]:
    """Return where requests go as attributes; several servers are one name of the group."""
    host, _, port = server.rpartition(":")
    if "," in server or not port.isdecimal():
        return {"server.address": server} if server else {}
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def _context(traceparent: str) -> SpanContext | None:
    context = parse_traceparent(traceparent)
    if context is None:
        return None
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), True, TraceFlags(int(context.is_sampled)))
