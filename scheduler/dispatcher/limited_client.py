"""A rate-limited API client: token buckets with a waiting line.

Upstream's scheduler makes all its calls but Events through one client of 50 calls a second and a burst of
100, so that five thousand status patches stand before the bind that comes after them (k/k 135900). `Limits`
is pure: times are the caller's monotonic seconds. Source: kep-5229 1, 9 and acceptance scenario 12.
"""

import asyncio
import heapq
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from services.api.seams import Clock, Random
from services.api.wire import Api, Request, Response
from services.client.client import Client
from services.reconcile.workqueue import TokenBucket

LATE_S: Final = 1e-6
"""Seconds added to a wait, so that a token is surely available when it ends."""


class Sharing(StrEnum):
    """How kinds of calls share the limit: one line, separate buckets, or one bucket in which binds go first."""

    SHARED = "shared"
    SEPARATE_PER_TYPE = "separate_per_type"
    PRIORITY = "priority"


class Lane(StrEnum):
    """A kind of call."""

    BINDING = "pod_binding"
    OTHER = "other"
    STATUS = "pod_status_patch"


PRECEDENCE: Final = {Lane.BINDING: 0, Lane.OTHER: 1, Lane.STATUS: 2}


def lane_of(request: Request) -> Lane:
    """Return the kind of the request."""
    if request.subresource == "binding":
        return Lane.BINDING
    if request.resource == "pods" and request.subresource == "status":
        return Lane.STATUS
    return Lane.OTHER


@dataclass(slots=True)
class _Line:
    """A bucket and the callers that wait for its tokens, the most urgent first, then the earliest."""

    bucket: TokenBucket
    waiting: list[tuple[int, int]] = field(default_factory=list)


class Limits:
    """The limit of `qps` calls a second and `burst` at once, for all lanes together or for each."""

    def __init__(self, qps: float, burst: int, sharing: Sharing) -> None:
        self._sharing = sharing
        count = len(Lane) if sharing is Sharing.SEPARATE_PER_TYPE else 1
        self._lines = [_Line(TokenBucket(qps, max(burst, 1))) for _ in range(count)]
        self._line_of = {lane: self._lines[i % count] for i, lane in enumerate(Lane)}
        self._tickets = 0
        self._gone: set[int] = set()

    def ask(self, lane: Lane) -> int:
        """Join the line; return the ticket number."""
        self._tickets += 1
        urgency = PRECEDENCE[lane] if self._sharing is Sharing.PRIORITY else 0
        heapq.heappush(self._line_of[lane].waiting, (urgency, self._tickets))
        return self._tickets

    def give_up(self, ticket: int) -> None:
        """Leave the line."""
        self._gone.add(ticket)

    def admit(self, now: float) -> list[int]:
        """Return the tickets that are admitted now; each takes a token."""
        found: list[int] = []
        for line in self._lines:
            while self._is_waited_for(line) and line.bucket.try_take(now):
                found.append(heapq.heappop(line.waiting)[1])
        return found

    def next_turn(self, now: float) -> float | None:
        """Return when the next waiting caller is admitted; None if no caller waits."""
        turns = [now + line.bucket.wait_s(now) for line in self._lines if self._is_waited_for(line)]
        return min(turns, default=None)

    def _is_waited_for(self, line: _Line) -> bool:
        while line.waiting and line.waiting[0][1] in self._gone:
            self._gone.discard(heapq.heappop(line.waiting)[1])
        return bool(line.waiting)


class LimitedClient(Client):
    """A client in which every call waits until it is admitted; retries of a call do not wait again."""

    def __init__(self, api: Api, clock: Clock, random: Random, limits: Limits, **more: Any) -> None:
        super().__init__(api, clock, random, **more)
        self._limits = limits
        self._now = clock.now
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def call(self, request: Request) -> Response:
        """Make the call once it is admitted. Events are not limited: upstream has another client for them."""
        if request.resource == "events":
            return await super().call(request)
        ticket = self._limits.ask(lane_of(request))
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = turn
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():  # else it was admitted already
                self._limits.give_up(ticket)
            raise
        finally:
            self._waiting.pop(ticket, None)
        return await super().call(request)

    def _admit(self) -> None:
        now = self._now()
        for ticket in self._limits.admit(now):
            turn = self._waiting.get(ticket)
            if turn is not None and not turn.done():
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._limits.next_turn(now)
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(due - now + LATE_S, self._admit)
