"""Spans of sampled writes, from their call until their commit has been seen."""

from collections.abc import Sequence

from apiserver_fake.storage.records import Change
from services.api.seams import Span

PODS = "pods"


class WriteSpans:
    """The spans of the writes under way, by what their changes will be known as; pure."""

    def __init__(self) -> None:
        self.sampled: dict[str, Span] = {}
        """The spans by their traceparent."""

    def begin(self, span: Span) -> None:
        """Keep the span of a sampled write."""
        self.sampled[span.traceparent] = span

    def end(self, span: Span) -> None:
        """Forget the span of a write that is answered."""
        self.sampled.pop(span.traceparent, None)

    def note(self, changes: Sequence[Change], now_s: float) -> None:
        """Write into the spans of committed writes that they are, and which pod they changed."""
        for change in changes:
            if (span := self.sampled.get(change.traceparent)) is not None:
                span.mark_sent(now_s)
                if change.record.resource == PODS:
                    _name_pod(span, change)


def _name_pod(span: Span, change: Change) -> None:
    """Write into the span of a sampled write which pod it changed, and the phase when that is new.

    When it is committed and not earlier: the span whose write made a pod Running is the one that committed it.
    """
    record, previous = change.record, change.previous
    span.set(pod=record.name, namespace=record.namespace, uid=record.uid)
    phase = record.fields.get("status.phase", "")
    if phase and (previous is None or phase != previous.fields.get("status.phase")):
        span.set(phase=phase)
