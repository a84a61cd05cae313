"""The execution of evictions: the calls that free a node, beside the scheduling loop or inside it (KEP-4832).

The preemptor is held back meanwhile. Each victim is marked, then deleted; one that only waits for its own
bind is rejected in memory. Source: preemption 3.5, 4; guarantees K5.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import structlog

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.cycle.attempt import Decisions
from scheduler.cycle.clients import Clients
from scheduler.cycle.waiting_pods import WaitingPods
from scheduler.dispatcher.calls import SetCondition, clear_nomination, status_patch
from scheduler.framework.events import SCHEDULE_ATTEMPT_FAILURE
from scheduler.metrics import GOROUTINES, RESIZE, SchedulerMetrics
from scheduler.preemption.eligibility import BY_SCHEDULER, DISRUPTION_TARGET
from scheduler.preemption.progress import Eviction, RunningPreemptions
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.recorder import SchedulerRecorder
from scheduler.switches import EvictionSwitches
from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.pod import Pod
from services.api.seams import Seams, Span
from services.telemetry.metrics import Histogram, Metrics, Samples, counter, gauge, histogram

PARALLEL: Final = 16
"""Maximal number of victims evicted at once, upstream's parallelism."""
DELETED_MAX: Final = 1024
"""Maximal number of remembered acknowledged deletions, before those that the watch has shown are forgotten."""
IN_MEMORY: Final = " (in kube-scheduler memory)."
VICTIM_BOUNDS: Final = tuple(float(2**i) for i in range(7))
SECONDS_BOUNDS: Final = tuple(0.01 * 2**i for i in range(20))
EXECUTION_BOUNDS: Final = tuple(0.001 * 2**i for i in range(16))
log = structlog.get_logger()


class _Fate(Enum):
    """The outcome for one victim. NEEDLESS: it was gone already, or the preemptor does not need it any more."""

    DELETED = 0
    IN_MEMORY = 1
    NEEDLESS = 2
    FAILED = 3


