"""W3C `traceparent` (`00-<trace>-<span>-<flags>`), the one form in which a trace crosses a wire.

It travels in the request and in the watch event's envelope, so nothing else is needed on either.
"""

from __future__ import annotations

from typing import NamedTuple

_HEX = frozenset("0123456789abcdef")


class Context(NamedTuple):
    """One span as others refer to it: 32 and 16 hex characters, and whether it is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool


def parse(traceparent: str) -> Context | None:
    """Return the span that `traceparent` names; None when it is absent or malformed.

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


def render(context: Context) -> str:
    """Return the `traceparent` that names this span."""
    return f"00-{context.trace_id}-{context.span_id}-{'01' if context.is_sampled else '00'}"
