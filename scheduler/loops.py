"""The scheduler's tasks: hear changes, schedule one pod after the other, bind many at once, renew the lease.

Everything here is wait, step, act; what is decided is decided in the modules this one calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import structlog

from scheduler import capability
from scheduler.binding_cycle import BindResult, Outcome, read_back, refused
from scheduler.cache import Assumption, Cache
from scheduler.conditions import NOTE_MAX, SCHEDULER_ERROR, UNSCHEDULABLE, failure_patch
from scheduler.config import SchedulerConfig
from scheduler.decisions import Decision, Decisions
from scheduler.event_handlers import ClearNomination, Crash, Effect, EventHandlers, Unbound
from scheduler.exclusions import Exclusions
from scheduler.framework.diagnosis import CycleError
from scheduler.framework.events import ASSIGNED_POD_DELETE
from scheduler.framework.interface import BindCall, Code, Status
from scheduler.framework.runner import Runner
from scheduler.metrics import Metrics
from scheduler.node_info import PodInfo
from scheduler.queue import QueuedPod, SchedulingQueue
from scheduler.scheduling_cycle import ScheduleResult, SchedulingCycle, Unschedulable
from scheduler.status_writer import StatusWriter
from scheduler.waiting import WaitingPods
from services.api.errors import AlreadyExists, ApiError, NotFound, UnknownOutcome
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import Document, Key
from services.api.seams import Seams, Span
from services.client.client import Backoff, Client
from services.client.informer import Informer
from services.client.recorder import Recorder
from services.reconcile.controller import Change
from services.runtime.config import StartError

CYCLES_IN_A_ROW: Final = 16
"""Cycles before other tasks get a turn."""
JOIN_MAX_S: Final = 1.0
"""How long a start waits for both informers to stand at one version (K3); a quiet kind gets there by
bookmarks alone, and a pod on a node not heard of yet does no harm."""
EXIT_UPSTREAM: Final = 1
BINDING: Final = "scheduler_binding"
log = structlog.get_logger()


@dataclass(frozen=True)
class Hearts:
    """The pure machines, made by wiring."""

    cache: Cache
    queue: SchedulingQueue
    exclusions: Exclusions
    runner: Runner
    cycle: SchedulingCycle
    handlers: EventHandlers
    decisions: Decisions
    metrics: Metrics


@dataclass(frozen=True)
class Wires:
    """What reaches the API server, made by wiring."""

    client: Client
    pods: Informer[Pod]
    nodes: Informer[Node]
    recorder: Recorder
    status_writer: StatusWriter


class _HttpRequest(Protocol):
    @property
    def params(self) -> dict[str, str]: ...


class Scheduler:
    """The room."""

    def __init__(self, config: SchedulerConfig, seams: Seams, hearts: Hearts, wires: Wires) -> None:
        self._config = config
        self._seams = seams
        self._hearts = hearts
        self._wires = wires
        self._unbinding = seams.switches.flag("PodUnbinding")
        self._attempts_max = seams.switches.integer("unbind.max_attempts")
        self._wake = asyncio.Event()
        self._binding = 0
        self._crash = ""
        self._ready = False
        self._group: asyncio.TaskGroup | None = None
        self.waiting = WaitingPods()
        wires.nodes.on_change(self._on_node)
        wires.pods.on_change(self._on_pod)

    # -- the door ----------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether both informers are synced and pods are being scheduled."""
        return self._ready

    def metrics(self) -> dict[str, float]:
        """Return counters, histograms and gauges under upstream's names."""
        hearts, wires = self._hearts, self._wires
        found = dict(hearts.metrics.samples(hearts.queue, hearts.cache, hearts.exclusions))
        found.update(wires.pods.metrics())
        found.update(wires.nodes.metrics())
        found.update(wires.recorder.metrics())
        found["scheduler_status_patches_total"] = wires.status_writer.written_total
        return found

    def explain(self, key: Key) -> dict[str, Any] | None:
        """Return the pod's last decision and where it waits, or None for a pod never tried."""
        decision = self._hearts.decisions.of(key)
        queued = self._hearts.queue.get(key)
        if decision is None and queued is None:
            return None
        found: dict[str, Any] = {"pod": str(key), "pool": "", "wakes_on": [], "excluded": {}}
        if decision is not None:
            found |= decision.document()
            found["excluded"] = dict(self._hearts.exclusions.of(decision.uid))
        if queued is not None:
            found["pool"] = queued.pool.value
            found["wakes_on"] = self._hearts.queue.wakes_on(queued)
        return found

    def http_routes(self) -> list[tuple[str, Any]]:
        """Serve `/explain/<namespace>/<pod>`: the last decision as JSON."""

        def explain(request: _HttpRequest) -> tuple[int, str, bytes]:
            key = Key(request.params["namespace"], request.params["name"])
            found = self.explain(key)
            if found is None:
                return 404, "text/plain", f"pod {key} was never seen waiting for a node\n".encode()
            return 200, "application/json", msgspec.json.encode(found)

        return [("/explain/{namespace}/{name}", explain)]

    async def run(self) -> None:
        """Work until cancelled.

        Raises: StartError with exit code 1 when unbinding is off and a pod changed its node, as upstream
        exits then.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._wires.recorder.run())
            group.create_task(self._wires.status_writer.run())
            group.create_task(self._wires.nodes.run())
            # Nodes first: then hardly any pod names a node that is not known yet.
            await self._wires.nodes.wait_until_synced()
            group.create_task(self._wires.pods.run())
            await self._wires.pods.wait_until_synced()
            await self._join()
            if self._unbinding:
                group.create_task(self._advertise())
            self._ready = True
            await self._schedule_loop(group)

    async def _join(self) -> None:
        reached = max(self._wires.nodes.last_rv, self._wires.pods.last_rv)
        try:
            async with asyncio.timeout(JOIN_MAX_S):
                await self._wires.nodes.wait_until_rv(reached)
        except TimeoutError:
            log.info("cache.join_skipped", resource_version=reached, nodes_at=self._wires.nodes.last_rv)

    # -- hearing -----------------------------------------------------------------------------------------

    def _on_pod(self, change: Change[Pod]) -> None:
        now = self._seams.clock.now()
        effects = self._hearts.handlers.on_pod(change.old, change.new, now, change.traceparent)
        if change.new is None or change.new.spec.node_name:
            self._wires.status_writer.drop(change.object.metadata.uid)
        self._perform(effects, now, change.traceparent)
        self._wake.set()

    def _on_node(self, change: Change[Node]) -> None:
        now = self._seams.clock.now()
        self._perform(self._hearts.handlers.on_node(change.old, change.new, now), now, change.traceparent)
        self._wake.set()

    def _perform(self, effects: Iterable[Effect], now: float, traceparent: str) -> None:
        for effect in effects:
            match effect:
                case Crash():
                    self._crash = self._crash or effect.message
                case Unbound():
                    self._wires.status_writer.drop(effect.pod.uid)
                    self._hearts.metrics.unbound(effect.pod.uid, effect.node_name, effect.reason, now)
                    self._tell(
                        effect.pod,
                        "Unbound",
                        f"Unbound from {effect.node_name} ({effect.reason}), attempt {effect.attempt} of "
                        f"{self._attempts_max}, next try in {effect.delay_s:.0f}s",
                        traceparent=traceparent,
                    )
                    log.info("pod.unbound", pod=str(effect.pod.key), node=effect.node_name, reason=effect.reason,
                             attempt=effect.attempt, requeue_after_s=round(effect.delay_s, 3))  # fmt: skip
                case ClearNomination():
                    self._write_status(effect.pod, {"status": {"nominatedNodeName": None}}, traceparent)

    # -- scheduling ----------------------------------------------------------------------------------------

    async def _schedule_loop(self, group: asyncio.TaskGroup) -> None:
        """Schedule one pod after the other, until cancelled."""
        hearts, clock = self._hearts, self._seams.clock
        in_a_row = 0
        while True:
            if self._crash:
                raise StartError(self._crash, EXIT_UPSTREAM)
            now = clock.now()
            hearts.queue.flush(now)
            expiry = hearts.exclusions.next_expiry()
            if expiry is not None and expiry <= now:
                hearts.handlers.expire_exclusions(now)
            queued = hearts.queue.pop(now) if self._binding < self._config.binds_in_flight_max else None
            if queued is None:
                in_a_row = 0
                await self._sleep(now)
                continue
            self._schedule_one(queued, now, group)
            in_a_row += 1
            if in_a_row >= CYCLES_IN_A_ROW:
                in_a_row = 0
                await asyncio.sleep(0)

    async def _sleep(self, now: float) -> None:
        """Return when something happened or is due."""
        self._wake.clear()
        due = [
            d for d in (self._hearts.queue.next_deadline(now), self._hearts.exclusions.next_expiry()) if d is not None
        ]
        try:
            async with asyncio.timeout(max(min(due) - now, 0.0) if due else None):
                await self._wake.wait()
        except TimeoutError:
            return

    def _schedule_one(self, queued: QueuedPod, now: float, group: asyncio.TaskGroup) -> None:
        """Run one scheduling cycle; on success the binding cycle goes its own way."""
        hearts, info = self._hearts, queued.info
        if info.metadata.deletion_timestamp is not None:
            hearts.queue.bound(queued)
            self._tell(info, "FailedScheduling", f"skip schedule deleting pod: {info.key}", is_warning=True)
            return
        if info.uid in hearts.cache.pods:
            hearts.queue.bound(queued)
            return
        cause = queued.traceparent
        span = self._seams.tracer.start(
            "schedule pod",
            parent=cause,
            links=(cause,) if cause else (),
            pod=info.key.name,
            namespace=info.key.namespace,
            uid=info.uid,
            attempt=queued.attempts,
        )
        result = hearts.cycle.schedule(info, now)
        took_s = self._seams.clock.now() - now
        match result:
            case ScheduleResult():
                self._assume(queued, result, now, took_s, span, group)
            case Unschedulable():
                diagnosis = result.error.diagnosis
                post = result.post_filter
                nominated = post.nominated_node if post is not None else ""
                hearts.decisions.keep(
                    info.key,
                    Decision(info.uid, queued.attempts, now, "unschedulable", message=result.error.message,
                             evaluated=diagnosis.node_count, rejected=diagnosis.rejected,
                             nominated_node=nominated or ""),
                )  # fmt: skip
                hearts.metrics.attempted("unschedulable", took_s)
                self._fail(queued, UNSCHEDULABLE, result.error.message, now, span, rejectors=diagnosis.rejectors,
                           pending=diagnosis.pending, nominated=nominated)  # fmt: skip
            case CycleError():
                reason = UNSCHEDULABLE if result.is_rejection else SCHEDULER_ERROR
                outcome = "unschedulable" if result.is_rejection else "error"
                hearts.decisions.keep(
                    info.key, Decision(info.uid, queued.attempts, now, outcome, message=result.message)
                )
                hearts.metrics.attempted(outcome, took_s)
                # Without any node nobody rejected the pod, and upstream would retry by the clock; blaming the
                # fit has the first node that is big enough wake it.
                rejectors = ("NodeResourcesFit",) if result.is_rejection else ()
                self._fail(queued, reason, result.message, now, span, rejectors=rejectors)

    def _assume(self, queued: QueuedPod, result: ScheduleResult, now: float, took_s: float, span: Span,
                group: asyncio.TaskGroup) -> None:  # fmt: skip
        """Charge the pod to its node, reserve, ask for permission, and start the binding cycle."""
        hearts, info, node = self._hearts, queued.info, result.node_name
        assumption = hearts.cache.assume(info, node, result.state)
        hearts.queue.nominator.remove(info.uid)
        status = hearts.runner.reserve(result.state, info, node)
        waits: dict[str, float] = {}
        if status.is_success:
            status, waits = hearts.runner.permit(result.state, info, node)
        if not status.is_success and status.code is not Code.WAIT:
            hearts.runner.unreserve(result.state, info, node)
            hearts.cache.forget(info.uid)
            self._reject(queued, status, now, span, took_s)
            return
        if queued.is_rescued:
            self._log_pod("sched.flush_rescue", info, node, span, {"moved_by": queued.moved_by})
        self._log_pod("sched.attempt", info, node, span, {
            "outcome": "scheduled", "attempt": queued.attempts, "feasible": result.feasible,
            "evaluated": result.evaluated, "unbind_count": info.unbind_count,
        })  # fmt: skip
        self._log_pod("sched.assume", info, node, span, {"unbind_count": info.unbind_count})
        hearts.decisions.keep(
            info.key,
            Decision(info.uid, queued.attempts, now, "scheduled", node=node, feasible_count=result.feasible,
                     evaluated=result.evaluated, ranking=result.ranking),
        )  # fmt: skip
        hearts.metrics.attempted("scheduled", took_s)
        self._binding += 1
        hearts.metrics.binding = self._binding
        group.create_task(self._binding_cycle(queued, assumption, waits, span))

    def _reject(self, queued: QueuedPod, status: Status, now: float, span: Span, took_s: float) -> None:
        """Handle a no from Reserve or Permit: an ordinary rejection, or an error."""
        is_rejected = status.code.is_rejected
        self._hearts.metrics.attempted("unschedulable" if is_rejected else "error", took_s)
        message = f"0/1 nodes are available: 1 {status.message}." if is_rejected else status.message
        self._fail(queued, UNSCHEDULABLE if is_rejected else SCHEDULER_ERROR, message, now, span,
                   rejectors=(status.plugin,) if is_rejected else ())  # fmt: skip

    # -- binding -------------------------------------------------------------------------------------------

    async def _binding_cycle(self, queued: QueuedPod, assumption: Assumption, waits: dict[str, float],
                             schedule_span: Span) -> None:  # fmt: skip
        """Make one choice true, or take it back."""
        info, node = assumption.pod, assumption.node_name
        began = self._seams.clock.now()
        span = self._seams.tracer.start("bind pod", parent=schedule_span.traceparent, pod=info.key.name,
                                        namespace=info.key.namespace, uid=info.uid, node=node)  # fmt: skip
        schedule_span.end()
        try:
            status = await self._prepare(assumption, waits, span)
            self._hearts.queue.done(info.uid)
            if not status.is_success:
                self._undo(queued, assumption, status.message, status, span)
                return
            answer = self._hearts.runner.bind(assumption.state, info, node)
            if not isinstance(answer, BindCall):
                self._undo(queued, assumption, answer.message, answer, span)
                return
            await self._wires.status_writer.settle(info.uid)
            result = await self._bind(assumption, answer, span)
            now = self._seams.clock.now()
            self._hearts.metrics.bind_seconds.observe(now - began)
            if result.outcome is Outcome.OK:
                self._bound(queued, assumption, now, span)
            else:
                self._undo(queued, assumption, result.message, Status(Code.ERROR, (result.message,)), span)
        finally:
            self._binding -= 1
            self._hearts.metrics.binding = self._binding
            self._wake.set()

    async def _prepare(self, assumption: Assumption, waits: dict[str, float], span: Span) -> Status:
        """Wait for permission and do the PreBind work; while that takes long, say where the pod goes (KEP-5278)."""
        info, node, runner = assumption.pod, assumption.node_name, self._hearts.runner
        has_work = runner.has_pre_bind_work(assumption.state, info, node)
        if waits or has_work:
            patch: Document = {"status": {"nominatedNodeName": node}}
            try:
                await self._wires.client.patch_rv("pods", info.key, patch, subresource="status", uid=info.uid,
                                                  traceparent=span.traceparent)  # fmt: skip
            except (ApiError, UnknownOutcome) as error:
                return Status(Code.ERROR, (f"cannot write nominatedNodeName: {error}",))
        if waits:
            began = self._seams.clock.now()
            status = await self.waiting.wait(info, waits)
            self._hearts.metrics.permit_wait_seconds.observe(self._seams.clock.now() - began)
            if not status.is_success:
                return status
        if not has_work:
            return Status()
        return await runner.pre_bind(assumption.state, info, node, self._wires.client)

    async def _bind(self, assumption: Assumption, call: BindCall, span: Span) -> BindResult:
        """Send the Binding and return what became of it, however long that takes (K2: never by a timer)."""
        info = assumption.pod
        self._log_pod("sched.bind_call", info, call.node_name, span, {"unbind_count": info.unbind_count})
        try:
            rv = await self._wires.client.bind(
                info.key,
                info.uid,
                call.node_name,
                expected_unbind_count=call.expected_unbind_count,
                traceparent=span.traceparent,
            )
            result = BindResult(Outcome.OK, rv=rv)
        except ApiError as error:
            result = refused(error)
        except UnknownOutcome as error:
            unknown = {"outcome": Outcome.UNKNOWN.value, "unbind_count": info.unbind_count, "message": str(error)}
            self._log_pod("sched.bind_result", info, call.node_name, span, unknown)
            result = await self._resolve(assumption, call.node_name)
        data = {"outcome": result.outcome.value, "resolved_how": result.resolved_how,
                "unbind_count": info.unbind_count}  # fmt: skip
        if result.message:
            data["message"] = result.message
        self._log_pod("sched.bind_result", info, call.node_name, span, data, rv=result.rv)
        return result

    async def _resolve(self, assumption: Assumption, node: str) -> BindResult:
        """Return what became of a bind nobody answered: the watch tells, or a read that we repeat."""
        backoff = Backoff(self._seams.random)
        while True:
            if assumption.is_confirmed:
                return BindResult(Outcome.OK, "watch")
            if assumption.is_obsolete:
                return BindResult(Outcome.CONFLICT, "watch", "the pod was bound and given back, or is gone")
            try:
                live: Document | None = await self._wires.client.get("pods", assumption.pod.key)
            except NotFound:
                live = None
            except (ApiError, UnknownOutcome) as error:
                log.warning("bind.unresolved", pod=str(assumption.pod.key), node=node, reason=str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            return read_back(assumption.pod, node, live)

    def _bound(self, queued: QueuedPod, assumption: Assumption, now: float, span: Span) -> None:
        info, node = assumption.pod, assumption.node_name
        began = queued.initial_attempt if queued.initial_attempt is not None else now
        self._hearts.metrics.bound(info.uid, node, queued.attempts, now - began, now)
        self._tell(info, "Scheduled", f"Successfully assigned {info.key} to {node}", traceparent=span.traceparent)
        # The event log has it anyway; at thousands of pods a second a log line each is what costs most.
        log.debug("pod.bound", pod=str(info.key), node=node, attempt=queued.attempts, trace_id=span.trace_id)
        if not assumption.is_obsolete:
            self._hearts.runner.post_bind(assumption.state, info, node)
            self._hearts.queue.bound(queued)
        span.end()

    def _undo(self, queued: QueuedPod, assumption: Assumption, message: str, status: Status, span: Span) -> None:
        """Give up a choice that could not be made true; its room may help others."""
        hearts, info, node = self._hearts, assumption.pod, assumption.node_name
        if assumption.is_obsolete or assumption.is_confirmed:
            span.end(message)
            return
        now = self._seams.clock.now()
        hearts.runner.unreserve(assumption.state, info, node)
        hearts.cache.forget(info.uid)
        freed = msgspec.structs.replace(info.pod, spec=msgspec.structs.replace(info.spec, node_name=node))
        hearts.queue.move_all(ASSIGNED_POD_DELETE, freed, None, now)
        is_rejected = status.code.is_rejected
        hearts.metrics.count(
            "scheduler_binding_failures_total" + ('{reason="rejected"}' if is_rejected else '{reason="error"}')
        )
        self._fail(queued, UNSCHEDULABLE if is_rejected else SCHEDULER_ERROR, message, now, span,
                   rejectors=(status.plugin,) if is_rejected else ())  # fmt: skip

    # -- failing -------------------------------------------------------------------------------------------

    def _fail(self, queued: QueuedPod, reason: str, message: str, now: float, span: Span, *,
              rejectors: Iterable[str] = (), pending: Iterable[str] = (),
              nominated: str | None = "") -> None:  # fmt: skip
        """Handle a failed attempt (4.1): requeue, and tell the pod why."""
        hearts, info = self._hearts, queued.info
        self._log_pod("sched.attempt", info, "", span, {
            "outcome": "unschedulable" if reason == UNSCHEDULABLE else "error", "attempt": queued.attempts,
            "message": message, "plugins": sorted(rejectors),
        })  # fmt: skip
        live = self._wires.pods.lister.get(info.key)
        if live is None or live.metadata.uid != info.uid or live.spec.node_name:
            # Gone, another pod of that name, or bound by somebody else: not ours to try again.
            hearts.queue.done(info.uid)
            if hearts.queue.get(info.key) is queued:
                hearts.queue.bound(queued)
            span.end(message)
            return
        hearts.queue.add_unschedulable(queued, now, rejectors=rejectors, pending=pending)
        if nominated is not None:
            hearts.queue.nominator.set(info, nominated)
        self._tell(info, "FailedScheduling", message[:NOTE_MAX], is_warning=True, traceparent=span.traceparent)
        patch = failure_patch(live, reason, message, nominated, self._seams.clock.wall())
        if patch is not None:
            self._write_status(info, patch, span.traceparent)
        span.end(message if reason == SCHEDULER_ERROR else "")

    # -- telling -------------------------------------------------------------------------------------------

    def _write_status(self, info: PodInfo, patch: Document, traceparent: str) -> None:
        self._wires.status_writer.submit(info.key, info.uid, patch, traceparent=traceparent)

    def _tell(self, info: PodInfo, reason: str, message: str, *, is_warning: bool = False,
              traceparent: str = "") -> None:  # fmt: skip
        self._wires.recorder.event(
            kind="Pod",
            api_version="v1",
            key=info.key,
            uid=info.uid,
            reason=reason,
            message=message,
            type="Warning" if is_warning else "Normal",
            traceparent=traceparent,
        )

    def _log_pod(self, ev: str, info: PodInfo, node: str, span: Span, data: dict[str, Any],
                 rv: int | None = None) -> None:  # fmt: skip
        self._seams.events.write(
            ev,
            obj=("Pod", info.key.namespace, info.key.name, info.uid),
            rv_seen=info.metadata.rv,
            rv=rv,
            node=node,
            trace_id=span.trace_id,
            data=data,
        )

    # -- the capability lease --------------------------------------------------------------------------------

    async def _advertise(self) -> None:
        """Keep the lease that says we can take unbound pods back (kubelet-unbinding 4.6)."""
        name, holder = self._config.scheduler_name, self._seams.component
        key = capability.lease_key(name)
        while True:
            wall = self._seams.clock.wall()
            try:
                try:
                    await self._wires.client.patch_rv(capability.RESOURCE, key, capability.renewal(holder, wall))
                except NotFound:
                    await self._wires.client.create(capability.RESOURCE, capability.new_lease(name, holder, wall))
            except AlreadyExists:
                continue
            except (ApiError, UnknownOutcome) as error:
                log.warning("lease.failed", lease=str(key), reason=str(error))
            await asyncio.sleep(capability.RENEW_S)
