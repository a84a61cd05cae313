"""The scheduler's tasks: follow changes, schedule one pod after the other, bind many at once, renew the lease.

Everything here is wait, step, act; decisions are made in the modules this one calls.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import structlog

from scheduler import capability
from scheduler.cache.cache import Assumption
from scheduler.cache.node_info import PodInfo
from scheduler.config import SchedulerConfig
from scheduler.configuration.file import Configured
from scheduler.cycle.attempt import Attempt, Attempts
from scheduler.cycle.binder import Binder
from scheduler.cycle.clients import Clients
from scheduler.cycle.core import Core
from scheduler.cycle.failure_handler import FAILED, FailureHandler
from scheduler.cycle.gate_reports import GateReports
from scheduler.cycle.result import Result, ScheduleResult, Unschedulable
from scheduler.cycle.waiting_pods import WaitingPods
from scheduler.dispatcher.calls import SCHEDULER_ERROR, UNSCHEDULABLE, clear_nomination
from scheduler.dra.claim_releaser import ClaimReleaser, release_unbound
from scheduler.dra.metrics import METRICS as CLAIM_METRICS
from scheduler.entry import Handle
from scheduler.event_handlers import (
    UNCHANGED,
    ClearNomination,
    Crash,
    Effect,
    EventHandlers,
    HeldChanges,
    ResizeEnded,
    Unbound,
)
from scheduler.explain.explanation import Explainer
from scheduler.explain.record_rules import RecordRules
from scheduler.explain.record_writer import RecordWriter
from scheduler.extenders.extended_cycle import Extenders
from scheduler.framework.cycle_state import CycleError
from scheduler.framework.plugin import PODS_TO_ACTIVATE
from scheduler.framework.status import Code, Status
from scheduler.framework.world import world_event
from scheduler.leadership import Leadership, MissingNodes
from scheduler.pod_groups.cycle import GroupCycle
from scheduler.pod_groups.group_loop import GroupLoop
from scheduler.pod_groups.queue import GroupedQueue, GroupInfo
from scheduler.preemption.evictions import Evictions
from scheduler.queue.preenqueue_status import rules_of
from scheduler.queue.scheduling_queue import QueuedPod
from scheduler.recorder import SchedulerRecorder
from scheduler.resize.deferral import waits
from scheduler.resize.deferred_pods import DeferredPods
from scheduler.resize.resize_loop import ResizeLoop
from scheduler.switches import ReservationSwitches, SchedulerSwitches
from services.api.errors import AlreadyExists, ApiError, NotFound, UnknownOutcome
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourceslice import ResourceSlice
from services.api.meta import Key, View
from services.api.seams import Seams
from services.reconcile.controller import Change
from services.runtime.config import StartError
from services.telemetry.metrics import Samples

CYCLES_IN_A_ROW: Final = 16
"""Number of cycles before other tasks get a turn."""
JOIN_MAX_S: Final = 1.0
"""Seconds that a start waits at most for both informers to reach one version (K3).

A quiet kind gets there by bookmarks alone, and a pod on a node not seen yet does no harm.
"""
EXIT_UPSTREAM: Final = 1
NOMINATIONS_PERIOD_S: Final = 4.0
"""Seconds between two checks of nominations.

Twice this is less than the 10 s that a nomination to a missing node may last (K4).
"""
GAP_S: Final = 0.001
"""Seconds for which queue and cache disagree if one is to follow first.

