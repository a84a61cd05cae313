"""Rehearsals of writes and connections: what webhooks have to say is asked before the commit (decisions 0032, 0088).

A write is tried on a state that is not stored until it needs no further answer. Then it is committed; when another
writer came in between and changed what the webhooks were asked about, it is tried again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog

from apiserver_fake.registry.admission.attributes import Admission, Answer, Connection, Pending
from apiserver_fake.registry.sessions import Session, Unanswered, Unconverted
from apiserver_fake.storage.store import Store
from apiserver_fake.storage.writer import Operation, refusal
from services.api.errors import ApiError
from services.api.meta import Document
from services.api.seams import Clock
from services.api.wire import Request, Response

log = structlog.get_logger()

COMMIT_S = 1.0
"""Seconds of a write's deadline that conversion webhooks leave for the commit."""


class Rehearsals:
    """Puts the questions of writes and connections to webhooks."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        submit: Callable[[Operation], Awaitable[Response]],
        admission: Callable[[], Admission | None],
    ) -> None:
        """`submit` hands a write to the commit. `admission`: webhooks and policies, None before there are any."""
        self._store, self._clock, self._submit, self._admission = store, clock, submit, admission
        self._tasks: dict[asyncio.Task[Response], None] = {}

    def start(self, call: Coroutine[Any, Any, Response]) -> asyncio.Task[Response]:
        """Return the task of a call that goes on by itself until `cancel`."""
        task = asyncio.create_task(call)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def cancel(self) -> None:
        """Cancel all calls that were started."""
        for task in self._tasks:
            task.cancel()

    async def admit(self, operation: Operation, session: Session, request: Request, traceparent: str) -> Response:
        """Commit a write after webhooks were asked about it, again whenever what they saw is not what is committed."""
        response: Response | None = None
        while response is None:
            session.is_rehearsing, session.pending = True, None
            try:
                operation.plan(self._store.stage())
            except Unanswered as pending:
                try:
                    await self._ask(session, pending, operation.deadline_s, traceparent)
                except ApiError as error:
                    response = refusal(pending.beside(error))
                continue
            except Exception:  # the commit will refuse it for the same reason, or find that it is gone
                log.debug("admission.rehearsal_failed", resource=request.resource)
            session.is_rehearsing, session.pending = False, None
            done = asyncio.get_running_loop().create_future()
            attempt = replace(operation, done=done, on_response=None)
            try:
                answered = await asyncio.shield(self._submit(attempt))
            except ApiError as error:
                answered = refusal(error)
            # Another writer came in between: what the webhooks said was not about this object.
            response = answered if session.pending is None else None
        return response

    async def admit_connection(self, connect: Callable[[Session], Connection], traceparent: str) -> Connection:
        """Return a connection as admission leaves it. Webhooks have their own time limits and no other.

        `connect` raises Unanswered while it needs an answer that the session does not have. Raises: ApiError.
        """
        session = Session(self._clock.wall())
        session.is_rehearsing = True
        while True:
            try:
                return connect(session)
            except Unanswered as pending:
                try:
                    await self._ask(session, pending, math.inf, traceparent)
                except ApiError as error:
                    raise pending.beside(error) from None

    async def _ask(self, session: Session, unanswered: Unanswered, deadline_s: float, traceparent: str) -> None:
        """Let the session learn what a write waits for. Raises: ApiError when an admission webhook refuses it."""
        answer: Answer | list[Document] | ApiError
        try:
            if isinstance(unanswered, Pending):
                admission = self._admission()
                assert admission is not None, "a write waits for it"
                answer = await admission.answer(unanswered, deadline_s, traceparent)
            else:
                assert isinstance(unanswered, Unconverted), "a write waits for admission or for a conversion"
                answer = await self._await_conversion(unanswered, deadline_s - COMMIT_S - self._clock.now())
        except Unconverted as before:
            # An admission webhook wants to see the object in another version: that is asked first.
            await self._ask(session, before, deadline_s, traceparent)
        else:
            session.learn(unanswered, answer)

    @staticmethod
    async def _await_conversion(unanswered: Unconverted, left_s: float) -> list[Document] | ApiError:
        """Return the converted objects, or why they cannot be converted. `left_s`: seconds that may pass until then."""
        try:
            async with asyncio.timeout(left_s):
                return await unanswered.answer()
        except TimeoutError:
            return ApiError("the conversion webhook did not answer within the time of the request")
