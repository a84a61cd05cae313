"""Ended spans as values, and the exported names of spans and their attributes. Pure.

A trace crosses process borders in one form, W3C's `traceparent` (`00-<trace>-<span>-<flags>`): in the request
and in the watch event's envelope, so nothing else is needed on either.
"""

from typing import Final, Literal, NamedTuple

import msgspec

Attribute = str | int | float | bool
Kind = Literal["internal", "server", "client", "consumer"]
"""Kind of a span, in OpenTelemetry's terms: a request answered, a request made, a change taken from a watch.
There is no producer among them: a span whose write was published is exported as two (`FinishedSpan.sent_ns`).
"""

RPC_PREFIX: Final = "mesh.v1.ApiServer/"
"""Name prefix of spans of calls between components, before the method."""
SPAN_NAMES: Final = {
    "pod": "k8s.pod.name",
    "node": "k8s.node.name",
    "namespace": "k8s.namespace.name",
    "uid": "k8s.pod.uid",
    "phase": "k8s.pod.status.phase",
    "controller": "keplab.controller",
    "key": "keplab.key",
    "claim": "keplab.claim",
    "resource_version": "keplab.resource_version",
    "reason": "keplab.reason",
    "attempt": "keplab.attempt",
}
"""Exported attribute names: keyword argument of `Tracer.start` and key of a log line → attribute. Other names
stay the same.
"""
OWN_NAMES: Final = {name: f"keplab.{name}" for name in ("code", "group", "name", "resource")}
"""Further exported names for spans only: keplab's own attributes have its prefix."""
_HEX = frozenset("0123456789abcdef")


def service_attributes() -> dict[str, Attribute]:
    """Return the resource attributes that all of keplab's processes have."""
    # Only here: few processes export spans to others, and what reads the packages takes each 10 ms to import.
    from importlib.metadata import PackageNotFoundError, version

    try:
        release = {"service.version": version("keplab")}
    except PackageNotFoundError:
        release = {}
    return {"service.namespace": "keplab", "k8s.cluster.name": "keplab", **release}


class SpanEvent(msgspec.Struct, frozen=True):
    """An event at one moment of a span."""

    name: str
    at_ns: int
    attributes: dict[str, Attribute] = {}


class FinishedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One ended span. Times are nanoseconds since the epoch; `parent` is a span id or empty; `links` are
    traceparents; `error` is empty after success.

    `sent_ns`: when the change that the span wrote was handed to the watches, 0 if it wrote none. `resource`: the
    origin besides service and instance, if that differs between the spans of this process.
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
    kind: Kind = "internal"
    sent_ns: int = 0
    resource: dict[str, Attribute] = {}

    @property
    def origin(self) -> dict[str, Attribute]:
        """Return its origin as OpenTelemetry's resource attributes."""
        return {"service.name": self.service, "service.instance.id": self.instance, **self.resource}


class Context(NamedTuple):
    """Reference to a span: its ids, 32 and 16 hex characters, and whether it is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool

    @property
    def traceparent(self) -> str:
        """The traceparent of this span."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


def parse_traceparent(traceparent: str) -> Context | None:
    """Parse `traceparent` into the span it names; None when it is absent or malformed.

    Later versions are read by their first four fields, as the recommendation asks.
    """
    if len(traceparent) < 55 or traceparent[2] != "-" or traceparent[35] != "-" or traceparent[52] != "-":
        return None
    version, trace_id, span_id, flags = traceparent[:2], traceparent[3:35], traceparent[36:52], traceparent[53:55]
    if not _HEX.issuperset(version + trace_id + span_id + flags) or version == "ff":
        return None
    if len(traceparent) > 55 and (version == "00" or traceparent[55] != "-"):
        return None
    if trace_id == "0" * 32 or span_id == "0" * 16:
        return None
    return Context(trace_id, span_id, bool(int(flags, 16) & 1))
