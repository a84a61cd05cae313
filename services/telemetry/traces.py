"""Spans, made as values by keplab's own light tracer, and handed to sinks when they end.

The OpenTelemetry SDK is used only for export, and only when an OTLP endpoint is configured: making a span there
costs 13.6 µs, here about 4, and an unsampled one about 1. Ids come from the injected Random and times from the
Clock, so a simulated run traces itself identically every time. No sink ever blocks its caller: a file is
buffered, OTLP has a bounded queue that drops and counts (L-TR).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from services.api.errors import UNREADABLE
from services.api.seams import Clock, Random
from services.api.seams import Span as SpanProtocol
from services.telemetry.metrics import Metrics, Samples, counter
from services.telemetry.pieces import KEEP_ALL, Budget, Pieces
from services.telemetry.spans import (
    OWN_NAMES,
    SPAN_NAMES,
    Attribute,
    Context,
    FinishedSpan,
    Kind,
    SpanEvent,
    parse_traceparent,
)

QUEUE_MAX = 2048
BATCH_MAX = 512
EXPORT_DEADLINE_S = 5.0
FILE_BUFFER_BYTES_MAX = 8 << 20
OFFSET_TOLERANCE_US = 3.0

_UNSAMPLED = f"00-{'f' * 32}-{'f' * 16}-00"
"""Traceparent that an unsampled root passes on: it needs no ids, and its readers do not sample either."""


class SpanSink:
    """Sink of ended spans. No method waits for a network, except `close` for a moment; none raises."""

    def take(self, span: FinishedSpan) -> None:
        """Accept one span, or drop and count it."""
        raise NotImplementedError

    def flush(self) -> None:
        """Pass on the buffered spans."""

    def close(self) -> None:
        """Pass on the buffered spans, and accept no more."""

    @property
    def dropped_total(self) -> int:
        """Number of spans lost since the start."""
        return 0


@dataclass(frozen=True)
class Sampler:
    """Sampling decision at the root of a trace; with `is_parent_based`, spans below it keep the parent's decision."""

    ratio: float = 1.0
    is_parent_based: bool = True

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Sampler:
        """Read `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`. Raises: ValueError that names the variable."""
        name = environ.get("OTEL_TRACES_SAMPLER", "") or "parentbased_always_on"
        is_parent_based = name.startswith("parentbased_")
        kind = name.removeprefix("parentbased_")
        if kind in ("always_on", "always_off"):
            return cls(float(kind == "always_on"), is_parent_based)
        if kind != "traceidratio":
            raise ValueError(f"OTEL_TRACES_SAMPLER={name!r}: want [parentbased_](always_on|always_off|traceidratio)")
        text = environ.get("OTEL_TRACES_SAMPLER_ARG", "") or "1.0"
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0.0 <= ratio <= 1.0:
            raise ValueError(f"OTEL_TRACES_SAMPLER_ARG={text!r}: want a number from 0 to 1")
        return cls(ratio, is_parent_based)


class UnsampledSpan:
    """A span that is not recorded; it only passes the decision on."""

    __slots__ = ("traceparent",)
    trace_id = ""

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def set(self, **attributes: Attribute) -> None:
        """Do nothing."""

    def event(self, name: str, **attributes: Attribute) -> None:
        """Do nothing."""

    def mark_sent(self, at_s: float) -> None:
        """Do nothing."""

    def end(self, error: str = "") -> None:
        """Do nothing."""


_ROOT_UNSAMPLED = UnsampledSpan(_UNSAMPLED)


class RecordedSpan:
    """A span being recorded; `end` hands it to the sinks, once."""

    __slots__ = (
        *("_context", "_events", "_kind", "_links", "_name", "_offset_ns", "_parent", "_sent_ns", "_start_ns"),
        *("_tracer", "_values"),
    )

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        kind: Kind,
        context: Context,
        parent: str,
        links: Sequence[str],
        values: dict[str, Attribute],
    ) -> None:
        self._tracer: Tracer | None = tracer
        self._name, self._kind, self._context, self._parent = name, kind, context, parent
        self._links, self._values = links, values
        self._events: list[SpanEvent] = []
        self._sent_ns = 0
        now = tracer.clock.now()
        # The wall clock places a span among other processes'; its length is monotonic, so that a
        # clock that jumps cannot make it negative.
        self._offset_ns = tracer.offset_ns(now)
        self._start_ns = self._offset_ns + round(now * 1e9)

    @property
    def traceparent(self) -> str:
        """The traceparent of this span."""
        return self._context.traceparent

    @property
    def trace_id(self) -> str:
        """The trace id, 32 hex characters."""
        return self._context.trace_id

    def set(self, **attributes: Attribute) -> None:
        """Add attributes; a later value of the same name wins."""
        self._values.update(attributes)

    def event(self, name: str, **attributes: Attribute) -> None:
        """Record an event that happens now."""
        if self._tracer is not None:
            self._events.append(SpanEvent(name, self._now_ns(self._tracer), _rename_attributes(attributes)))

    def mark_sent(self, at_s: float) -> None:
        """Record the clock time when the change it wrote went to the watches."""
        self._sent_ns = self._offset_ns + round(at_s * 1e9)

    def end(self, error: str = "") -> None:
        """Finish; a second call does nothing."""
        tracer, self._tracer = self._tracer, None
        if tracer is None:
            return
        tracer.finish(
            FinishedSpan(
                service=tracer.service,
                instance=tracer.instance,
                name=self._name,
                trace_id=self._context.trace_id,
                span_id=self._context.span_id,
                parent=self._parent,
                start_ns=self._start_ns,
                end_ns=self._now_ns(tracer),
                attributes=_rename_attributes(self._values),
                links=[link for link in self._links if link],
                events=self._events,
                error=error,
                kind=self._kind,
                sent_ns=self._sent_ns,
                resource=tracer.resource,
            )
        )

    def _now_ns(self, tracer: Tracer) -> int:
        return self._offset_ns + round(tracer.clock.now() * 1e9)


