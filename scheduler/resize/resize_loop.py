"""What follows an attempt for a deferred resize: evictions, an event, a condition in some generations; never a bind.

The deciding is done in `resize`; the scheduling loop hands a pod that has a node over here when it pops one. Its
PodScheduled condition and its nomination are not touched. Source: kep-5836 6.5, 9, 12.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.attempt import Attempt, Attempts
from scheduler.cycle.clients import Clients
from scheduler.cycle.failure_handler import FAILED
from scheduler.dispatcher.calls import NOTE_MAX, ClearCondition, ConditionChange, SetCondition, status_patch
from scheduler.metrics import PDB_VIOLATIONS, RESIZE
from scheduler.preemption.evictions import Evictions
from scheduler.queue.queued_pod import QueuedPod
from scheduler.recorder import SchedulerRecorder
from scheduler.resize.deferral import CONDITION
from scheduler.resize.deferred_pods import DeferredPods
from scheduler.resize.outcome import ResizeOutcome
from services.api.quantity import format_amount
from services.api.seams import Span
from services.telemetry.metrics import Histogram, Metrics, counter, gauge, histogram

CONDITION_REASON: Final = "PreemptionFailed"
ATTEMPT_BOUNDS: Final = tuple(0.001 * 2**i for i in range(15))
EVALUATION_BOUNDS: Final = tuple(0.001 * 2**i for i in range(16))
VICTIM_BOUNDS: Final = tuple(float(2**i) for i in range(7))


@dataclass
class ResizeLoop:
    """Does what `resizes` decides; nothing while there is none."""

    attempts: Attempts
    clients: Clients
    recorder: SchedulerRecorder
    evictions: Evictions
    resizes: DeferredPods | None

    def __post_init__(self) -> None:
        self._seconds = Histogram(ATTEMPT_BOUNDS)
        self._victims = Histogram(VICTIM_BOUNDS)
        self._evaluations = {result: Histogram(EVALUATION_BOUNDS) for result in ("success", "failure")}

    def metrics(self) -> dict[str, float]:
        """Return the metrics of resizes under the names that the beta plans (kep-5836 12)."""
        resizes = self.resizes
        if resizes is None:
            return {}
        reading = Reading(self, resizes)
        return METRICS.of(reading) | (OWN_METRICS.of(reading, RESIZE, "pod") if resizes.rules.has_own_labels else {})

    async def schedule(self, queued: QueuedPod, now: float, group: asyncio.TaskGroup) -> None:
        """Make one attempt; it waits for evictions only where those are not asynchronous."""
        resizes, info = self.resizes, queued.info
        assert resizes is not None, f"{info.key} has a node and is queued, although no resize is followed"
        attempt = self.attempts.begin(queued, now, "decide deferred resize")
        outcome = resizes.cycle.decide(info, now)
        self.attempts.decided(attempt)
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
        resizes = self.resizes
        assert resizes is not None
        took_s = attempt.took_s
        self._seconds.observe(took_s)
        if outcome is not None and outcome.has_tried:
            self._evaluations["success" if outcome.eviction is not None else "failure"].observe(took_s)
        if resizes.rules.has_own_labels:
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
        resizes = self.resizes
        assert resizes is not None
        desired_amounts = _request(outcome, error, resizes.rules.conditions)
        nomination = _nomination(outcome, error) if resizes.rules.double_preemption == "nnn" else None
        if desired_amounts is not None or nomination is not None:
            patch = status_patch(
                outcome.pod.pod,
                *([desired_amounts] if desired_amounts is not None else []),
                nomination=nomination,
                traceparent=span.traceparent,
            )
            await self.clients.dispatcher.say(patch)

    def begin(self) -> None:
        """Take back what a scheduler before this one wrote on pods that have stopped waiting meanwhile."""
        if self.resizes is not None:
            for pod in self.resizes.left_over():
                self.ended(pod, "")

    def ended(self, pod: PodInfo, traceparent: str) -> None:
        """Take back what was written of the wait: the pod waits no more."""
        resizes = self.resizes
        if resizes is None:
            return
        writes_condition = resizes.rules.conditions == "resize_unschedulable_g1"
        desired = [ClearCondition(CONDITION_REASON, CONDITION)] if writes_condition else []
        nomination = "" if resizes.rules.double_preemption == "nnn" else None
        patch = status_patch(pod.pod, *desired, nomination=nomination, traceparent=traceparent)
        if not patch.is_noop:
            self.clients.dispatcher.later(patch)


def _request(outcome: ResizeOutcome, error: str, mode: str) -> ConditionChange | None:
    """Return what becomes of the condition about a failed preemption; None: it stays as it is.

    Only the later of the two generations that had it takes it back.
    """
    if mode not in ("resize_unschedulable_g0", "resize_unschedulable_g1"):
        return None
    if outcome.fits or (outcome.eviction is not None and not error):
        return ClearCondition(CONDITION_REASON, CONDITION) if mode == "resize_unschedulable_g1" else None
    if not outcome.has_tried or outcome.is_guarded:
        return None
    short = ", ".join(f"{format_amount(name, amount)} of {name}" for name, amount in outcome.missing) or "room"
    text = f"preemption on node '{outcome.node}' failed to free {short} needed for the resize"
    return SetCondition(CONDITION_REASON, text, CONDITION, "True")


def _nomination(outcome: ResizeOutcome, error: str) -> str | None:
    """Return the nomination that an attempt leaves, as for a new pod: its node while victims leave, else none."""
    if outcome.is_guarded or error:
        return None
    return outcome.node if outcome.eviction is not None else ""


class Reading(NamedTuple):
    """What the metrics are read from."""

    loop: ResizeLoop
    resizes: DeferredPods


METRICS: Final[Metrics[Reading]] = Metrics(
    gauge("scheduler_pending_resize_pods", "Deferred resizes that wait.",
          lambda read: dict(sorted(read.resizes.pending().items())), "queue"),
    counter("scheduler_resize_preemption_attempts_total", "Preemption attempts.",
            lambda read: read.resizes.cycle.attempts),
    histogram("scheduler_resize_preemption_victims", "Victims of an attempt.", lambda read: read.loop._victims),
    histogram("scheduler_resize_scheduling_algorithm_duration_seconds", "Time of a resize's scheduling cycle.",
              lambda read: read.loop._seconds),
)  # fmt: skip
OWN_METRICS: Final[Metrics[Reading]] = Metrics(
    histogram("scheduler_preemption_evaluation_duration_seconds", "Time to find victims.",
              lambda read: read.loop._evaluations, "result"),
    counter(*PDB_VIOLATIONS, lambda read: read.resizes.cycle.violations),
    labels=("operation", "preemptor"),
)  # fmt: skip
"""Once metrics have resizes apart (kep-5836 12)."""
