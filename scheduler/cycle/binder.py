"""The binding cycle's shell: wait for permission, prepare, send the Binding, and find out what became of it.

What an answer means is decided in `binding_cycle`. Many run at once, each on its own way; none is ever given
up by a timer (K2). Source: scheduler-queue-and-cycles 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from scheduler.cache.cache import Assumption
from scheduler.cache.node_info import PodInfo
from scheduler.cycle.attempt import Attempt
from scheduler.cycle.binding_cycle import BindResult, ExtenderBind, Outcome, read_back, refused
from scheduler.cycle.clients import Clients
from scheduler.cycle.core import Core
from scheduler.cycle.failure_handler import FailureHandler
from scheduler.cycle.waiting_pods import WaitingPods
from scheduler.dispatcher.calls import PodBinding, status_patch
from scheduler.framework.events import ASSIGNED_POD_DELETE
from scheduler.framework.plugin import BindCall
from scheduler.framework.status import Code, Status
from scheduler.framework.timing import status_of
from scheduler.metrics import BINDING_FAILURES
from scheduler.queue.scheduling_queue import QueuedPod
from scheduler.recorder import SchedulerRecorder
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.meta import Document
from services.api.seams import Seams, Span
from services.client.client import Backoff

log = structlog.get_logger()


class Binder:
    """Makes choices true. `in_flight`: binding cycles under way; `wake` is set when one ends."""

    def __init__(
        self,
        seams: Seams,
        core: Core,
        clients: Clients,
        recorder: SchedulerRecorder,
        failures: FailureHandler,
        waiting: WaitingPods,
        wake: asyncio.Event,
        extender_bind: Callable[[PodInfo], ExtenderBind | None],
    ) -> None:
        self._seams = seams
        self._core = core
        self._clients = clients
        self._recorder = recorder
        self._failures = failures
        self._wake = wake
        self._extender_bind = extender_bind
        self.in_flight = 0
        self.waiting = waiting

    def start(
        self, queued: QueuedPod, assumption: Assumption, waits: dict[str, float], span: Span, group: asyncio.TaskGroup
    ) -> None:
        """Begin a binding cycle of its own; `span` is the scheduling cycle's, ended here."""
        self.in_flight += 1
        self._core.metrics.binding = self.in_flight
        if waits:
            self.waiting.enter(assumption.pod, waits)
        group.create_task(self._binding_cycle(queued, assumption, waits, span))

    async def _binding_cycle(
        self, queued: QueuedPod, assumption: Assumption, waits: dict[str, float], schedule_span: Span
    ) -> None:
        """Make one choice true, or take it back."""
        info, node = assumption.pod, assumption.node_name
        began = self._seams.clock.now()
        span = self._seams.tracer.start(
            "bind pod",
            parent=schedule_span.traceparent,
            pod=info.key.name,
            namespace=info.key.namespace,
            uid=info.uid,
            node=node,
        )
        schedule_span.end()
        try:
            status = await self._prepare(assumption, waits, span)
            if not status.is_success:
                await self._undo(queued, assumption, status.message, status, span)
                return
            self._core.queue.done(info.uid)
            answer: BindCall | Status = BindCall(node)
            if self._extender_bind(info) is None:
                answer = self._core.profiles.runner_of(info).bind(assumption.state, info, node)
            if not isinstance(answer, BindCall):
                await self._undo(queued, assumption, answer.message, answer, span)
                return
            result = await self._bind(assumption, answer, span)
            now = self._seams.clock.now()
            self._core.metrics.bind_seconds.observe(now - began)
            if result.outcome is Outcome.OK:
                self._bound(queued, assumption, now, span)
            else:
                await self._undo(queued, assumption, result.message, Status(Code.ERROR, (result.message,)), span)
        finally:
            self.waiting.leave(info.uid)
            self.in_flight -= 1
            self._core.metrics.binding = self.in_flight
            self._wake.set()

    async def _prepare(self, assumption: Assumption, waits: dict[str, float], span: Span) -> Status:
        """Wait for permission and do the PreBind work; while that takes long, say where the pod goes (KEP-5278)."""
        info, node = assumption.pod, assumption.node_name
        runner = self._core.profiles.runner_of(info)
        has_work = runner.has_pre_bind_work(assumption.state, info, node)
        if (waits or has_work) and self._seams.switches.flag("NominatedNodeNameForExpectation"):
            # Whether it could be written or not: a hint that is missing is no reason to stop the binding.
            await self._clients.dispatcher.say(status_patch(info.pod, nomination=node, traceparent=span.traceparent))
        if waits:
            began = self._seams.clock.now()
            status = await self.waiting.wait(info, waits)
            self._core.metrics.permit_waited(status_of(status), self._seams.clock.now() - began)
            if not status.is_success:
                return status
        if not has_work:
            return Status()
        return await self.waiting.prepare(info, runner.pre_bind(assumption.state, info, node, self._clients.client))

    async def _bind(self, assumption: Assumption, call: BindCall, span: Span) -> BindResult:
        """Send the Binding and return what became of it, however long that takes (K2: never by a timer)."""
        info = assumption.pod
        self._recorder.line("sched.bind_call", info, call.node_name, span, {"unbind_count": info.unbind_count})
        extender_bind = self._extender_bind(info)
        try:
            if extender_bind is not None:
                await extender_bind(call.node_name)
                result = BindResult(Outcome.OK)
            else:
                binding = PodBinding(
                    key=info.key,
                    uid=info.uid,
                    node=call.node_name,
                    causes=(span.traceparent,),
                    expected_unbind_count=call.expected_unbind_count,
                )
                result = BindResult(Outcome.OK, rv=await self._clients.dispatcher.bind(binding))
        except ApiError as error:
            result = refused(error)
        except UnknownOutcome as error:
            unknown = {"outcome": Outcome.UNKNOWN.value, "unbind_count": info.unbind_count, "message": str(error)}
            self._recorder.line("sched.bind_result", info, call.node_name, span, unknown)
            result = await self._resolve(assumption, call.node_name)
            if extender_bind is not None and result.outcome is Outcome.ERROR:
                result = msgspec.structs.replace(result, message=str(error))
        data = {"outcome": result.outcome.value, "resolved_how": result.resolved_how, "unbind_count": info.unbind_count}
        if result.message:
            data["message"] = result.message
        self._recorder.line("sched.bind_result", info, call.node_name, span, data, rv=result.rv)
        return result

    async def _resolve(self, assumption: Assumption, node: str) -> BindResult:
        """Return what became of a bind without answer: the watch shows it, or a read that we repeat."""
        backoff = Backoff(self._seams.random)
        while True:
            if assumption.is_confirmed:
                return BindResult(Outcome.OK, "watch")
            if assumption.is_obsolete:
                return BindResult(Outcome.CONFLICT, "watch", "the pod was bound and unbound again, or is gone")
            try:
                live: Document | None = await self._clients.client.get("pods", assumption.pod.key)
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
        self._core.metrics.bound(info.uid, node, queued.attempts, now - began, now)
        self._recorder.event(
            info, "Scheduled", f"Successfully assigned {info.key} to {node}", traceparent=span.traceparent
        )
        # The event log has it anyway; at thousands of pods a second a log line each is what costs most.
        log.debug("pod.bound", pod=str(info.key), node=node, attempt=queued.attempts, trace_id=span.trace_id)
        if not assumption.is_obsolete:
            self._core.profiles.runner_of(info).post_bind(assumption.state, info, node)
            self._core.queue.bound(queued)
        span.end()

    async def _undo(self, queued: QueuedPod, assumption: Assumption, message: str, status: Status, span: Span) -> None:
        """Give up a choice that could not be made true; the capacity it frees may help others."""
        core, info, node = self._core, assumption.pod, assumption.node_name
        if assumption.is_obsolete or assumption.is_confirmed:
            span.end(message)
            return
        now = self._seams.clock.now()
        core.profiles.runner_of(info).unreserve(assumption.state, info, node)
        core.cache.forget(info.uid)
        freed = msgspec.structs.replace(info.pod, spec=msgspec.structs.replace(info.spec, node_name=node))
        if status.code.is_rejected:
            # The capacity it frees is no reason to try a rejected pod again: the others are woken when it is back.
            core.metrics.counts.add(BINDING_FAILURES, "rejected")
            await self._failures.fail_with(Attempt(queued, now, span), status, message)
            core.queue.move_all(ASSIGNED_POD_DELETE, freed, None, now, only=lambda other: other.uid != info.uid)
            return
        core.metrics.counts.add(BINDING_FAILURES, "error")
        core.queue.move_all(ASSIGNED_POD_DELETE, freed, None, now)
        await self._failures.fail_with(Attempt(queued, now, span), status, message)