_NAMES: Final = SPAN_NAMES | OWN_NAMES


def _rename_attributes(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    return {_NAMES.get(name, name): value for name, value in attributes.items()}


class Tracer:
    """Starts spans of one process; implements `services.api.seams.Tracer`."""

    def __init__(
        self,
        service: str,
        *,
        clock: Clock,
        random: Random,
        instance: str = "",
        sampler: Sampler | None = None,
        sinks: Sequence[SpanSink] = (),
        call_random: Random | None = None,
        resource: Mapping[str, Attribute] | None = None,
    ) -> None:
        """`call_random`: source of the ids of requests made (kind client), if these must not affect the other ids.
        `resource`: the origin in each span.
        """
        self.service, self.instance, self.clock = service, instance or service, clock
        self.resource = dict(resource or {})
        self._random, self._call_random = random, call_random or random
        sampler = sampler or Sampler()
        # There is no sink: then nothing needs recording, but sampled parents are still handed on.
        self._bound = int((sampler.ratio if sinks else 0.0) * (1 << 64))
        self._is_parent_based = sampler.is_parent_based
        self.records = bool(sinks)
        self._sinks = tuple(sinks)
        self._offset_ns = 0
        self.recorded = 0

    def start(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        parent: str = "",
        links: Sequence[str] = (),
        **attributes: Attribute,
    ) -> SpanProtocol:
        """Return a running span; end it once."""
        if not self.records:
            return UnsampledSpan(parent) if parent else _ROOT_UNSAMPLED
        if self._is_parent_based and len(parent) == 55 and parent.endswith("-00"):
            return UnsampledSpan(parent)
        random = self._call_random if kind == "client" else self._random
        above = parse_traceparent(parent) if parent else None
        if above is None:
            if self._bound == 0:
                return _ROOT_UNSAMPLED
            trace = random.getrandbits(128) or 1
            if (trace & 0xFFFFFFFFFFFFFFFF) >= self._bound:
                return _ROOT_UNSAMPLED
            trace_id = f"{trace:032x}"
        elif self._is_parent_based:
            if not above.is_sampled:
                return UnsampledSpan(parent)
            trace_id = above.trace_id
        else:
            trace_id = above.trace_id
            if int(trace_id[16:], 16) >= self._bound:
                return UnsampledSpan(f"{parent[:53]}00")
        context = Context(trace_id, f"{random.getrandbits(64) or 1:016x}", True)
        return RecordedSpan(self, name, kind, context, above.span_id if above else "", links, attributes)

    def call_id(self) -> str:
        """Return a span id for a request that this process makes to another."""
        return f"{self._call_random.getrandbits(64) or 1:016x}"

    def offset_ns(self, now: float) -> int:
        """Return the offset from the monotonic clock to nanoseconds since the epoch.

        It stays the same until the wall clock is set: a float of seconds since the epoch is only precise to a quarter
        of a microsecond, and consecutive spans should meet.
        """
        difference_us = (self.clock.wall() - now) * 1e6
        if abs(difference_us - self._offset_ns / 1000) > OFFSET_TOLERANCE_US:
            self._offset_ns = round(difference_us) * 1000
        return self._offset_ns

    def finish(self, span: FinishedSpan) -> None:
        """Hand an ended span to every sink."""
        self.recorded += 1
        for sink in self._sinks:
            sink.take(span)

    def flush(self) -> None:
        """Ask every sink to pass on its buffered spans; never waits for a network."""
        for sink in self._sinks:
            sink.flush()

    def close(self) -> None:
        """Flush and close every sink; may wait a moment for OTLP, so call it last."""
        for sink in self._sinks:
            sink.close()

    def metrics(self) -> Samples:
        """Return the numbers of recorded spans, and of spans lost on export."""
        return METRICS.of(self)


METRICS: Final[Metrics[Tracer]] = Metrics(
    counter("keplab_spans_recorded_total", "Spans that were sampled.", lambda tracer: tracer.recorded),
    counter(
        "keplab_spans_dropped_total",
        "Spans lost on the way out, since their collector is slow or away.",
        lambda tracer: sum(sink.dropped_total for sink in tracer._sinks),
    ),
)


class MemorySpans(SpanSink):
    """Sink that keeps every span in a list, for simulation and tests."""

    def __init__(self) -> None:
        self.spans: list[FinishedSpan] = []

    def take(self, span: FinishedSpan) -> None:
        """Keep the span."""
        self.spans.append(span)


class FileSpans(SpanSink):
    """Sink that appends spans as JSON lines to one file of this process, in pieces; the shell calls `flush` every
    0.5 s.

    Spans are for inspection, not for checks: buffered ones may be lost by SIGKILL, and a disk that refuses costs
    spans, counted, not the process.
    """

    def __init__(self, path: Path, budget: Budget = KEEP_ALL) -> None:
        self.path = path
        self._dropped = 0
        self._pieces = Pieces(path, budget)
        self._buffer = bytearray()
        self._buffered = 0
        self._encode = msgspec.json.Encoder(enc_hook=str).encode

    @property
    def dropped_total(self) -> int:
        """Number of spans that the disk refused."""
        return self._dropped

    def take(self, span: FinishedSpan) -> None:
        """Buffer the span."""
        if len(self._buffer) > FILE_BUFFER_BYTES_MAX:
            self.flush()
        self._buffer += self._encode(span)
        self._buffer += b"\n"
        self._buffered += 1

    def flush(self) -> None:
        """Write the buffer to the file."""
        if not self._buffer:
            return
        data, self._buffer = bytes(self._buffer), bytearray()
        count, self._buffered = self._buffered, 0
        if not self._pieces.append(data):
            self._dropped += count

    def close(self) -> None:
        """Write the buffer and close the file."""
        self.flush()
        self._pieces.close()


class OtlpSpans(SpanSink):
    """Sink that sends spans to an OTLP collector through the SDK's batch processor, in its own thread.

    At most 2,048 spans wait; more are dropped and counted. Conversion to the SDK's objects happens in the exporting
    thread. A collector that is gone, slow or refusing costs nothing but spans (FM-X6).
    """

    def __init__(self, service: str, instance: str, server: str = "") -> None:
        """Read the endpoint from the standard `OTEL_EXPORTER_OTLP_*` variables."""
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from services.telemetry.otlp import ConvertingExporter, Deferred

        self._deferred = Deferred
        self._taken = 0
        self._exporter = ConvertingExporter(
            # The library's own back-off grows to two minutes; a collector that returns should be found at once.
            OTLPSpanExporter(
                timeout=EXPORT_DEADLINE_S,
                channel_options=(  # type: ignore[arg-type]
                    ("grpc.initial_reconnect_backoff_ms", 200),
                    ("grpc.min_reconnect_backoff_ms", 200),
                    ("grpc.max_reconnect_backoff_ms", 5000),
                ),
            ),
            service,
            instance,
            server,
        )
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=QUEUE_MAX,
            max_export_batch_size=BATCH_MAX,
            schedule_delay_millis=500,
            export_timeout_millis=EXPORT_DEADLINE_S * 1000,
        )
        self._overflowed = 0

    @property
    def dropped_total(self) -> int:
        """Number of spans that found the queue full, or that the collector did not accept."""
        return self._overflowed + int(self._exporter.failed)

    def take(self, span: FinishedSpan) -> None:
        """Queue the span, or drop and count it."""
        if self._taken - self._exporter.handed >= QUEUE_MAX:
            self._overflowed += 1
            return
        self._taken += 1
        self._processor.on_end(self._deferred(span))

    def close(self) -> None:
        """Wait up to two seconds for the collector to take the remaining spans."""
        self._processor._batch_processor.shutdown(timeout_millis=2000)


def sinks_from_environment(
    environ: Mapping[str, str],
    *,
    service: str,
    instance: str,
    spans_dir: str,
    incarnation: str,
    budget: Budget = KEEP_ALL,
    server: str = "",
) -> list[SpanSink]:
    """Return the configured sinks of a process: a file if there is a directory, OTLP if there is an endpoint, both
    or none. `server`: the target of the process's requests.
    """
    sinks: list[SpanSink] = []
    if spans_dir:
        sinks.append(FileSpans(Path(spans_dir) / f"{instance.replace('/', '_')}-{incarnation}.jsonl", budget))
    wants_otlp = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    if wants_otlp and not is_off:
        sinks.append(OtlpSpans(service, instance, server))
    return sinks


def read_spans(path: Path) -> list[FinishedSpan]:
    """Return the spans of one file; a torn last line is left out. A file that was removed meanwhile has none."""
    spans: list[FinishedSpan] = []
    with suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines():
            with suppress(*UNREADABLE):
                spans.append(msgspec.json.decode(line, type=FinishedSpan))
    return spans
