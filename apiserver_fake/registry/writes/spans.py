"""Spans of sampled writes, from the call until the commit."""

from collections.abc import Sequence

from apiserver_fake.storage.records import Change
from services.api.seams import Span

PODS = "pods"


class WriteSpans:
    """The spans of sampled writes that are not answered yet. Pure."""

    def __init__(self) -> None:
        self.sampled: dict[str, Span] = {}
        """The spans by traceparent, which the changes of their writes carry."""

    def begin(self, span: Span) -> None:
        """Add the span of a sampled write."""
        self.sampled[span.traceparent] = span

    def end(self, span: Span) -> None:
        """Forget the span of a write that is answered."""
        self.sampled.pop(span.traceparent, None)

    def note(self, changes: Sequence[Change], now_s: float) -> None:
        """Mark the spans of committed writes as sent, and add the pod that each changed."""
        for change in changes:
            if (span := self.sampled.get(change.traceparent)) is not None:
                span.mark_sent(now_s)
                if change.record.resource == PODS:
                    _name_pod(span, change)


def _name_pod(span: Span, change: Change) -> None:
    """Add the changed pod to the span of a sampled write, and the pod's phase if it is new.

    This happens at the commit, so that the phase Running is on the span of the write that committed it.
    """
    record, previous = change.record, change.previous
    span.set(pod=record.name, namespace=record.namespace, uid=record.uid)
    phase = record.fields.get("status.phase", "")
    if phase and (previous is None or phase != previous.fields.get("status.phase")):
        span.set(phase=phase)
