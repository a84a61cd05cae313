"""One attempt: for a pod, a member of a group, or a resize that its node deferred. Its span, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.cycle.decisions import Decision, Decisions
from scheduler.metrics import SchedulerMetrics
from scheduler.queue.queued_pod import QueuedPod
from services.api.seams import Seams, Span


@dataclass(slots=True)
class Attempt:
    """`now`: when it began; `took_s`: how long the deciding took."""

    queued: QueuedPod
    now: float
    span: Span
    took_s: float = 0.0


class Attempts:
    """Begins attempts, and keeps for `keplab explain` and for metrics what they decided."""

    def __init__(self, seams: Seams, decisions: Decisions, metrics: SchedulerMetrics) -> None:
        self._seams = seams
        self._decisions = decisions
        self._metrics = metrics

    def begin(self, queued: QueuedPod, now: float, name: str = "schedule pod", parent: str = "") -> Attempt:
        """Start the span, linked to what made the pod due; without a `parent` that is its parent, too."""
        cause, key = queued.traceparent, queued.key
        span = self._seams.tracer.start(
            name,
            parent=parent or cause,
            links=(cause,) if cause else (),
            pod=key.name,
            namespace=key.namespace,
            uid=queued.uid,
            attempt=queued.attempts,
        )
        return Attempt(queued, now, span)

    def decided(self, attempt: Attempt) -> None:
        """Note how long the deciding took."""
        attempt.took_s = self._seams.clock.now() - attempt.now

    def count(self, attempt: Attempt, outcome: str) -> None:
        """Count the attempt by its outcome."""
        scheduler_name = attempt.queued.info.spec.scheduler_name
        self._metrics.attempted(outcome, attempt.took_s, scheduler_name)

    def keep(self, attempt: Attempt, outcome: str, **decision: Any) -> None:
        """Keep the decision as the pod's last."""
        queued = attempt.queued
        self._decisions.keep(queued.key, Decision(queued.uid, queued.attempts, attempt.now, outcome, **decision))
