"""The binding cycle: wait for permission, prepare, send the Binding, and learn its outcome.

Many run at once, independently; none is ever given up by a timer (K2). Source: scheduler-queue-and-cycles
4; guarantees K1, K2, C6.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import structlog

from scheduler.cache.cache import Assumption
from scheduler.cache.node_info import PodInfo
from scheduler.cycle.attempt import Attempt
from scheduler.cycle.clients import Clients
from scheduler.cycle.core import Core
from scheduler.cycle.failure_handler import FailureHandler
from scheduler.cycle.result import ExtenderBind
from scheduler.cycle.waiting_pods import WaitingPods
from scheduler.dispatcher.calls import PodBinding, status_patch
from scheduler.framework.events import ASSIGNED_POD_DELETE
from scheduler.framework.plugin import BindCall
from scheduler.framework.status import Code, Status
from scheduler.framework.timing import status_of
from scheduler.metrics import BINDING_FAILURES
from scheduler.queue.scheduling_queue import QueuedPod
from scheduler.recorder import SchedulerRecorder
from scheduler.switches import BinderSwitches
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.meta import Document
from services.api.seams import Seams, Span
from services.client.client import Backoff

log = structlog.get_logger()


class Outcome(StrEnum):
    """The outcome of a bind; the values are those of the event log."""

    OK = "ok"
    CONFLICT = "conflict"
    ERROR = "error"
    UNKNOWN = "unknown"


class BindResult(msgspec.Struct, frozen=True):
    """The result of a bind. `resolved_how`: reply, watch or read. `message`: why it failed."""

    outcome: Outcome
    resolved_how: str = "reply"
    message: str = ""
    rv: int | None = None


def _at_permit(status: Status) -> Status:
    """Return how a wait at Permit ended, as it is reported: a rejection counts the one node, an error says where."""
    if status.code.is_rejected:
        return Status(status.code, (f"0/1 nodes are available: 1 {status.message}.",), status.plugin)
    return Status(status.code, (f"waiting on permit for pod: {status.message}",), status.plugin)


def _bind_failed(assumption: Assumption, message: str) -> None:
    """Let the record of the attempt, if there is one, say that the plugin's call had no success."""
    record = assumption.state.record
    if record is not None:
        record.bind_failed(message)


def read_back(pod: PodInfo, node_name: str, live: Document | None) -> BindResult:
    """Return the result of a bind without answer, from a consistent read of the pod.

    If the pod is bound to `node_name` at the known unbind count, the bind took effect. Anything else is
    definite too: the read shows that this bind is not in force, so its capacity may be freed (K2).
    """
    if live is None or live.get("metadata", {}).get("uid") != pod.uid:
        return BindResult(Outcome.ERROR, "read", "the pod is gone")
    spec: dict[str, Any] = live.get("spec") or {}
    live_node = str(spec.get("nodeName") or "")
    unbinds = int((live.get("status") or {}).get("unbindCount") or 0)
    rv = int(live["metadata"].get("resourceVersion") or 0)
    if live_node == node_name and unbinds == pod.unbind_count:
        return BindResult(Outcome.OK, "read", rv=rv)
    if live_node:
        return BindResult(Outcome.CONFLICT, "read", f"the pod is bound to {live_node}, not to {node_name}")
    if unbinds > pod.unbind_count:
        return BindResult(Outcome.CONFLICT, "read", f"the pod was unbound {unbinds} times, not {pod.unbind_count}")
    return BindResult(Outcome.ERROR, "read", f"the bind to {node_name} took no effect")