@dataclass
class Evictions:
    """Performs the evictions that DefaultPreemption and others decided.

    `wake` is set when a preemptor may go on. `waits_for_resize`: whether a bound preemptor still waits;
    `has_resize_labels`: whether metrics separate resizes.
    """

    seams: Seams
    cache: Cache
    queue: SchedulingQueue
    decisions: Decisions
    scheduler_metrics: SchedulerMetrics
    clients: Clients
    recorder: SchedulerRecorder
    preempting: RunningPreemptions
    waiting: WaitingPods
    wake: asyncio.Event
    waits_for_resize: Callable[[Pod], bool]
    has_resize_labels: bool
    _deleted: dict[str, PodInfo] = field(default_factory=dict)
    """Victims whose deletion was acknowledged: a view that does not show it yet must not repeat the deletion."""

    def __post_init__(self) -> None:
        self._switches = self.seams.switches.of(EvictionSwitches)
        self._victims = Histogram(VICTIM_BOUNDS)
        self._seconds = {result: Histogram(SECONDS_BOUNDS) for result in ("success", "error")}
        self._of_resizes = {result: Histogram(EXECUTION_BOUNDS) for result in ("success", "error")}

    def metrics(self) -> Samples:
        """Return the metrics of preemption under upstream's names (preemption 5)."""
        return METRICS.of(self) | (RESIZE_METRICS.of(self, RESIZE) if self.has_resize_labels else Samples())

    def _count_victims(self, eviction: Eviction) -> None:
        if not (eviction.preemptor.is_bound and self.has_resize_labels):
            self._victims.observe(len(eviction.victims))

    async def carry_out(
        self,
        evictions: Iterable[Eviction],
        span: Span,
        group: asyncio.TaskGroup,
        before: Callable[[Eviction, Span, asyncio.TaskGroup], None] | None = None,
    ) -> str:
        """Begin the evictions, each after `before`; return the error, or "".

        Evictions for which the loop waits are performed at once.
        """
        for eviction in evictions:
            if before is not None:
                before(eviction, span, group)
            if eviction.is_async:
                self.begin(eviction, span.traceparent, group)
            elif error := await self.perform(eviction, span.traceparent):
                return error
        return ""

    def begin(self, eviction: Eviction, parent: str, group: asyncio.TaskGroup) -> None:
        """Start the evictions; from here on the preemptor is gated. Without victims it is not.

        Upstream then returns before it clears nominations of lower priority (`prepareCandidateAsync`).
        """
        if not eviction.pending:
            if self._switches.clears_nominations == "always":
                group.create_task(self._only_clear(eviction, parent))
            return
        self._count_victims(eviction)
        self.preempting.begin(eviction.preemptor.uid)
        group.create_task(self._run(eviction, parent))

    async def _only_clear(self, eviction: Eviction, parent: str) -> None:
        span = self._start_span(eviction, parent)
        await self._clear_lesser(eviction, span)
        span.end()

    async def _run(self, eviction: Eviction, parent: str) -> None:
        clock = self.seams.clock
        began = clock.now()
        span = self._start_span(eviction, parent)
        *others, last = eviction.pending
        is_cleared = await self._clear_lesser(eviction, span)
        fates = await self._evict_all(eviction, others, span)
        fate = _Fate.NEEDLESS
        if _Fate.FAILED not in fates:
            # Failing early lets the preemptor try again early.
            self.preempting.come_to_last(eviction.preemptor.uid, last)
            fate = await self._evict(eviction, last, span)
        self.preempting.end(eviction.preemptor.uid)
        has_failed = not is_cleared or fate is _Fate.FAILED or _Fate.FAILED in fates
        result, took_s = "error" if has_failed else "success", clock.now() - began
        self._seconds[result].observe(took_s)
        if eviction.preemptor.is_bound and self.has_resize_labels:
            self._of_resizes[result].observe(took_s)
        nominator = self.queue.nominator
        for pod in eviction.preemptor.pods if has_failed and self._switches.reverts_nomination else ():
            if nominator.node_of(pod.uid) in eviction.nodes:
                nominator.remove(pod.uid)
                await self.clients.dispatcher.say(clear_nomination(pod.pod, span.traceparent))
        # Whether the preemptor may have missed the event that should have woken it.
        is_blind = self._switches.activates == "on-error-or-in-memory" and fate is _Fate.IN_MEMORY
        if has_failed or is_blind or self._switches.activates == "always":
            self.queue.activate([pod.key for pod in eviction.preemptor.pods], clock.now())
        self.wake.set()
        span.end("evictions failed" if has_failed else "")

    async def perform(self, eviction: Eviction, parent: str) -> str:
        """Evict while the caller waits; return "" or the error."""
        self._count_victims(eviction)
        span = self._start_span(eviction, parent)
        fates = await self._evict_all(eviction, eviction.pending, span)
        error = "" if _Fate.FAILED not in fates else f"not all victims on node {eviction.node} could be evicted"
        if not error:
            await self._clear_lesser(eviction, span)
        span.end(error)
        return error

    def _start_span(self, eviction: Eviction, parent: str) -> Span:
        pod = eviction.preemptor.pods[0]
        return self.seams.tracer.start(
            "evict victims",
            parent=parent,
            pod=pod.key.name,
            namespace=pod.key.namespace,
            uid=pod.uid,
            node=eviction.node,
        )

    async def _clear_lesser(self, eviction: Eviction, span: Span) -> bool:
        """Take back nominations of lower priority, which may not fit any more; say whether all was written."""
        nominator = self.queue.nominator
        is_ok = True
        for node in eviction.nodes:
            for pod in nominator.of_lower_priority(node, eviction.preemptor.priority):
                nominator.remove(pod.uid)
                is_ok = await self.clients.dispatcher.say(clear_nomination(pod.pod, span.traceparent)) and is_ok
        return is_ok

    async def _evict_all(self, eviction: Eviction, victims: Sequence[PodInfo], span: Span) -> list[_Fate]:
        """Evict many, some at once; after a failure no further one is begun."""
        fates: list[_Fate] = []
        waiting = list(reversed(victims))

        async def evict_some() -> None:
            while waiting and _Fate.FAILED not in fates:
                fates.append(await self._evict(eviction, waiting.pop(), span))

        if len(waiting) == 1:
            await evict_some()
        elif waiting:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(PARALLEL, len(waiting))):
                    group.create_task(evict_some())
        return fates

    async def _evict(self, eviction: Eviction, victim: PodInfo, span: Span) -> _Fate:
        """Evict one victim, if that is still right (K5)."""
        live: Pod | None = self.clients.pods.lister.get(victim.key)
        if live is None or not self.preempting.is_staying(victim) or victim.uid in self._deleted:
            return _Fate.NEEDLESS
        if not self._is_needed(eviction, victim):
            log.info("eviction.needless", pod=str(victim.key), node=eviction.node)
            return _Fate.NEEDLESS
        try:
            fate = await self._turn_back(eviction, victim)
            if fate is None:
                fate = await self._delete(eviction, victim, live, span)
        except (ApiError, UnknownOutcome) as error:
            log.warning("eviction.failed", pod=str(victim.key), node=eviction.node, reason=str(error))
            return _Fate.FAILED
        if fate is not _Fate.NEEDLESS:
            for preemptor in eviction.preemptor.pods:
                self.scheduler_metrics.observe_eviction(preemptor.uid, eviction.node)
            self._record(eviction, victim, span, is_in_memory=fate is _Fate.IN_MEMORY)
        return fate

    def _is_needed(self, eviction: Eviction, victim: PodInfo) -> bool:
        """Whether the preemptor, or a member of it, still exists, waits and matters more."""
        if victim.priority >= eviction.preemptor.priority and not eviction.preemptor.is_group:
            return False
        for pod in eviction.preemptor.pods:
            live: Pod | None = self.clients.pods.lister.get(pod.key)
            if eviction.preemptor.is_bound:
                return live is not None and live.metadata.uid == pod.uid and self.waits_for_resize(live)
            if (
                live is not None
                and live.metadata.uid == pod.uid
                and live.is_active
                and not live.spec.node_name
                and pod.uid not in self.cache.pods
            ):
                return True
        return False

    async def _turn_back(self, eviction: Eviction, victim: PodInfo) -> _Fate | None:
        """Preempt a victim that waits at Permit or is in PreBind; None when it has to be deleted."""
        uid, mode = victim.uid, self._switches.waiting_victim
        if mode == "delete" and self.waiting.is_waiting(uid):
            return None
        if self._switches.pre_bind_victim == "delete" and self.waiting.is_pre_binding(uid):
            return None
        left = self.waiting.turn_back(uid, eviction.plugin)
        if left is None:
            return None
        await left
        if mode == "backoff":
            self.queue.move(victim.key, SCHEDULE_ATTEMPT_FAILURE, self.seams.clock.now())
        return _Fate.IN_MEMORY

    async def _delete(self, eviction: Eviction, victim: PodInfo, live: Pod, span: Span) -> _Fate:
        """Mark the victim and delete it; one that is gone already counts as deleted."""
        client, preemptor = self.clients.client, eviction.preemptor
        who = preemptor.pods[0].spec.scheduler_name
        text = f"{who}: preempting to accommodate a higher priority {'pod group' if preemptor.is_group else 'pod'}"
        marked = SetCondition(BY_SCHEDULER, text, DISRUPTION_TARGET, "True", live.metadata.generation)
        patch = status_patch(live, marked).document(self.seams.clock.wall())
        try:
            if patch is not None:
                await client.patch_rv(
                    "pods",
                    victim.key,
                    patch,
                    subresource="status",
                    patch_type="strategic",
                    uid=victim.uid,
                    traceparent=span.traceparent,
                )
            if not self._is_needed(eviction, victim):
                return _Fate.NEEDLESS
            self.recorder.line(
                "sched.victim",
                victim,
                eviction.node,
                span,
                {
                    "preemptor": preemptor.pods[0].uid,
                    "preemptor_priority": preemptor.priority,
                    "priority": victim.priority,
                    **({"group": preemptor.uid} if preemptor.is_group else {}),
                    **({"resize": True} if preemptor.is_bound else {}),
                },
                rv_seen=self.clients.pods.last_rv,
            )
            await client.delete("pods", victim.key, uid=victim.uid, traceparent=span.traceparent)
        except (NotFound, Conflict):
            return _Fate.NEEDLESS
        if len(self._deleted) >= DELETED_MAX:
            self._deleted = {uid: pod for uid, pod in self._deleted.items() if self.preempting.is_staying(pod)}
        self._deleted[victim.uid] = victim
        return _Fate.DELETED

    def _record(self, eviction: Eviction, victim: PodInfo, span: Span, *, is_in_memory: bool) -> None:
        preemptor = eviction.preemptor
        decision = self.decisions.of(victim.key)
        if decision is not None:
            decision.preempted_by = str(preemptor.pods[0].key)
        note = f"Preempted by {preemptor.kind} {preemptor.uid} on node {eviction.node}"
        self.recorder.event(
            victim,
            "Preempted",
            note + (IN_MEMORY if is_in_memory else ""),
            action="Preempting",
            related=preemptor.pods[0],
            traceparent=span.traceparent,
        )


