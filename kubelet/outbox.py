"""What a node's machine has said and not yet been heard: effects in order, counters, and syncs going on. Pure."""

from __future__ import annotations

from typing import Any

from kubelet.effects import Effect, EndSpan, Log, SpanStage, StartSpan, Tell
from kubelet.view import KubeletPod, WorkerKey
from services.api.meta import Key


class Outbox:
    """Where a machine puts what it wants done. Invariant: a sync's stages and end follow its start."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.counters: dict[str, float] = {}
        self._spans: dict[WorkerKey, str] = {}  # running spans, and the error they will end with

    def log(
        self, ev: str, pod: KubeletPod | None, key: WorkerKey, data: dict[str, Any], name: Key | None = None
    ) -> None:
        """Write a line of the event log; `name` where there is no pod to take it from."""
        self.effects.append(Log(ev, pod, key, data, name))

    def tell(self, pod: KubeletPod, reason: str, message: str, event_type: str) -> None:
        """Record an Event about the pod."""
        self.effects.append(Tell(pod, reason, message, event_type))

    def start_span(self, key: WorkerKey, pod: KubeletPod, traceparent: str) -> None:
        """A pod sync begins."""
        self._spans[key] = ""
        self.effects.append(StartSpan(key, pod, traceparent))

    def span_stage(self, key: WorkerKey, stage: str, reason: str = "") -> None:
        """The pod's way came to this point."""
        if key in self._spans:
            self.effects.append(SpanStage(key, stage, reason))

    def fail_span(self, key: WorkerKey, error: str) -> None:
        """The sync will end with this error, once the API server knows."""
        if key in self._spans:
            self._spans[key] = error

    def has_span(self, key: WorkerKey) -> bool:
        """Whether a sync of the pod is going on."""
        return key in self._spans

    def end_span(self, key: WorkerKey, error: str) -> None:
        """The sync is over; what `fail_span` said before goes first."""
        if key in self._spans:
            self.effects.append(EndSpan(key, self._spans.pop(key) or error))

    def count(self, name: str) -> None:
        """Count one."""
        self.counters[name] = self.counters.get(name, 0.0) + 1

    def add(self, name: str, value: float) -> None:
        """Add to a counter."""
        self.counters[name] = self.counters.get(name, 0.0) + value
