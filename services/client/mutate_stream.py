"""The stream of calls: all requests of this process and all its identities, numbered and answered in any order.

Queued requests are sent together: an idle client sends at once, one with many unanswered requests lingers up to
2 ms, because sending just the queued ones does not batch a fast pipeline.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from protos.mesh.v1 import apiserver_pb2 as pb
from services.api.errors import RequestEntityTooLarge, UnknownOutcome
from services.api.wire import Request, Response
from services.client.channel import BATCH_REQUESTS_MAX, LEAVE_MAX_S, Link, wait_until_accepted
from services.telemetry.metrics import Histogram

DEADLINE_S = 30.0
BATCH_BYTES_MAX = 1 << 20
BODY_BYTES_MAX = 3 << 20
SWEEP_S = 1.0
ANSWER_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of answer latency in seconds: on one machine most take less than Prometheus' first bucket."""
TOO_MANY, SERVER_ERROR = 429, 500


@dataclass(slots=True)
class _Pending:
    """A request in flight: the caller's future, and the parts of the answer received so far."""

    request: Request
    message: pb.Request
    answer: asyncio.Future[Response]
    parts: list[bytes] = field(default_factory=list)
    is_sent: bool = False
    timer: asyncio.TimerHandle | None = None
    deadline_s: float = 0.0
    expires_s: float = 0.0