EXECUTIONS: Final = ("scheduler_preemption_goroutines_execution_total", "Evictions carried out.")
METRICS: Final[Metrics[Evictions]] = Metrics(
    counter("scheduler_preemption_attempts_total", "Preemption attempts.", lambda own: own.preempting.attempts),
    histogram("scheduler_preemption_victims", "Victims of an attempt.", lambda own: own._victims),
    histogram("scheduler_preemption_goroutines_duration_seconds", "Time of an eviction.", lambda own: own._seconds,
              "result"),
    counter(*EXECUTIONS, lambda own: {result: seconds.count - own._of_resizes[result].count
                                      for result, seconds in own._seconds.items()}, "result"),
    gauge(*GOROUTINES, lambda own: {"preemption": len(own.preempting)}, "operation"),
)  # fmt: skip
RESIZE_METRICS: Final[Metrics[Evictions]] = Metrics(
    counter(*EXECUTIONS, lambda own: {result: seconds.count for result, seconds in own._of_resizes.items()}, "result"),
    histogram("scheduler_preemption_execution_duration_seconds", "Time of an eviction for a resize.",
              lambda own: {(result, "pod"): seconds for result, seconds in own._of_resizes.items()},
              "result", "preemptor"),
    labels=("operation",),
)  # fmt: skip
"""The metrics that separate resizes (kep-5836 12)."""