An idle scheduler makes an attempt meanwhile.
"""
LEAST_PRIORITY: Final = -(2**31)
log = structlog.get_logger()


@dataclass(frozen=True)
class SchedulerCore(Core):
    """All pure machines: those that the loops share, and those that only one of them needs.

    `handlers` follow the watch. `group_cycle`: None while pods are scheduled one by one. `resizes`: follows
    deferred resizes; None while the scheduler leaves them to their nodes.
    """

    handlers: EventHandlers
    group_cycle: GroupCycle | None
    resizes: DeferredPods | None


class Scheduler:
    """The scheduler as a process: its informers, loops and endpoints."""

    def __init__(
        self,
        config: SchedulerConfig,
        seams: Seams,
        core: SchedulerCore,
        clients: Clients,
        handle: Handle,
        waiting: WaitingPods,
        configured: Configured,
        extenders: Extenders | None,
    ) -> None:
        self._config = config
        self._configured = configured
        self._seams = seams
        self._core = core
        self._clients = clients
        self._extenders = extenders
        self._switches = seams.switches.of(SchedulerSwitches)
        self._reservations = seams.switches.of(ReservationSwitches)
        self._wake = asyncio.Event()
        self._held_changes = HeldChanges()
        self._leadership = Leadership(clients.elector, clients.client, clients.recorder)
        self._recorder = SchedulerRecorder(clients.recorder, seams.events)
        handle.events.send = self._recorder.event
        rules = replace(rules_of(seams.switches), delay_s=configured.report_delay_s)
        find = partial(handle.world.get, PodGroup) if _queues_groups(core) else lambda key: None
        self._gate_reports = GateReports(rules, core.profiles, core.queue, clients.dispatcher, self._recorder, find)
        self._attempts = Attempts(seams, core.decisions, core.metrics)
        self._failures = FailureHandler(core.queue, clients, self._recorder)
        self._binder = Binder(
            seams,
            core,
            clients,
            self._recorder,
            self._failures,
            waiting,
            self._wake,
            extenders.binding_of if extenders is not None else lambda _: None,
        )
        resizes = core.resizes
        self._evictions = Evictions(
            seams,
            core.cache,
            core.queue,
            core.decisions,
            core.metrics,
            clients,
            self._recorder,
            handle.preempting,
            waiting,
            self._wake,
            waits,
            has_resize_labels=resizes is not None and resizes.rules.has_own_labels,
        )
        self._groups = GroupLoop(
            seams,
            core,
            clients,
            self._recorder,
            self._attempts,
            self._failures,
            self._evictions,
            self._permit_and_bind,
            handle,
            core.group_cycle,
        )
        self._resizes: ResizeLoop | None = None
        if resizes is not None:
            self._resizes = ResizeLoop(self._attempts, clients, self._recorder, self._evictions, resizes)
        self._claims = handle.claims
        self._releaser = ClaimReleaser(handle.claims, clients.client, core.cache.claim_users)
        self._record_writer = self._begin_record(handle) if self._switches.record == "annotations" else None
        self.explainer = self._make_explainer(handle)
        self._crash = ""
        self._ready = False
        self._follow_informers()

    def _make_explainer(self, handle: Handle) -> Explainer:
        """Return what answers why a pod is where it is, with the decision record where there is one."""
        pods, now = self._clients.pods.lister, self._seams.clock.now
        records = self._record_writer.records if self._record_writer is not None else None
        group_of = partial(handle.world.get, PodGroup)
        return Explainer(self._core, pods.get, now, records, pods.keys, handle.groups, group_of)

    def _follow_informers(self) -> None:
        """Have each change that an informer sees handled, one after another."""
        handle_change = self._held_changes.handle
        self._clients.nodes.on_change(partial(handle_change, self._on_node))
        self._clients.pods.on_change(partial(handle_change, self._on_pod))
        for view, informer in self._clients.others.items():
            informer.on_change(partial(handle_change, partial(self._on_other, view)))

    def _begin_record(self, handle: Handle) -> RecordWriter:
        """Return the writer of the decision record, connected to all that it records."""
        own = self._switches
        rules = RecordRules("" if own.record_skip == "empty" else None, own.records_all)
        writer = RecordWriter(self._core, self._clients.client, self._clients.pods.lister.get, rules)
        self._failures.on_failed = writer.on_failed
        handle.record.add = writer.add_custom_result
        if self._extenders is not None:
            self._extenders.on_answer = writer.add_extender_answer
        if self._core.group_cycle is not None:
            self._core.group_cycle.on_result = writer.note
        return writer

    @property
    def is_ready(self) -> bool:
        """Whether the informers are synced and pods are being scheduled, or would be if this replica led."""
        return self._ready

    def metrics(self) -> Samples:
        """Return counters, histograms and gauges under upstream's names."""
        core, clients = self._core, self._clients
        samples = core.metrics.samples(core.queue, core.cache, core.exclusions)
        samples |= clients.pods.metrics()
        samples |= clients.nodes.metrics()
        samples |= clients.recorder.metrics()
        samples |= self._leadership.metrics()
        samples |= self._evictions.metrics()
        samples |= core.profiles.metrics()
        samples |= CLAIM_METRICS.of(self._claims.metrics)
        if core.group_cycle is not None:
            samples |= self._groups.metrics()
        samples |= clients.dispatcher.metrics()
        if self._extenders is not None:
            samples |= self._extenders.metrics()
        return samples if self._resizes is None else self._resizes.beside(samples)

    def configz(self) -> dict[str, Any]:
        """Return the effective configuration, under upstream's name."""
        return {"kubescheduler.config.k8s.io": self._configured.document(self._core.profiles.lineups())}

    def rates(self) -> dict[str, float]:
        """Return the number of waiting pods by pool, for readers that ask each second."""
        return {f'scheduler_pending_pods{{queue="{pool.value}"}}': n for pool, n in self._core.queue.pools.items()}

    def http_routes(self) -> list[tuple[str, Any]]:
        """Return the routes of `keplab explain`."""
        return self.explainer.routes()

    async def run(self) -> None:
        """Follow changes from the beginning, and work once this replica leads, until cancelled.

        Raises: LeadershipLost; StartError with exit code 1 when unbinding is off and a pod changed its node, as
        upstream exits then.
        """
        try:
            await self._run()
        finally:
            if self._extenders is not None:
                await self._extenders.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._clients.nodes.run())
            # Nodes first: then hardly any pod names a node that is not known yet.
            await self._clients.nodes.wait_until_synced()
            for informer in self._clients.others.values():
                group.create_task(informer.run())
            group.create_task(self._clients.pods.run())
            for informer in (*self._clients.others.values(), self._clients.pods):
                await informer.wait_until_synced()
            await self._join()
            if self._switches.has_unbinding:
                for name in self._core.profiles.names:
                    group.create_task(self._advertise(name))
            self._ready = True
            await self._leadership.begin(group)
            if self._config.queue_moves or self._switches.has_queue_moves:
                self._record_moves()
            group.create_task(self._clients.recorder.run())
            group.create_task(self._clients.dispatcher.run())
            group.create_task(self._releaser.run())
            if self._reservations.release_period_s:
                claims = self._clients.others[ResourceClaim].lister.all
                group.create_task(self._releaser.free_unused(claims, self._reservations.release_period_s))
            if self._record_writer is not None:
                group.create_task(self._record_writer.run())
            group.create_task(self._clear_nominations())
            if self._resizes is not None:
                self._resizes.begin()
            await self._schedule_loop(group)

    def _record_moves(self) -> None:
        """Write where each pod stands in the queue, and from now on when it moves; a standby's queue says nothing."""
        queue, recorder = self._core.queue, self._recorder
        for queued in queue.all():
            recorder.move(queued, queued.pool)
        queue.on_move = recorder.move

    async def _clear_nominations(self) -> None:
        """Clear nominations to nodes that do not exist, again and again until that is written."""
        nominator, missing = self._core.queue.nominator, MissingNodes()
        while True:
            for node in missing.look(nominator.nodes(), self._core.cache.columns.slots):
                orphans = nominator.at_least(node, LEAST_PRIORITY)
                self._perform([ClearNomination(pod) for pod in orphans], self._seams.clock.now(), "")
            await asyncio.sleep(NOMINATIONS_PERIOD_S)

    async def _join(self) -> None:
        reached = max(self._clients.nodes.last_rv, self._clients.pods.last_rv)
        try:
            async with asyncio.timeout(JOIN_MAX_S):
                await self._clients.nodes.wait_until_rv(reached)
        except TimeoutError:
            log.info("cache.join_skipped", resource_version=reached, nodes_at=self._clients.nodes.last_rv)

    def _on_pod(self, change: Change[Pod]) -> None:
        now = self._seams.clock.now()
        effects = self._core.handlers.on_pod(change.old, change.new, now, change.traceparent)
        if change.new is None:
            self._binder.waiting.reject(change.object.metadata.uid, "", "the pod is gone")
        if change.new is None or change.new.spec.node_name:
            if change.new is None or not waits(change.new):
                self._clients.dispatcher.drop(change.object.metadata.uid)
            if change.new is not None and self._leadership.is_leading:
                self._gate_reports.on_bound(change.new)
            if (
                self._record_writer is not None
                and change.new is not None
                and not (change.old and change.old.spec.node_name)
            ):
                self._record_writer.on_bound(change.new.metadata.key, change.new.metadata.uid)
        else:
            self._clients.dispatcher.sync(change.new)
        if effects:
            self._perform(effects, now, change.traceparent)
        if effects is not UNCHANGED:
            self._wake.set()
        if self._core.handlers.is_behind:
            asyncio.get_running_loop().call_later(GAP_S, self._catch_up, now, change.traceparent)

    def _catch_up(self, now: float, traceparent: str) -> None:
        self._perform(self._core.handlers.catch_up(), now, traceparent)
        self._wake.set()

    def _on_node(self, change: Change[Node]) -> None:
        now = self._seams.clock.now()
        self._perform(self._core.handlers.on_node(change.old, change.new, now), now, change.traceparent)
        self._wake.set()

    def _on_other(self, view: type[View], change: Change[Any]) -> None:
        event, now = world_event(view, change.old, change.new), self._seams.clock.now()
        if view is PodGroup:
            self._gate_reports.on_group(change)
        if self._core.queue.move_all(event, change.old, change.new, now):
            self._wake.set()
        if isinstance(change.object, ResourceSlice) and change.object.spec.node_name:
            self._core.handlers.devices_changed(change.object.spec.node_name, now)
            self._wake.set()

    def _perform(self, effects: Iterable[Effect], now: float, traceparent: str) -> None:
        for effect in effects:
            match effect:
                case Crash():
                    self._crash = self._crash or effect.message
                case _ if not self._leadership.is_leading:
                    continue  # the leader saw the same and acts on it
                case Unbound():
                    self._clients.dispatcher.drop(effect.pod.uid)
                    if self._switches.claim_release == "scheduler" and effect.pod.spec.resource_claims:
                        release_unbound(effect.pod.pod, self._claims, self._clients.others[ResourceClaim].lister.get)
                    self._core.metrics.unbound(effect.pod.uid, effect.node_name, effect.reason, now)
                    self._recorder.event(
                        effect.pod,
                        "Unbound",
                        f"Unbound from {effect.node_name} ({effect.reason}), attempt {effect.attempt} of "
                        f"{self._switches.unbinds_max}, next try in {effect.delay_s:.0f}s",
                        action="Unbinding",
                        traceparent=traceparent,
                    )
                    log.info(
                        "pod.unbound",
                        pod=str(effect.pod.key),
                        node=effect.node_name,
                        reason=effect.reason,
                        attempt=effect.attempt,
                        requeue_after_s=round(effect.delay_s, 3),
                    )
                case ResizeEnded() if self._resizes is not None:
                    self._resizes.on_ended(effect.pod, traceparent)
                case ClearNomination():
                    self._clients.dispatcher.later(clear_nomination(effect.pod.pod, traceparent))

    async def _schedule_loop(self, group: asyncio.TaskGroup) -> None:
        """Schedule one pod after the other, until cancelled."""
        core, clock = self._core, self._seams.clock
        in_a_row = 0
        while True:
            if self._crash:
                raise StartError(self._crash, EXIT_UPSTREAM)
            now = clock.now()
            core.queue.flush(now)
            if core.resizes is not None:
                core.resizes.flush(now)
            expiry = core.exclusions.next_expiry()
            if expiry is not None and expiry <= now:
                core.handlers.expire_exclusions(now)
            queued = core.queue.pop(now) if self._binder.in_flight < self._config.binds_in_flight_max else None
            if queued is None:
                in_a_row = 0
                await self._sleep(now)
                continue
            await self._schedule_one(queued, now, group)
            self._held_changes.release()
            in_a_row += 1
            if in_a_row >= CYCLES_IN_A_ROW:
                in_a_row = 0
                await asyncio.sleep(0)

    async def _sleep(self, now: float) -> None:
        """Return when something happened or is due."""
        self._wake.clear()
        core = self._core
        clock = core.resizes.next_deadline() if core.resizes is not None else None
        due = [d for d in (core.queue.next_deadline(now), core.exclusions.next_expiry(), clock) if d is not None]
        try:
            async with asyncio.timeout(max(min(due) - now, 0.0) if due else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _schedule_one(self, queued: QueuedPod, now: float, group: asyncio.TaskGroup) -> None:
        """Run one scheduling cycle; on success the binding cycle goes its own way.

        It waits for nothing, unless extenders are to be asked, or evictions or status patches are to be made and are
        not asynchronous.
        """
        core, info = self._core, queued.info
        if isinstance(info, GroupInfo):
            await self._groups.schedule(queued, now, group)
            return
        if info.metadata.deletion_timestamp is not None:
            core.queue.on_bound(queued)
            self._recorder.event(info, FAILED, f"skip schedule deleting pod: {info.key}", is_warning=True)
            return
        if info.spec.node_name:
            assert self._resizes is not None, f"{info.key} has a node and is queued, although no resize is followed"
            await self._resizes.schedule(queued, now, group)
            return
        if info.uid in core.cache.pods:
            core.queue.on_bound(queued)
            return
        attempt = self._attempts.begin(queued, now)
        core.profiles.attempt()
        result = await self._choose(info, now, attempt.span.traceparent)
        self._attempts.on_decided(attempt)
        if self._record_writer is not None:
            self._record_writer.note(info, core.profiles.of(info), result, now)
        match result:
            case ScheduleResult():
                await self._assume(attempt, result, group)
            case Unschedulable():
                self._attempts.count(attempt, "unschedulable")
                await self._no_node(attempt, result, group)
            case CycleError():
                reason = UNSCHEDULABLE if result.is_rejection else SCHEDULER_ERROR
                outcome = "unschedulable" if result.is_rejection else "error"
                self._attempts.keep(attempt, outcome, message=result.message)
                self._attempts.count(attempt, outcome)
                # Without any node no plugin rejected the pod: it is tried again by the clock.
                await self._failures.fail(attempt, reason, result.message)

    async def _choose(self, info: PodInfo, now: float, traceparent: str) -> Result:
        """Return what the pod's cycle decides; where extenders have a say, changes wait until it is acted upon."""
        profile, extenders = self._core.profiles.of(info), self._extenders
        if extenders is None or not extenders.are_interested(info):
            return profile.cycle.schedule(info, now)
        self._held_changes.hold()
        try:
            return await extenders.schedule(profile, info, now, traceparent)
        except Exception as error:
            return profile.cycle.cycle_error(error)

    async def _no_node(self, attempt: Attempt, result: Unschedulable, group: asyncio.TaskGroup) -> None:
        """Evict whom PostFilter chose, and put the pod back."""
        diagnosis, post = result.diagnosis, result.post_filter
        nominated, actions = (post.nominated_node, post.actions) if post is not None else ("", ())
        error = await self._evictions.carry_out(actions, attempt.span, group, self._groups.record_disruption)
        if error:
            diagnosis.post_filter_message, nominated = f"preemption: {error}", None
        self._attempts.keep(
            attempt,
            "unschedulable",
            message=result.diagnosis.message,
            evaluated=diagnosis.node_count,
            rejected=diagnosis.rejected,
            nominated_node=nominated or "",
            victims=tuple(str(victim.key) for eviction in actions for victim in eviction.victims),
        )
        await self._failures.fail(
            attempt,
            UNSCHEDULABLE,
            result.diagnosis.message,
            rejectors=diagnosis.rejectors,
            pending=diagnosis.pending,
            nominated=nominated,
        )

    async def _assume(self, attempt: Attempt, result: ScheduleResult, group: asyncio.TaskGroup) -> None:
        """Charge the pod to its node and reserve; then go on as far as Permit lets it."""
        core, info, node = self._core, attempt.queued.info, result.node_name
        assumption = core.cache.assume(info, node, result.state)
        core.queue.nominator.remove(info.uid)
        status = core.profiles.runner_of(info).reserve(result.state, info, node)
        if status.is_success:
            await self._permit_and_bind(attempt, assumption, result, group)
            return
        # The runner has undone the reservations already.
        core.cache.forget(info.uid)
        await self._reject(attempt, status)

    async def _permit_and_bind(
        self, attempt: Attempt, assumption: Assumption, result: ScheduleResult, group: asyncio.TaskGroup
    ) -> None:
        """Run Permit for a pod that is assumed and reserved, and start its binding cycle."""
        core, queued, span, node = self._core, attempt.queued, attempt.span, result.node_name
        info = queued.info
        runner = core.profiles.runner_of(info)
        status, waits = runner.permit(result.state, info, node)
        if not status.is_success and status.code is not Code.WAIT:
            runner.unreserve(result.state, info, node)
            core.cache.forget(info.uid)
            await self._reject(attempt, status)
            return
        core.queue.activate(result.state.data.pop(PODS_TO_ACTIVATE, ()), attempt.now)
        if waits and self._record_writer is not None:
            self._record_writer.waits(info)
        if queued.is_rescued:
            data = {"moved_by": queued.moved_by, "plugins": list(queued.rescued_from)}
            self._recorder.line("sched.flush_rescue", info, node, span, data)
        self._recorder.line(
            "sched.attempt",
            info,
            node,
            span,
            {
                "outcome": "scheduled",
                "attempt": queued.attempts,
                "feasible": result.feasible,
                "evaluated": result.evaluated,
                "unbind_count": info.unbind_count,
            },
        )
        self._recorder.line("sched.assume", info, node, span, {"unbind_count": info.unbind_count})
        self._attempts.keep(
            attempt,
            "scheduled",
            node=node,
            feasible_count=result.feasible,
            evaluated=result.evaluated,
            ranking=result.ranking,
        )
        self._attempts.count(attempt, "scheduled")
        self._binder.start(queued, assumption, waits, span, group)

    async def _reject(self, attempt: Attempt, status: Status) -> None:
        """Handle a rejection by Reserve or Permit, or an error there."""
        is_rejected = status.code.is_rejected
        self._attempts.count(attempt, "unschedulable" if is_rejected else "error")
        message = f"0/1 nodes are available: 1 {status.message}." if is_rejected else status.message
        await self._failures.fail_with(attempt, status, message)

    async def _advertise(self, name: str) -> None:
        """Keep the lease that says we can take unbound pods back (kubelet-unbinding 4.6)."""
        key, holder = Key(capability.NAMESPACE, name), self._seams.component
        while True:
            wall = self._seams.clock.wall()
            try:
                try:
                    await self._clients.client.patch_rv(capability.RESOURCE, key, capability.renewal(holder, wall))
                except NotFound:
                    await self._clients.client.create(capability.RESOURCE, capability.new_lease(name, holder, wall))
            except AlreadyExists:
                continue
            except (ApiError, UnknownOutcome) as error:
                log.warning("lease.failed", lease=str(key), reason=str(error))
            await asyncio.sleep(capability.RENEW_S)


def _queues_groups(core: Core) -> bool:
    """Whether the members of a group wait as one, so that one word is true of all of them."""
    return isinstance(core.queue, GroupedQueue) and not core.queue.is_one_by_one
