"""What an ended span is, as a value; sinks, exporters and pictures are made of these."""

from __future__ import annotations

import msgspec

Attribute = str | int | float | bool


class SpanEvent(msgspec.Struct, frozen=True):
    """Something that happened at one moment of a span."""

    name: str
    at_ns: int
    attributes: dict[str, Attribute] = {}


class FinishedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One ended span. Times are nanoseconds since the epoch; `parent` is a span id or empty; `links` are
    traceparents; `error` is empty when all went well.
    """

    service: str
    instance: str
    name: str
    trace_id: str
    span_id: str
    parent: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Attribute]
    links: list[str]
    events: list[SpanEvent]
    error: str
