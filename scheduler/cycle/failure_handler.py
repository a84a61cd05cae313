"""The failure handler: put the pod back into its queue, and write why it has no node.

Source: scheduler-queue-and-cycles 4.1.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from scheduler.cache.node_info import PodInfo
from scheduler.cycle.attempt import Attempt
from scheduler.cycle.clients import Clients
from scheduler.dispatcher.calls import NOTE_MAX, SCHEDULER_ERROR, UNSCHEDULABLE, SetCondition, status_patch
from scheduler.framework.status import Status
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.recorder import SchedulerRecorder

FAILED: Final = "FailedScheduling"


@dataclass
class FailureHandler:
    """The handling of failed attempts. `on_failed` is called first, with the pod."""

    queue: SchedulingQueue
    clients: Clients
    recorder: SchedulerRecorder
    on_failed: Callable[[PodInfo], None] = lambda pod: None

    async def fail(
        self,
        attempt: Attempt,
        reason: str,
        message: str,
        *,
        rejectors: Iterable[str] = (),
        pending: Iterable[str] = (),
        nominated: str | None = "",
    ) -> None:
        """Requeue the pod, and write condition and event; `nominated` None leaves the nomination as it is.

        Without asynchronous API calls it returns when the condition is written, as upstream's does.
        """
        queue, queued, span = self.queue, attempt.queued, attempt.span
        info = queued.info
        self.on_failed(info)
        self.recorder.line(
            "sched.attempt",
            info,
            "",
            span,
            {
                "outcome": "unschedulable" if reason == UNSCHEDULABLE else "error",
                "attempt": queued.attempts,
                "message": message,
                "plugins": sorted(rejectors),
                "nominated": queue.nominator.node_of(info.uid) if nominated is None else nominated,
            },
        )
        live = self.clients.pods.lister.get(info.key)
        if live is None or live.metadata.uid != info.uid or live.spec.node_name:
            # Gone, another pod of that name, or bound by another scheduler: not ours to try again.
            queue.done(info.uid)
            if queue.get(info.key) is queued:
                queue.on_bound(queued)
            span.end(message)
            return
        queue.add_unschedulable(queued, attempt.now, rejectors=rejectors, pending=pending)
        if nominated is not None:
            queue.nominator.set(info, nominated)
        if nominated:
            self.recorder.line("sched.nominate", info, nominated, span, {})
        self.recorder.event(info, FAILED, message[:NOTE_MAX], is_warning=True, traceparent=span.traceparent)
        condition = SetCondition(reason, message)
        await self.clients.dispatcher.say(
            status_patch(live, condition, nomination=nominated, traceparent=span.traceparent)
        )
        span.end(message if reason == SCHEDULER_ERROR else "")

    async def fail_with(self, attempt: Attempt, status: Status, message: str) -> None:
        """Handle a plugin's rejection after Filter: an ordinary rejection of that plugin, or an error."""
        is_rejected = status.code.is_rejected
        reason = UNSCHEDULABLE if is_rejected else SCHEDULER_ERROR
        await self.fail(attempt, reason, message, rejectors=(status.plugin,) if is_rejected else ())
