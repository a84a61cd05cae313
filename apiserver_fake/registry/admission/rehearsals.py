"""Rehearsals of writes and connections: webhooks are called before the commit (decisions 0032, 0088).

A write is tried on a state that is not stored, until it needs no further answer of a webhook. Then it is committed. If
another writer has meanwhile changed the object that the webhooks saw, the write is tried again.
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
"""Seconds of a write's deadline that are reserved for the commit; conversion webhooks get the rest."""


class Rehearsals:
    """Calls the webhooks that writes and connections need before they go on."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        submit: Callable[[Operation], Awaitable[Response]],
        admission: Callable[[], Admission | None],
    ) -> None:
        """`submit`: hands a write to the commit. `admission`: returns webhooks and policies; None if there are none."""
        self._store, self._clock, self._submit, self._admission = store, clock, submit, admission
        self._tasks: dict[asyncio.Task[Response], None] = {}

    def start(self, call: Coroutine[Any, Any, Response]) -> asyncio.Task[Response]:
        """Start a call in a task of its own and return the task; `cancel` ends it."""
        task = asyncio.create_task(call)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def cancel(self) -> None:
        """Cancel all calls that were started."""
        for task in self._tasks:
            task.cancel()

    async def admit(self, operation: Operation, session: Session, request: Request, traceparent: str) -> Response:
        """Call webhooks about a write, then commit it; repeat if the committed object is not the one that they saw."""
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
            # Another writer came in between: the webhooks' answers were not about this object.
            response = answered if session.pending is None else None
        return response

    async def admit_connection(self, connect: Callable[[Session], Connection], traceparent: str) -> Connection:
        """Return a connection after admission. Only the webhooks' own time limits apply.

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
        """Add the answer that a write waits for to its session. Raises: ApiError if an admission webhook refuses it."""
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
            # An admission webhook needs the object in another version: the conversion webhook is called first.
            await self._ask(session, before, deadline_s, traceparent)
        else:
            session.learn(unanswered, answer)

    @staticmethod
    async def _await_conversion(unanswered: Unconverted, left_s: float) -> list[Document] | ApiError:
        """Return the converted objects, or the error of the conversion. `left_s`: seconds that it may take."""
        try:
            async with asyncio.timeout(left_s):
                return await unanswered.answer()
        except TimeoutError:
            return ApiError("the conversion webhook did not answer within the time of the request")