@dataclass
class Binder:
    """Runs binding cycles. `in_flight`: binding cycles under way; `wake` is set when one ends."""

    seams: Seams
    core: Core
    clients: Clients
    recorder: SchedulerRecorder
    failures: FailureHandler
    waiting: WaitingPods
    wake: asyncio.Event
    extender_bind: Callable[[PodInfo], ExtenderBind | None]
    in_flight: int = 0

    def start(
        self, queued: QueuedPod, assumption: Assumption, waits: dict[str, float], span: Span, group: asyncio.TaskGroup
    ) -> None:
        """Begin a binding cycle; `span` is the scheduling cycle's, ended here."""
        self.in_flight += 1
        self.core.metrics.binding = self.in_flight
        if waits:
            self.waiting.enter(assumption.pod, waits)
        group.create_task(self._binding_cycle(queued, assumption, waits, span))

    async def _binding_cycle(
        self, queued: QueuedPod, assumption: Assumption, waits: dict[str, float], schedule_span: Span
    ) -> None:
        """Make one choice true, or take it back."""
        info, node = assumption.pod, assumption.node_name
        began = self.seams.clock.now()
        span = self.seams.tracer.start(
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
            self.core.queue.done(info.uid)
            answer: BindCall | Status = BindCall(node)
            if self.extender_bind(info) is None:
                answer = self.core.profiles.runner_of(info).bind(assumption.state, info, node)
            if not isinstance(answer, BindCall):
                await self._undo(queued, assumption, answer.message, answer, span)
                return
            result = await self._bind(assumption, answer, span)
            now = self.seams.clock.now()
            self.core.metrics.bind_seconds.observe(now - began, 1, span.trace_id)
            if result.outcome is Outcome.OK:
                self._on_bound(queued, assumption, now, span)
            else:
                await self._undo(queued, assumption, result.message, Status(Code.ERROR, (result.message,)), span)
        finally:
            self.waiting.leave(info.uid)
            self.in_flight -= 1
            self.core.metrics.binding = self.in_flight
            self.wake.set()

    async def _prepare(self, assumption: Assumption, waits: dict[str, float], span: Span) -> Status:
        """Wait for permission and do the PreBind work; while that takes long, say where the pod goes (KEP-5278)."""
        info, node = assumption.pod, assumption.node_name
        runner = self.core.profiles.runner_of(info)
        has_work = runner.has_pre_bind_work(assumption.state, info, node)
        if (waits or has_work) and self.seams.switches.of(BinderSwitches).says_expectations:
            # Whether it could be written or not: a hint that is missing is no reason to stop the binding.
            await self.clients.dispatcher.say(status_patch(info.pod, nomination=node, traceparent=span.traceparent))
        if waits:
            began = self.seams.clock.now()
            status = await self.waiting.wait(info, waits)
            self.core.metrics.permit_wait_seconds[status_of(status),].observe(self.seams.clock.now() - began)
            if not status.is_success:
                return _at_permit(status)
        if not has_work:
            return Status()
        return await self.waiting.prepare(info, runner.pre_bind(assumption.state, info, node, self.clients.client))

    async def _bind(self, assumption: Assumption, call: BindCall, span: Span) -> BindResult:
        """Send the Binding and return what became of it, however long that takes (K2: never by a timer)."""
        info = assumption.pod
        self.recorder.line("sched.bind_call", info, call.node_name, span, {"unbind_count": info.unbind_count})
        extender_bind = self.extender_bind(info)
        try:
            if extender_bind is not None:
                await extender_bind(call.node_name, span.traceparent)
                result = BindResult(Outcome.OK)
            else:
                causes, count = (span.traceparent,), call.expected_unbind_count
                binding = PodBinding(
                    key=info.key, uid=info.uid, node=call.node_name, causes=causes, expected_unbind_count=count
                )
                result = BindResult(Outcome.OK, rv=await self.clients.dispatcher.bind(binding))
        except ApiError as error:
            outcome = Outcome.CONFLICT if error.code == 409 else Outcome.ERROR
            result = BindResult(outcome, message=f'running Bind plugin "DefaultBinder": {error.message}')
            _bind_failed(assumption, error.message)
        except UnknownOutcome as error:
            unknown = {"outcome": Outcome.UNKNOWN.value, "unbind_count": info.unbind_count, "message": str(error)}
            self.recorder.line("sched.bind_result", info, call.node_name, span, unknown)
            result = await self._resolve(assumption, call.node_name)
            if extender_bind is not None and result.outcome is Outcome.ERROR:
                result = msgspec.structs.replace(result, message=str(error))
            if result.outcome is not Outcome.OK:
                _bind_failed(assumption, result.message)
        data = {"outcome": result.outcome.value, "resolved_how": result.resolved_how, "unbind_count": info.unbind_count}
        if result.message:
            data["message"] = result.message
        self.recorder.line("sched.bind_result", info, call.node_name, span, data, rv=result.rv)
        return result

    async def _resolve(self, assumption: Assumption, node: str) -> BindResult:
        """Return what became of a bind without answer: the watch shows it, or a read that we repeat."""
        backoff = Backoff(self.seams.random)
        while True:
            if assumption.is_confirmed:
                return BindResult(Outcome.OK, "watch")
            if assumption.is_obsolete:
                return BindResult(Outcome.CONFLICT, "watch", "the pod was bound and unbound again, or is gone")
            try:
                live: Document | None = await self.clients.client.get("pods", assumption.pod.key)
            except NotFound:
                live = None
            except (ApiError, UnknownOutcome) as error:
                log.warning("bind.unresolved", pod=str(assumption.pod.key), node=node, reason=str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            return read_back(assumption.pod, node, live)

    def _on_bound(self, queued: QueuedPod, assumption: Assumption, now: float, span: Span) -> None:
        info, node = assumption.pod, assumption.node_name
        began = queued.initial_attempt if queued.initial_attempt is not None else now
        self.core.metrics.observe_bind(info.uid, node, queued.attempts, now - began, now, span.trace_id)
        self.recorder.event(
            info,
            "Scheduled",
            f"Successfully assigned {info.key} to {node}",
            action="Binding",
            traceparent=span.traceparent,
        )
        # The event log has it anyway; at thousands of pods a second a log line each is what costs most.
        log.debug("pod.bound", pod=str(info.key), node=node, attempt=queued.attempts, trace_id=span.trace_id)
        if not assumption.is_obsolete:
            self.core.profiles.runner_of(info).post_bind(assumption.state, info, node)
            self.core.queue.on_bound(queued)
        span.end()

    async def _undo(self, queued: QueuedPod, assumption: Assumption, message: str, status: Status, span: Span) -> None:
        """Give up a choice that could not be made true; the capacity it frees may help others."""
        core, info, node = self.core, assumption.pod, assumption.node_name
        if assumption.is_obsolete or assumption.is_confirmed:
            span.end(message)
            return
        now = self.seams.clock.now()
        core.profiles.runner_of(info).unreserve(assumption.state, info, node)
        core.cache.forget(info.uid)
        freed = msgspec.structs.replace(info.pod, spec=msgspec.structs.replace(info.spec, node_name=node))
        if status.code.is_rejected:
            # The capacity it frees is no reason to try a rejected pod again: the others are woken when it is back.
            core.metrics.counts.add(BINDING_FAILURES, "rejected")
            await self.failures.fail_with(Attempt(queued, now, span), status, message)
            core.queue.move_all(ASSIGNED_POD_DELETE, freed, None, now, only=lambda other: other.uid != info.uid)
            return
        core.metrics.counts.add(BINDING_FAILURES, "error")
        core.queue.move_all(ASSIGNED_POD_DELETE, freed, None, now)
        await self.failures.fail_with(Attempt(queued, now, span), status, message)
