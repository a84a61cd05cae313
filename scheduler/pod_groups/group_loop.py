"""The effects of a pod-group cycle: members bound or put back, evictions, and the group's own status.

The decisions are made in `pod_groups`; the scheduling loop passes a group to this module when it pops one.
Source: preemption 6.4.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from scheduler.cache.cache import Assumption
from scheduler.cycle.attempt import Attempt, Attempts
from scheduler.cycle.clients import Clients
from scheduler.cycle.core import Core
from scheduler.cycle.failure_handler import FAILED, FailureHandler
from scheduler.cycle.result import ScheduleResult
from scheduler.dispatcher.calls import SCHEDULER_ERROR, UNSCHEDULABLE, SetCondition
from scheduler.entry import Handle
from scheduler.metrics import PDB_VIOLATIONS
from scheduler.pod_groups.cycle import GroupCycle, GroupResult, Outcome
from scheduler.pod_groups.placement import Rejected
from scheduler.pod_groups.queue import GroupedQueue, GroupInfo
from scheduler.preemption.eligibility import BY_SCHEDULER
from scheduler.preemption.evictions import Evictions
from scheduler.preemption.progress import Eviction
from scheduler.preemption.units import Units
from scheduler.queue.queued_pod import QueuedPod
from scheduler.recorder import SchedulerRecorder
from services.api.errors import ApiError, UnknownOutcome
from services.api.kinds.podgroup import DISRUPTION_TARGET, PodGroup
from services.api.meta import Document, find_condition
from services.api.resources import resource_of_view
from services.api.seams import Clock, Seams, Span
from services.client.client import Client
from services.telemetry.metrics import Counts, Histogram, Metrics, Samples, counter, histogram

ATTEMPT_BOUNDS: Final = tuple(0.001 * 2**i for i in range(15))
ATTEMPTS: Final = "scheduler_podgroup_schedule_attempts_total"
PREEMPTIONS: Final = "scheduler_workload_preemption_attempts_total"
COUNT_BOUNDS: Final = tuple(float(2**i) for i in range(11))
RESOURCE: Final = resource_of_view(PodGroup).name
log = structlog.get_logger()


@dataclass
class GroupStatusWriter:
    """The writer of groups' conditions: one write at a time per group, only the newest state of each condition.

    Its state is by group uid. `submit` never blocks. Nothing here decides anything: a lost condition is written
    again after the group's next attempt.
    """

    client: Client
    clock: Clock
    _desired: dict[str, dict[str, Document]] = field(default_factory=dict)
    _sending: set[str] = field(default_factory=set)

    def submit(self, group: PodGroup, condition: SetCondition, traceparent: str, tasks: asyncio.TaskGroup) -> None:
        """Request a write of one condition, unless the group has it already; an unsent earlier one is dropped."""
        old = find_condition(group.status.conditions, condition.type)
        if not condition.changes(old):
            return
        uid, entry = group.metadata.uid, condition.entry(old, self.clock.wall())
        entry["lastTransitionTime"] = entry.pop("lastTransitionTime")  # comes last in a group's status
        self._desired.setdefault(uid, {})[condition.type] = entry
        if uid not in self._sending:
            self._sending.add(uid)
            tasks.create_task(self._send(group, traceparent))

    async def _send(self, group: PodGroup, traceparent: str) -> None:
        uid = group.metadata.uid
        try:
            while desired := self._desired.pop(uid, None):
                patch: Document = {"status": {"conditions": list(desired.values())}}
                try:
                    await self.client.patch_rv(
                        RESOURCE,
                        group.metadata.key,
                        patch,
                        subresource="status",
                        patch_type="strategic",
                        uid=uid,
                        traceparent=traceparent,
                    )
                except (ApiError, UnknownOutcome) as error:
                    log.info("podgroup.status_dropped", group=str(group.metadata.key), reason=str(error))
        finally:
            self._sending.discard(uid)


@dataclass
class GroupLoop:
    """Schedules groups. `bind` runs Permit and binds a placed member; `cycle` is None without groups."""

    seams: Seams
    core: Core
    clients: Clients
    recorder: SchedulerRecorder
    attempts: Attempts
    failures: FailureHandler
    evictions: Evictions
    bind: Callable[[Attempt, Assumption, ScheduleResult, asyncio.TaskGroup], Awaitable[None]]
    handle: Handle
    cycle: GroupCycle | None

    def __post_init__(self) -> None:
        self._units = Units(self.handle.groups, self.handle.cache, self.handle.world)
        self._writer = GroupStatusWriter(self.clients.client, self.seams.clock)
        self._profile = self.core.profiles.names[0]
        self._counts = Counts()
        self._attempt_seconds: dict[Outcome, Histogram] = defaultdict(partial(Histogram, ATTEMPT_BOUNDS))
        self._algorithm_seconds = Histogram(ATTEMPT_BOUNDS)
        self._victims = Histogram(COUNT_BOUNDS)
        self._disrupted = {kind: Histogram(COUNT_BOUNDS) for kind in ("pod", "podgroup")}

    async def schedule(self, entity: QueuedPod, now: float, group: asyncio.TaskGroup) -> None:
        """Run one group cycle and apply its result."""
        queue, cycle, info = self.core.queue, self.cycle, entity.info
        assert isinstance(queue, GroupedQueue)
        assert isinstance(info, GroupInfo)
        assert cycle is not None
        self._drop_needless(queue, info)
        if not info.members:
            queue.end_attempt(entity, now, has_placed=False)
            return
        cause = entity.traceparent
        span = self.seams.tracer.start(
            "schedule pod group",
            kind="consumer" if cause else "internal",
            parent=cause,
            links=(cause,) if cause else (),
            group=info.group.name,
            namespace=info.group.namespace,
            attempt=entity.attempts,
        )
        result = cycle.run(info, now)
        took_s = self.seams.clock.now() - now
        for placed in result.placed:
            queue.place(entity, placed.member)
        error = await self.evictions.carry_out(result.actions, span, group, self.record_disruption)
        if error:
            error = f"pod group preemption: {error}"
        for placed in result.placed:
            assert placed.assumption is not None, f"{placed.member.key} is to be bound but not assumed"
            attempt = self.attempts.begin(placed.member, now, parent=span.traceparent, took_s=took_s)
            await self.bind(attempt, placed.assumption, placed.result, group)
        for rejected in result.rejected:
            await self._put_back(rejected, result, error, now, took_s, span)
        queue.end_attempt(
            entity, now, rejectors=result.rejectors, pending=result.pending, has_placed=bool(result.placed)
        )
        self._write_status(info, result, span, group)
        self._count(result, took_s)
        span.end(result.message if result.outcome is Outcome.ERROR else "")

    def _drop_needless(self, queue: GroupedQueue, info: GroupInfo) -> None:
        """Drop the members that are being deleted or have a node already."""
        for member in list(info.members.values()):
            if member.info.metadata.deletion_timestamp is not None:
                text = f"skip schedule deleting pod: {member.key}"
                self.recorder.event(member.info, FAILED, text, is_warning=True)
                queue.on_bound(member)
            elif member.uid in self.core.cache.pods:
                queue.on_bound(member)

    async def _put_back(
        self, rejected: Rejected, result: GroupResult, error: str, now: float, took_s: float, span: Span
    ) -> None:
        is_rejected = rejected.status.code.is_rejected
        reason, outcome = (UNSCHEDULABLE, "unschedulable") if is_rejected else (SCHEDULER_ERROR, "error")
        message = error or rejected.status.message
        victims = tuple(str(v.key) for action in result.actions for v in action.victims)
        attempt = self.attempts.begin(rejected.member, now, parent=span.traceparent, took_s=took_s)
        self.attempts.keep(attempt, outcome, message=message, victims=victims, nominated_node=rejected.nominated)
        self.attempts.count(attempt, outcome)
        await self.failures.fail(
            attempt,
            reason,
            message,
            rejectors=rejected.rejectors,
            pending=rejected.pending,
            nominated=None if error else rejected.nominated,
        )

    def _write_status(self, info: GroupInfo, result: GroupResult, span: Span, tasks: asyncio.TaskGroup) -> None:
        """Write the group's condition, unless it says so already."""
        found: PodGroup | None = self.clients.others[PodGroup].lister.get(info.group)
        condition = result.condition(found) if found is not None else None
        if found is not None and condition is not None:
            self.clients.dispatcher.drop(found.metadata.uid)  # what PreEnqueue said is past
            self._writer.submit(found, condition, span.traceparent, tasks)

    def record_disruption(self, eviction: Eviction, span: Span, tasks: asyncio.TaskGroup) -> None:
        """Count the disrupted units, and mark the groups that are evicted as a whole."""
        if self.cycle is None:
            return
        preemptor = eviction.preemptor
        if eviction.pending:
            self._disrupted[preemptor.kind].observe(len(self._units.of(eviction.victims)))
        what = "pod group" if preemptor.is_group else "pod"
        text = f"{preemptor.pods[0].spec.scheduler_name}: preempting to accommodate a higher priority {what}"
        groups = {g.metadata.key: g for v in eviction.pending if (g := self._units.group_of(v)) is not None}
        for group in groups.values():
            if group.spec.is_disrupted_as_a_whole:
                condition = SetCondition(BY_SCHEDULER, text, DISRUPTION_TARGET, "True", group.metadata.generation)
                self._writer.submit(group, condition, span.traceparent, tasks)

    def _count(self, result: GroupResult, took_s: float) -> None:
        self._counts.add(ATTEMPTS, self._profile, result.outcome)
        self._algorithm_seconds.observe(took_s)
        self._attempt_seconds[result.outcome].observe(took_s)
        preemption = result.preemption
        if preemption is None:
            return
        outcome = "success" if preemption.status.is_success else "failure"
        self._counts.add(PREEMPTIONS, outcome)
        eviction: Eviction | None = preemption.eviction
        if eviction is not None:
            self._victims.observe(len(eviction.victims))
            self._counts.add(PDB_VIOLATIONS[0], "podgroup", by=preemption.violations)

    def metrics(self) -> Samples:
        """Return the metrics of groups under upstream's names (preemption 5)."""
        queue = self.core.queue
        return METRICS.of(self) | (queue.metrics() if isinstance(queue, GroupedQueue) else Samples())


METRICS: Final[Metrics[GroupLoop]] = Metrics(
    counter(ATTEMPTS, "Attempts to schedule a pod group.", lambda own: own._counts.of(ATTEMPTS), "profile", "result"),
    counter(PREEMPTIONS, "Attempts to preempt for a pod group.", lambda own: own._counts.of(PREEMPTIONS), "result"),
    counter(*PDB_VIOLATIONS, lambda own: own._counts.of(PDB_VIOLATIONS[0]), "preemptor"),
    histogram("scheduler_podgroup_scheduling_attempt_duration_seconds", "Time of an attempt.",
              lambda own: {(own._profile, outcome): each for outcome, each in own._attempt_seconds.items()},
              "profile", "result"),
    histogram("scheduler_podgroup_scheduling_algorithm_duration_seconds", "Time of a group's scheduling cycle.",
              lambda own: own._algorithm_seconds),
    histogram("scheduler_workload_preemption_victims", "Victims of a group's attempt.", lambda own: own._victims),
    histogram("scheduler_preemption_workload_disruptions", "Workloads disrupted at once.", lambda own: own._disrupted,
              "preemptor"),
)  # fmt: skip
