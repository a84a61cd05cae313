"""The effects of an attempt for a deferred resize: evictions, an event, conditions; never a bind.

Conditions are written in some generations only. The decisions are made in `resize`; the scheduling loop
passes a pod that has a node to this module when it pops one. The pod's PodScheduled condition and its
nomination are not touched. Source: kep-5836 6.5, 9, 12.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.attempt import Attempt, Attempts
from scheduler.cycle.clients import Clients
from scheduler.cycle.failure_handler import FAILED
from scheduler.dispatcher.calls import NOTE_MAX, ClearCondition, ConditionChange, SetCondition, status_patch
from scheduler.metrics import INITIAL, PDB_VIOLATIONS, RESIZE
from scheduler.preemption.evictions import Evictions
from scheduler.queue.queued_pod import QueuedPod
from scheduler.recorder import SchedulerRecorder
from scheduler.resize.deferral import CONDITION
from scheduler.resize.deferred_pods import DeferredPods
from scheduler.resize.outcome import NAME, ResizeOutcome
from services.api.kinds.pod import RESIZE_RESERVED
from services.api.quantity import format_amount
from services.api.seams import Span
from services.telemetry.metrics import Histogram, Metrics, Samples, Series, counter, gauge, histogram

CONDITION_REASON: Final = "PreemptionFailed"
RESERVED_REASON: Final = "AcceptedByScheduler"
ATTEMPT_BOUNDS: Final = tuple(0.001 * 2**i for i in range(15))
EVALUATION_BOUNDS: Final = tuple(0.001 * 2**i for i in range(16))
VICTIM_BOUNDS: Final = tuple(float(2**i) for i in range(7))
WITH_OPERATION: Final = (
    "scheduler_queued_entities",
    "scheduler_preemption_evaluation_duration_seconds",
    "scheduler_preemption_execution_duration_seconds",
    "scheduler_preemption_pdb_violations_total",
    "scheduler_preemption_goroutines_execution_total",
)
OPERATION: Final = "operation"


@dataclass
class ResizeLoop:
    """Performs the decisions of `resizes`."""

    attempts: Attempts
    clients: Clients
    recorder: SchedulerRecorder
    evictions: Evictions
    resizes: DeferredPods

    def __post_init__(self) -> None:
        self._seconds = Histogram(ATTEMPT_BOUNDS)
        self._victims = Histogram(VICTIM_BOUNDS)
        self._evaluations = {result: Histogram(EVALUATION_BOUNDS) for result in ("success", "failure")}

    def beside(self, others: Samples) -> Samples:
        """Return the scheduler's metrics with those of resizes, under the beta's planned names (kep-5836 12)."""
        if not self.resizes.rules.has_own_labels:
            return others | METRICS.of(self)
        return apart(others | METRICS.of(self) | OWN_METRICS.of(self, RESIZE, "pod"), self.resizes.pending())

    async def schedule(self, queued: QueuedPod, now: float, group: asyncio.TaskGroup) -> None:
        """Make one attempt; it waits for evictions only where those are not asynchronous."""
        resizes, info = self.resizes, queued.info
        attempt = self.attempts.begin(queued, now, "decide deferred resize")
        outcome = resizes.cycle.decide(info, now)
        self.attempts.on_decided(attempt)
        self._count(attempt, outcome)
        error = ""
        if outcome is not None:
            for eviction in outcome.evictions:
                self._victims.observe(len(eviction.victims))
            error = await self.evictions.carry_out(outcome.evictions, attempt.span, group)
        resizes.settle(queued, outcome, now)
        if outcome is not None:
            self._record(attempt, outcome, error)
            await self._write(outcome, error, attempt.span)
        attempt.span.end(error)

    def _count(self, attempt: Attempt, outcome: ResizeOutcome | None) -> None:
        """Note the attempt; before the beta it is an attempt like any other, too (kep-5836 12)."""
        took_s = attempt.took_s
        self._seconds.observe(took_s)
        if outcome is not None and outcome.has_tried:
            self._evaluations["success" if outcome.evictions else "failure"].observe(took_s)
        if self.resizes.rules.has_own_labels:
            return
        self.attempts.count(attempt, "unschedulable")
        if outcome is not None and outcome.has_tried:
            self.evictions.preempting.attempts += 1

    def _record(self, attempt: Attempt, outcome: ResizeOutcome, error: str) -> None:
        queued, span = attempt.queued, attempt.span
        info = queued.info
        label = "error" if outcome.is_error else "fits" if outcome.fits else "unschedulable"
        message = f"{outcome.message} preemption: {error}" if error else outcome.message
        self.recorder.line(
            "sched.resize",
            info,
            outcome.node,
            span,
            {
                "outcome": label,
                "attempt": queued.attempts,
                "waits_for": outcome.waits_for.value,
                "plugin": outcome.plugin,
                "message": message,
                "victims": [str(victim.key) for victim in outcome.victims],
            },
        )
        rejected = {outcome.plugin: dict.fromkeys(outcome.reasons, 1)} if outcome.reasons else {}
        self.attempts.keep(
            attempt,
            label,
            node=outcome.node,
            message=message,
            evaluated=1,
            feasible_count=int(outcome.fits),
            rejected=rejected,
            victims=tuple(str(victim.key) for victim in outcome.victims),
        )
        if not outcome.fits:
            self.recorder.event(info, FAILED, message[:NOTE_MAX], is_warning=True, traceparent=span.traceparent)

    async def _write(self, outcome: ResizeOutcome, error: str, span: Span) -> None:
        """Write on the pod what its generation writes there; nothing, in most."""
        rules, nomination = self.resizes.rules, None
        changes = [
            change
            for change in (
                _condition_change(outcome, error, rules.conditions),
                _reservation(outcome, error) if rules.reserves_on_node else None,
            )
            if change is not None
        ]
        if rules.double_preemption == "nnn" and not (outcome.is_guarded or error):
            # As for a new pod: its node while victims leave, else none.
            nomination = outcome.node if outcome.evictions else ""
        if changes or nomination is not None:
            patch = status_patch(outcome.pod.pod, *changes, nomination=nomination, traceparent=span.traceparent)
            await self.clients.dispatcher.say(patch)

    def begin(self) -> None:
        """Remove the conditions that an earlier scheduler wrote on pods that have stopped waiting meanwhile."""
        for pod in self.resizes.left_over():
            self.on_ended(pod, "")

    def on_ended(self, pod: PodInfo, traceparent: str) -> None:
        """Remove the conditions about the wait of a pod that waits no more."""
        rules = self.resizes.rules
        writes_condition = rules.conditions == "resize_unschedulable_g1"
        desired = [ClearCondition(CONDITION_REASON, CONDITION)] if writes_condition else []
        if rules.reserves_on_node:
            desired.append(ClearCondition(RESERVED_REASON, RESIZE_RESERVED))
        nomination = "" if rules.double_preemption == "nnn" else None
        patch = status_patch(pod.pod, *desired, nomination=nomination, traceparent=traceparent)
        if not patch.is_noop:
            self.clients.dispatcher.later(patch)


def _condition_change(outcome: ResizeOutcome, error: str, mode: str) -> ConditionChange | None:
    """Return what becomes of the condition about a failed preemption; None: it stays as it is.

    Only the later of the two generations that had it takes it back.
    """
    if mode not in ("resize_unschedulable_g0", "resize_unschedulable_g1"):
        return None
    if outcome.fits or (outcome.evictions and not error):
        return ClearCondition(CONDITION_REASON, CONDITION) if mode == "resize_unschedulable_g1" else None
    if not outcome.has_tried or outcome.is_guarded:
        return None
    short = ", ".join(f"{format_amount(name, amount)} of {name}" for name, amount in outcome.missing) or "capacity"
    text = f"preemption on node '{outcome.node}' failed to free {short} needed for the resize"
    return SetCondition(CONDITION_REASON, text, CONDITION, "True")


def _reservation(outcome: ResizeOutcome, error: str) -> ConditionChange | None:
    """Return what asks the kubelet to keep capacity for what the pod asks for now; None while nothing is accepted."""
    if error or not (outcome.fits or outcome.evictions):
        return None
    pod, text = outcome.pod.pod, f"node '{outcome.node}' is to keep capacity for what the pod asks for"
    return SetCondition(RESERVED_REASON, text, RESIZE_RESERVED, "True", pod.metadata.generation)


def apart(samples: Samples, pending: Mapping[str, int]) -> Samples:
    """Return the beta's samples: gauges without deferred pods, and every operation labelled (kep-5836 12)."""
    kept_series: list[Series] = []
    for series in samples.series.values():
        name, value, labels = series.name, series.value, dict(series.pairs)
        if name == "scheduler_unschedulable_pods" and labels.get("plugin") == NAME:
            continue
        waiting = pending.get(labels.get("queue", ""), 0)
        is_pods = name == "scheduler_queued_entities" and labels.get("type") == "Pod" and OPERATION not in labels
        if name == "scheduler_pending_pods" or is_pods:
            assert not isinstance(value, Histogram), "a gauge is a number"
            value -= waiting
        if is_pods:
            kept_series.append(with_operation(series, RESIZE)._replace(value=waiting))
        if name in WITH_OPERATION and OPERATION not in labels:
            series = with_operation(series, INITIAL)
        kept_series.append(series._replace(value=value))
    return Samples(kept_series)


def with_operation(series: Series, operation: str) -> Series:
    """Return the series with its operation among the labels."""
    return series._replace(labels=((), ((OPERATION, operation), *series.pairs), ()))


METRICS: Final[Metrics[ResizeLoop]] = Metrics(
    gauge("scheduler_pending_resize_pods", "Deferred resizes that wait.",
          lambda own: dict(sorted(own.resizes.pending().items())), "queue"),
    counter("scheduler_resize_preemption_attempts_total", "Preemption attempts.",
            lambda own: own.resizes.cycle.attempts),
    histogram("scheduler_resize_preemption_victims", "Victims of an attempt.", lambda own: own._victims),
    histogram("scheduler_resize_scheduling_algorithm_duration_seconds", "Time of a resize's scheduling cycle.",
              lambda own: own._seconds),
)  # fmt: skip
OWN_METRICS: Final[Metrics[ResizeLoop]] = Metrics(
    histogram("scheduler_preemption_evaluation_duration_seconds", "Time to find victims.",
              lambda own: own._evaluations, "result"),
    counter(*PDB_VIOLATIONS, lambda own: own.resizes.cycle.violations),
    labels=("operation", "preemptor"),
)  # fmt: skip
"""The metrics that separate resizes (kep-5836 12)."""
