"""Who may call the API server next, when a client's rate is limited: token buckets with a waiting line.

Upstream's scheduler makes all its calls but Events through one client of 50 calls a second and a burst of 100, so that
five thousand status patches stand before the bind that comes after them (k/k 135900). Pure: times are the caller's
monotonic seconds. Source: kep-5229 1, 9 and acceptance scenario 12.
"""

from __future__ import annotations

import heapq
from enum import StrEnum
from typing import Final

from services.api.wire import Request
from services.reconcile.workqueue import TokenBucket


class Sharing(StrEnum):
    """What the kinds of calls have in common: one line, nothing, or one bucket in which binds go first."""

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
    """Return which kind of call the request is."""
    if request.subresource == "binding":
        return Lane.BINDING
    if request.resource == "pods" and request.subresource == "status":
        return Lane.STATUS
    return Lane.OTHER


class _Line:
    """A bucket and who waits for its tokens, first the most urgent, then the earliest."""

    def __init__(self, qps: float, burst: float) -> None:
        self.bucket = TokenBucket(qps, burst)
        self.waiting: list[tuple[int, int]] = []


class Limits:
    """`qps` calls a second and `burst` at once, for all lanes together or each."""

    def __init__(self, qps: float, burst: int, sharing: Sharing) -> None:
        self._sharing = sharing
        self._qps = qps
        shared = _Line(qps, max(burst, 1))
        is_separate = sharing is Sharing.SEPARATE_PER_TYPE
        self._lines = {lane: _Line(qps, max(burst, 1)) if is_separate else shared for lane in Lane}
        self._tickets = 0
        self._gone: set[int] = set()

    def ask(self, lane: Lane) -> int:
        """Stand in line; return the number that will be called."""
        self._tickets += 1
        urgency = PRECEDENCE[lane] if self._sharing is Sharing.PRIORITY else 0
        heapq.heappush(self._lines[lane].waiting, (urgency, self._tickets))
        return self._tickets

    def give_up(self, ticket: int) -> None:
        """Leave the line."""
        self._gone.add(ticket)

    def admitted(self, now: float) -> list[int]:
        """Return the numbers whose turn it is; each takes a token."""
        found: list[int] = []
        for line in self._distinct():
            while self._first(line) is not None and line.bucket.try_take(now):
                found.append(heapq.heappop(line.waiting)[1])
        return found

    def next_turn(self, now: float) -> float | None:
        """Return when the next waiting caller is admitted; None when none waits."""
        turns = [now + line.bucket.wait_s(now) for line in self._distinct() if self._first(line) is not None]
        return min(turns, default=None)

    def _distinct(self) -> list[_Line]:
        return list({id(line): line for line in self._lines.values()}.values())

    def _first(self, line: _Line) -> int | None:
        while line.waiting and line.waiting[0][1] in self._gone:
            self._gone.discard(heapq.heappop(line.waiting)[1])
        return line.waiting[0][1] if line.waiting else None
