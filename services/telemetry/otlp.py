"""Our spans as the OpenTelemetry SDK's objects; imported only when an OTLP endpoint is configured.

Nothing else in the mesh sees the SDK.
"""

from collections.abc import Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from services.telemetry.spans import FinishedSpan, parse_traceparent

RPC_METHOD, SERVICE_NAME, SERVICE_INSTANCE = "rpc.method", "service.name", "service.instance.id"
"""OpenTelemetry's names; the conventions for RPC are still moving, so they are spelled here alone."""
_SCOPE = InstrumentationScope("keplab")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_ANY = SpanContext(1, 1, False, _SAMPLED)


class Deferred(ReadableSpan):
    """Carries our value through the batch processor's queue, to be converted by the exporting thread."""

    def __init__(self, value: FinishedSpan) -> None:
        self.value = value
        self._context = _ANY


class ConvertingExporter(SpanExporter):
    """An exporter that converts what comes and counts what went: `handed` over, of these `failed`."""

    def __init__(self, inner: SpanExporter, service: str, instance: str) -> None:
        self._inner = inner
        self._resource = Resource.create({SERVICE_NAME: service, SERVICE_INSTANCE: instance})
        self.handed = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send one batch; a failure is counted and the batch given up."""
        self.handed += len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._inner.export([self._convert(s.value) for s in spans if isinstance(s, Deferred)])
        finally:
            if result is not SpanExportResult.SUCCESS:
                self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        """Close the inner exporter."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Say yes: this exporter holds nothing back."""
        return True

    def _convert(self, span: FinishedSpan) -> ReadableSpan:
        trace_id = int(span.trace_id, 16)
        is_server = RPC_METHOD in span.attributes
        return ReadableSpan(
            name=span.name,
            context=SpanContext(trace_id, int(span.span_id, 16), False, _SAMPLED),
            parent=SpanContext(trace_id, int(span.parent, 16), True, _SAMPLED) if span.parent else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(e.name, e.attributes, e.at_ns) for e in span.events],
            links=[Link(context) for text in span.links if (context := _context(text)) is not None],
            kind=SpanKind.SERVER if is_server else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=_SCOPE,
        )


def _context(traceparent: str) -> SpanContext | None:
    context = parse_traceparent(traceparent)
    if context is None:
        return None
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), True, TraceFlags(int(context.is_sampled)))
