"""One attempt for a pod, a group member, or a deferred resize: its span and its record.

The last attempt of each pod is kept in memory for `keplab explain`: why the pod is on its node, or on none.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.cycle.result import Ranking
from scheduler.metrics import SchedulerMetrics
from scheduler.queue.queued_pod import QueuedPod
from services.api.lru import LRU
from services.api.meta import Key
from services.api.seams import Seams, Span

DECISIONS_MAX: Final = 4096


@dataclass(slots=True)
class Decision:
    """The record of one cycle. `rejected`: plugin to reason to nodes; `ranking`: the nodes that were compared."""

    uid: str
    attempt: int
    at_s: float
    outcome: str
    node: str = ""
    message: str = ""
    feasible_count: int = 0
    evaluated: int = 0
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    ranking: Ranking | None = None
    nominated_node: str = ""
    victims: tuple[str, ...] = ()
    """Pods that were to be preempted for this one, as `namespace/name`."""
    preempted_by: str = ""

    def document(self) -> dict[str, Any]:
        """Return the part of `explain pod/…` that this cycle provides."""
        ranking = self.ranking
        return {
            "outcome": self.outcome,
            "node": self.node,
            "attempts": self.attempt,
            "feasible": list(ranking.names) if ranking is not None else [self.node] if self.node else [],
            "feasible_count": self.feasible_count,
            "evaluated": self.evaluated,
            "rejected": self.rejected,
            "scores": ranking.scores if ranking is not None else {},
            "final": ranking.totals if ranking is not None else {},
            "weights": dict(ranking.weights) if ranking is not None else {},
            "victims": list(self.victims),
            "preempted_by": self.preempted_by,
            "message": self.message,
            "nominated_node": self.nominated_node,
        }


class Decisions:
    """The newest decision of each pod; the least recently decided are dropped first."""

    def __init__(self) -> None:
        self._by_key: LRU[Key, Decision] = LRU(DECISIONS_MAX)

    def keep(self, key: Key, decision: Decision) -> None:
        """Keep the decision as the pod's last."""
        self._by_key.put(key, decision)

    def of(self, key: Key) -> Decision | None:
        """Return the pod's last decision."""
        return self._by_key.get(key)

    def keys(self) -> list[Key]:
        """Return the pods with a kept decision."""
        return list(self._by_key)


@dataclass(slots=True)
class Attempt:
    """One attempt. `now`: when it began; `took_s`: seconds that the decision took."""

    queued: QueuedPod
    now: float
    span: Span
    took_s: float = 0.0


@dataclass
class Attempts:
    """Begins attempts, and keeps their decisions for `keplab explain` and for metrics."""

    seams: Seams
    decisions: Decisions
    metrics: SchedulerMetrics

    def begin(
        self, queued: QueuedPod, now: float, name: str = "schedule pod", parent: str = "", took_s: float = 0.0
    ) -> Attempt:
        """Start the span of an attempt, linked to the change that made the pod due.

        Without `parent`, that change is the parent, too.
        """
        cause, key = queued.traceparent, queued.key
        span = self.seams.tracer.start(
            name,
            kind="consumer" if cause and not parent else "internal",
            parent=parent or cause,
            links=(cause,) if cause else (),
            pod=key.name,
            namespace=key.namespace,
            uid=queued.uid,
            attempt=queued.attempts,
        )
        return Attempt(queued, now, span, took_s)

    def on_decided(self, attempt: Attempt) -> None:
        """Note how long the decision took."""
        attempt.took_s = self.seams.clock.now() - attempt.now

    def count(self, attempt: Attempt, outcome: str) -> None:
        """Count the attempt by its outcome."""
        profile = attempt.queued.info.spec.scheduler_name
        self.metrics.observe_attempt(outcome, attempt.took_s, profile, attempt.span.trace_id)

    def keep(self, attempt: Attempt, outcome: str, **decision: Any) -> None:
        """Keep the decision as the pod's last."""
        queued = attempt.queued
        self.decisions.keep(queued.key, Decision(queued.uid, queued.attempts, attempt.now, outcome, **decision))
