"""What follows an attempt for a deferred resize: evictions, an event, a condition in some generations; never a bind.

The deciding is done in `resize`; the scheduling loop hands a pod that has a node over here when it pops one. Its
PodScheduled condition and its nomination are not touched. Source: kep-5836 6.5, 9, 12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from scheduler.conditions import NOTE_MAX
from scheduler.decisions import Decision
from scheduler.dispatcher.calls import ClearCondition, SetCondition, StatusPatch, status_patch
from scheduler.evictions import Evictions
from scheduler.failing import FAILED
from scheduler.metrics import Histogram
from scheduler.node_info import PodInfo
from scheduler.queued_pod import QueuedPod
from scheduler.resize.cycle import Verdict
from scheduler.room import Hearts, Wires
from scheduler.telling import Telling
from services.api.meta import find_condition
from services.api.seams import Seams, Span

CONDITION: Final = "ResizeUnschedulable"
CONDITION_REASON: Final = "PreemptionFailed"
ATTEMPT_BOUNDS: Final = tuple(0.001 * 2**i for i in range(15))
VICTIM_BOUNDS: Final = tuple(float(2**i) for i in range(7))


class ResizeLoop:
    """Does what `hearts.resizes` decides; nothing while there is none."""

    def __init__(self, seams: Seams, hearts: Hearts, wires: Wires, telling: Telling, evictions: Evictions) -> None:
        self._seams = seams
        self._hearts = hearts
        self._wires = wires
        self._telling = telling
        self._evictions = evictions
        self._seconds = Histogram(ATTEMPT_BOUNDS)
        self._victims = Histogram(VICTIM_BOUNDS)

    def metrics(self) -> Iterator[tuple[str, float]]:
        """Yield the metrics of resizes under the names that the beta plans (kep-5836 12)."""
        resizes = self._hearts.resizes
        if resizes is None:
            return
        for pool, count in sorted(resizes.pending().items()):
            yield f'scheduler_pending_resize_pods{{queue="{pool}"}}', count
        yield "scheduler_resize_preemption_attempts_total", resizes.cycle.attempts
        yield from self._victims.samples("scheduler_resize_preemption_victims")
        yield from self._seconds.samples("scheduler_resize_scheduling_algorithm_duration_seconds")

    async def schedule(self, queued: QueuedPod, now: float, group: asyncio.TaskGroup) -> None:
        """Make one attempt; it waits for evictions only where those are not asynchronous."""
        resizes, info, cause = self._hearts.resizes, queued.info, queued.traceparent
        assert resizes is not None, f"{info.key} has a node and is queued, although nobody follows resizes"
        span = self._seams.tracer.start("make room to grow", parent=cause, links=(cause,) if cause else (),
                                        pod=info.key.name, namespace=info.key.namespace, uid=info.uid,
                                        attempt=queued.attempts)  # fmt: skip
        verdict = resizes.cycle.decide(info.uid)
        self._seconds.observe(self._seams.clock.now() - now)
        error = await self._evict(verdict, span, group) if verdict is not None else ""
        resizes.settle(queued, verdict, now)
        if verdict is not None:
            self._tell(queued, verdict, error, now, span)
            await self._condition(queued.info, verdict, error, span)
        span.end(error)

    async def _evict(self, verdict: Verdict, span: Span, group: asyncio.TaskGroup) -> str:
        eviction = verdict.eviction
        if eviction is None:
            return ""
        self._victims.observe(len(eviction.victims))
        if eviction.is_async:
            self._evictions.begin(eviction, span.traceparent, group)
            return ""
        return await self._evictions.perform(eviction, span.traceparent)

    def _tell(self, queued: QueuedPod, verdict: Verdict, error: str, now: float, span: Span) -> None:
        info, outcome = queued.info, "fits" if verdict.fits else "unschedulable"
        message = f"{verdict.message} preemption: {error}" if error else verdict.message
        victims = verdict.eviction.victims if verdict.eviction is not None else ()
        self._telling.line("sched.resize", info, verdict.node, span, {
            "outcome": outcome, "attempt": queued.attempts, "waits_for": verdict.waits_for.value,
            "plugin": verdict.plugin, "message": message, "victims": [str(victim.key) for victim in victims],
        })  # fmt: skip
        rejected = {verdict.plugin: dict.fromkeys(verdict.reasons, 1)} if verdict.reasons else {}
        self._hearts.decisions.keep(
            info.key,
            Decision(info.uid, queued.attempts, now, outcome, node=verdict.node, message=message, evaluated=1,
                     feasible_count=int(verdict.fits), rejected=rejected,
                     victims=tuple(str(victim.key) for victim in victims)),
        )  # fmt: skip
        if not verdict.fits:
            self._telling.event(info, FAILED, message[:NOTE_MAX], is_warning=True, traceparent=span.traceparent)

    async def _condition(self, info: PodInfo, verdict: Verdict, error: str, span: Span) -> None:
        """Tell on the pod that preemption failed, in the generations that did; the later of them also takes it back."""
        resizes = self._hearts.resizes
        mode = resizes.rules.conditions if resizes is not None else "none"
        if mode == "none":
            return
        if verdict.fits or (verdict.eviction is not None and not error):
            if mode == "resize_unschedulable_g1":
                await self._wires.dispatcher.say(_cleared(info, span.traceparent))
            return
        short = ", ".join(reason.removeprefix("Insufficient ") for reason in verdict.reasons)
        text = f"preemption on node '{verdict.node}' failed to free {short or 'room'} needed for the resize"
        said = SetCondition(CONDITION_REASON, text, CONDITION, "True")
        await self._wires.dispatcher.say(status_patch(info.pod, said, traceparent=span.traceparent))

    def ended(self, pod: PodInfo, traceparent: str) -> None:
        """Take back what was told of failures, if this generation does: the pod waits no more."""
        resizes = self._hearts.resizes
        if resizes is None or resizes.rules.conditions != "resize_unschedulable_g1":
            return
        if find_condition(pod.pod.status.conditions, CONDITION) is not None:
            self._wires.dispatcher.later(_cleared(pod, traceparent))


def _cleared(pod: PodInfo, traceparent: str) -> StatusPatch:
    return status_patch(pod.pod, ClearCondition(CONDITION_REASON, CONDITION), traceparent=traceparent)