class Calls:
    """The stream of calls."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._next_id = 0
        self._pending: dict[int, _Pending] = {}
        self._outbox: dict[int, None] = {}
        """Numbers not yet sent, in order; a call that was given up takes its own away."""
        self._has_work = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_leaving = False
        self.requests = 0
        self.batches = 0
        self.answers = 0
        self.sent_bytes = self.received_bytes = 0
        """Of the objects carried, without their envelopes."""
        self.errors = {"unknown": 0, "server": 0}
        """Requests without an answer, and answers that say the server could not (429 and 5xx)."""
        self.took_s = Histogram(ANSWER_BOUNDS_S)

    @property
    def in_flight(self) -> int:
        """Number of requests without an answer."""
        return len(self._pending)

    async def call(self, request: Request, token: str) -> Response:
        """Return the definite answer. Raises: UnknownOutcome."""
        if len(request.body) > BODY_BYTES_MAX:
            error = RequestEntityTooLarge(f"the body has {len(request.body)} bytes, at most {BODY_BYTES_MAX} are taken")
            return Response(code=error.code, body=msgspec.json.encode(error.status()))
        loop = asyncio.get_running_loop()
        self._next_id += 1
        number = self._next_id
        deadline_s = request.deadline_s or DEADLINE_S
        pending = _Pending(request, _request(request, number, token, deadline_s), loop.create_future())
        if deadline_s < SWEEP_S * 5:
            pending.timer = loop.call_later(deadline_s, self._expire, number, deadline_s)
        else:
            pending.deadline_s, pending.expires_s = deadline_s, loop.time() + deadline_s
            if self._sweeper is None:
                self._sweeper = loop.call_later(SWEEP_S, self._sweep)
        self._pending[number] = pending
        self._outbox[number] = None
        self._has_work.set()
        began_s = loop.time()
        try:
            response = await pending.answer
        except UnknownOutcome:
            self.errors["unknown"] += 1
            raise
        else:
            self.took_s.observe(loop.time() - began_s)
            if response.code == TOO_MANY or response.code >= SERVER_ERROR:
                self.errors["server"] += 1
            return response
        finally:
            if pending.timer is not None:
                pending.timer.cancel()
            self._pending.pop(number, None)
            self._outbox.pop(number, None)

    def _sweep(self) -> None:
        """Expire what is over; one timer for all who wait long, because nearly all of them are answered."""
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(SWEEP_S, self._sweep) if self._pending else None
        now = loop.time()
        for number in [n for n, pending in self._pending.items() if pending.timer is None and pending.expires_s <= now]:
            self._expire(number, self._pending[number].deadline_s)

    def stop_sweeping(self) -> None:
        """Cancel the timers."""
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _expire(self, number: int, deadline_s: float) -> None:
        pending = self._pending.get(number)
        if pending is not None and not pending.answer.done():
            what = "no answer" if pending.is_sent else f"no connection to {self._link.target}"
            pending.answer.set_exception(
                UnknownOutcome(f"{_request_text(pending.request)}: {what} within {deadline_s:g} s")
            )

    async def run(self) -> None:
        """Keep the stream up while there are requests; only cancellation ends it."""
        await self._link.keep_up(
            "Mutate",
            self._has_work,
            lambda stream, frames: (self._send(stream), self._receive(frames)),
            self._on_broken,
            self._leave,
        )

    async def _leave(self) -> None:
        """Send nothing more, and return when what was sent is answered, at the latest after 5 s."""
        self._is_leaving = True
        sent = [each.answer for each in self._pending.values() if each.is_sent and not each.answer.done()]
        if sent:
            await asyncio.wait(sent, timeout=LEAVE_MAX_S)

    async def _send(self, stream: Any) -> None:
        await wait_until_accepted(stream)
        self._is_leaving = False
        while True:
            while not self._outbox:
                self._has_work.clear()
                await self._has_work.wait()
            # Depth distinguishes a busy client from one that asks and waits: the latter must never be slowed.
            depth = len(self._pending)
            if depth >= 4 and len(self._outbox) < BATCH_REQUESTS_MAX:
                await asyncio.sleep(0.001 if depth < 16 else 0.002)
            if self._is_leaving:
                await asyncio.Event().wait()
            batch: list[pb.Request] = []
            size = 0
            while self._outbox and len(batch) < BATCH_REQUESTS_MAX and size < BATCH_BYTES_MAX:
                number = next(iter(self._outbox))
                del self._outbox[number]
                pending = self._pending.get(number)
                if pending is None or pending.answer.done():
                    continue
                pending.is_sent = True
                batch.append(pending.message)
                size += len(pending.request.body) + 200
                self.sent_bytes += len(pending.request.body)
            if batch:
                self.batches += 1
                self.requests += len(batch)
                await stream.write(pb.RequestBatch(requests=batch))

    async def _receive(self, frames: AsyncIterator[pb.ResponseBatch]) -> None:
        async for batch in frames:
            for message in batch.responses:
                self._answer(message)

    def _answer(self, message: pb.Response) -> None:
        pending = self._pending.get(message.id)
        if pending is None or pending.answer.done():
            return
        self.received_bytes += len(message.body)
        if message.more:
            pending.parts.append(message.body)
            return
        self.answers += 1
        body = b"".join((*pending.parts, message.body)) if pending.parts else message.body
        pending.answer.set_result(
            Response(code=message.code, rv=message.rv, body=body, warnings=tuple(message.warnings))
        )

    def _on_broken(self, why: str, status: bytes | None) -> None:
        """Fail every request that was on its way; what is unsent stays in the outbox."""
        for pending in list(self._pending.values()):
            if pending.answer.done():
                continue
            if status is not None:
                code = int(msgspec.json.decode(status).get("code") or 401)
                pending.answer.set_result(Response(code=code, body=status))
            elif pending.is_sent:
                pending.answer.set_exception(
                    UnknownOutcome(f"{_request_text(pending.request)}: connection lost ({why})")
                )


def _request_text(request: Request) -> str:
    """Return a request in words: `create pods/binding default/web-1`."""
    sub = f"/{request.subresource}" if request.subresource else ""
    where = "/".join(part for part in (request.namespace, request.name) if part)
    return f"{request.verb} {request.resource}{sub} {where}".rstrip()


def _request(request: Request, number: int, token: str, deadline_s: float) -> pb.Request:
    return pb.Request(
        id=number,
        verb=request.verb,
        resource=request.resource,
        namespace=request.namespace,
        name=request.name,
        subresource=request.subresource,
        body=request.body,
        patch_type=request.patch_type,
        uid=request.uid,
        resource_version=request.resource_version,
        resource_version_match=request.resource_version_match,
        label_selector=request.label_selector,
        field_selector=request.field_selector,
        limit=request.limit,
        continue_token=request.continue_token,
        field_manager=request.field_manager,
        field_validation=request.field_validation,
        dry_run=request.dry_run,
        request_id=request.request_id,
        traceparent=request.traceparent,
        lease_epoch=request.lease_epoch,
        deadline_s=deadline_s,
        token=token,
        at=request.at,
        as_user=request.as_user,
    )
