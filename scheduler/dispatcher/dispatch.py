"""The dispatcher of the scheduler's calls about pods: beside the scheduling loop, or inside it (KEP-5229).

With the feature gate SchedulerAsyncAPICalls a status patch is recorded in the call queue and sent some time
soon, and a bind is sent when no other call about its pod is under way. Without it, as upstream then, the
caller waits for the answer: a failed attempt holds up the scheduling loop until its patch is written.
Nothing is decided here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from scheduler.dispatcher.call_queue import CallQueue, Ending, Endings, Recorded
from scheduler.dispatcher.calls import ApiCall, PodBinding, PodGroupStatusPatch, StatusPatch
from services.api.errors import ApiError, Conflict, NotFound, UnknownOutcome
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.api.seams import Seams
from services.api.wire import Request, encode
from services.client.client import Client
from services.telemetry.metrics import Histogram, Metrics, Samples, counter, gauge, histogram

STATUS_DEADLINE_S: Final = 10.0
"""Deadline of a status patch, in seconds; the loop may be waiting for it.

A status that could not be written is written again after the next failed attempt.
"""
SLI_BOUNDS: Final = tuple(0.01 * 2**i for i in range(20))
log = structlog.get_logger()


class Outcome(msgspec.Struct, frozen=True):
    """The result of a call. `rv`: the version it wrote; `error`: the exception of the client."""

    ending: Ending
    rv: int = 0
    error: ApiError | UnknownOutcome | None = None


@dataclass
class Dispatcher:
    """The dispatcher of one scheduler. `parallelism`: calls at once, 0 for no limit.

    `report_client`: sends the reports of PreEnqueue, if these have a rate limit of their own (in `_queue`).
    `on_report`: called with a report, or a status patch that carries an event, and its bytes when it is really
    sent.
    """

    client: Client
    seams: Seams
    is_asynchronous: bool
    parallelism: int
    report_client: Client | None = None
    on_report: Callable[[StatusPatch, int], None] = lambda call, size: None
    _queue: CallQueue = field(default_factory=CallQueue)
    _running: int = 0
    _waiters: dict[int, asyncio.Future[Outcome]] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _seconds: dict[tuple[str, ...], Histogram] = field(default_factory=dict)

    async def say(self, call: StatusPatch) -> bool:
        """Send the patch; with the feature gate return at once, without it after the answer.

        False: it could not be written, although the pod may be there.
        """
        if self.is_asynchronous:
            self.later(call)
            return True
        if call.is_noop:
            return True
        outcome = await self._make(call)
        return outcome.ending is Ending.DONE or isinstance(outcome.error, NotFound | Conflict)

    def later(self, call: StatusPatch, *, delay_s: float = 0.0) -> None:
        """Queue the patch to be sent in `delay_s` seconds at the earliest; return at once."""
        self._settle(self._queue.add(call, self.seams.clock.now(), delay_s=delay_s)[1])
        self._wake.set()

    async def bind(self, call: PodBinding) -> int:
        """Send the Binding and return the version it wrote.

        Raises: ApiError for a refusal; UnknownOutcome when there is no answer, or when another call took its place.
        """
        if not self.is_asynchronous:
            # Nothing else can be under way for the pod, and the binding cycle's span is the call's own.
            return await self._bind(call, call.causes[0] if call.causes else "")
        waiter: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        call_id, ended = self._queue.add(call, self.seams.clock.now())
        self._waiters[call_id] = waiter
        self._settle(ended)
        self._wake.set()
        outcome = await waiter
        if outcome.error is not None:
            raise outcome.error
        if outcome.ending is not Ending.DONE:
            raise UnknownOutcome(f"the bind of {call.key} was {outcome.ending.value}")
        return outcome.rv

    def sync(self, found: Pod | PodGroup) -> None:
        """Take a pod or a group as the watch shows it: changes it already has need not be written."""
        if ended := self._queue.sync(found):
            self._settle(ended)

    def drop(self, uid: str) -> None:
        """Drop the object's pending status: it is gone, was bound or unbound, or an attempt has a newer status."""
        if ended := self._queue.drop_status(uid):
            self._settle(ended)

    async def run(self) -> None:
        """Make the calls as they become due, until cancelled; then every waiting caller gets an error."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._wake.clear()
                    while not self.parallelism or self._running < self.parallelism:
                        started = self._queue.pop(self.seams.clock.now())
                        if started is None:
                            break
                        self._running += 1
                        group.create_task(self._run(started))
                    await self._sleep()
        finally:
            self._settle(self._queue.close())

    async def _sleep(self) -> None:
        now = self.seams.clock.now()
        is_full = self.parallelism and self._running >= self.parallelism
        due = None if is_full else self._queue.next_due(now)
        try:
            async with asyncio.timeout(None if due is None else max(due - now, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _run(self, started: Recorded) -> None:
        try:
            outcome = await self._make(started.call)
        finally:
            self._running -= 1
        self._resolve(started.call_id, outcome)
        is_done = outcome.ending is Ending.DONE
        self._settle(self._queue.finalize(started, self.seams.clock.now(), is_done=is_done, rv=outcome.rv))
        self._wake.set()

    async def _make(self, call: ApiCall) -> Outcome:
        """Make the call now, whatever else is under way, in a span of its own below the decision that asked for it."""
        clock = self.seams.clock
        began = clock.now()
        key, causes = call.key, call.causes
        span = self.seams.tracer.start(
            f"call {call.call_type}",
            parent=causes[0] if causes else "",
            links=causes[1:],
            namespace=key.namespace,
            uid=call.uid,
        )
        span.set(**{"group" if isinstance(call, PodGroupStatusPatch) else "pod": key.name})
        try:
            match call:
                case StatusPatch():
                    rv = await self._patch(call, span.traceparent)
                case PodBinding():
                    rv = await self._bind(call, span.traceparent)
            outcome = Outcome(Ending.DONE, rv)
            span.end()
        except (ApiError, UnknownOutcome) as error:
            outcome = Outcome(Ending.FAILED, error=error)
            span.end(str(error))
            if isinstance(call, StatusPatch):  # repeated by the pod's next attempt, or rejection in other words
                log.info("pod.status_dropped", pod=str(key), reason=str(error))
        labels = (call.call_type, "success" if outcome.ending is Ending.DONE else "error")
        if labels not in self._seconds:
            self._seconds[labels] = Histogram(SLI_BOUNDS)
        self._seconds[labels].observe(clock.now() - began)
        return outcome

    async def _bind(self, call: PodBinding, traceparent: str) -> int:
        return await self.client.bind(
            call.key, call.uid, call.node, expected_unbind_count=call.expected_unbind_count, traceparent=traceparent
        )

    async def _patch(self, call: StatusPatch, traceparent: str) -> int:
        document = call.document(self.seams.clock.wall())
        if document is None:
            return 0
        body = encode(document)
        if call.is_report or call.event is not None:
            self.on_report(call, len(body))
        request = Request(
            verb="patch",
            resource=call.resource,
            namespace=call.key.namespace,
            name=call.key.name,
            subresource="status",
            body=body,
            patch_type="strategic",
            uid=call.uid,
            traceparent=traceparent,
            deadline_s=STATUS_DEADLINE_S,
        )
        client = self.report_client if call.is_report and self.report_client is not None else self.client
        return (await client.call(request)).unwrap().rv

    def _settle(self, ended: Endings) -> None:
        """Resolve the futures of callers that wait."""
        for call_id, ending in ended.items():
            self._resolve(call_id, Outcome(ending))

    def _resolve(self, call_id: int, outcome: Outcome) -> None:
        waiter = self._waiters.pop(call_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)

    def metrics(self) -> Samples:
        """Return counters, durations and the gauge of waiting calls under upstream's names."""
        return METRICS.of(self)


METRICS: Final[Metrics[Dispatcher]] = Metrics(
    gauge("scheduler_pending_async_api_calls", "Calls that wait.", lambda own: own._queue.pending, "call_type"),
    counter("scheduler_async_api_call_execution_total", "Calls made.",
            lambda own: {labels: seconds.count for labels, seconds in own._seconds.items()}, "call_type", "result"),
    histogram("scheduler_async_api_call_execution_duration_seconds", "Time a call took.", lambda own: own._seconds,
              "call_type", "result"),
)  # fmt: skip
