"""The queues of one priority level: fair queuing of requests that occupy seats for a time. Pure.

A request that does not fit waits in one of the queues that shuffle sharding deals to its flow. Among the
non-empty queues, the one whose oldest request would finish first in virtual time is next. So each busy queue
gets the same number of seats over time, whatever the number and width of its requests. The time is passed in,
decisions are returned. Source: KEP-1040 (Fair Queuing for Server Requests), upstream
`staging/src/k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset`, `pkg/util/shufflesharding`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

ESTIMATED_SERVICE_S: Final = 0.003
"""Estimated execution time of a request, in seconds; corrected when it has finished."""
HANDS_MAX: Final = 20_000
WAITING, EXECUTING, FINISHED = "waiting", "executing", "finished"


class Work(NamedTuple):
    """The cost of a request: `seats` while it is executed, then `final_seats` for `additional_s` seconds.

    `is_long`: its answer is made piece by piece, however many seats its level allows.
    """

    seats: int = 1
    final_seats: int = 0
    additional_s: float = 0.0
    is_long: bool = False

    @property
    def most(self) -> int:
        """The most seats that it occupies at once."""
        return max(self.seats, self.final_seats)

    @property
    def total_work(self) -> float:
        """The total work, in seat-seconds."""
        return self.seats * ESTIMATED_SERVICE_S + self.final_seats * self.additional_s


ONE: Final = Work()


class QueuedRequest:
    """One request in a priority level. `about`: its description in dumps, which influences no decision."""

    __slots__ = (
        "about",
        "arrival_r",
        "arrival_s",
        "decide",
        "flow",
        "most",
        "queue",
        "start_s",
        "state",
        "total_work",
        "work",
    )

    def __init__(self, flow: Any, work: Work = ONE, about: Any = None) -> None:
        self.flow, self.work, self.about = flow, work, about
        self.most, self.total_work = work.most, work.total_work
        self.arrival_s = self.start_s = self.arrival_r = 0.0
        self.queue: Queue | None = None
        self.state = WAITING
        self.decide: Callable[[bool], None] | None = None
        """Called by the shell once it is known whether a request that waited is executed."""


class Queue:
    """One queue. `next_r`: the virtual time at which its oldest request would begin."""

    __slots__ = ("executing", "index", "next_r", "seats_in_use", "seats_waiting", "waiting", "work_waiting")

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiting: dict[QueuedRequest, None] = {}
        self.executing = self.seats_in_use = self.seats_waiting = 0
        self.work_waiting = self.next_r = 0.0

    @property
    def oldest(self) -> QueuedRequest | None:
        """The request that has waited longest."""
        return next(iter(self.waiting), None)


def hand_of(hashed: int, queues: int, size: int) -> tuple[int, ...]:
    """Return the `size` different queues, of `queues`, that are dealt to a flow with this hash."""
    remainders: list[int] = []
    for index in range(size):
        hashed, remainder = divmod(hashed, queues - index)
        remainders.append(remainder)
    hand: list[int] = []
    for place, card in enumerate(remainders):
        for before in reversed(remainders[:place]):
            card += card >= before
        hand.append(card)
    return tuple(hand)


def hash_of(schema: str, distinguisher: str) -> int:
    """Return the 64-bit hash of a flow."""
    digest = hashlib.sha256(f"{schema}\0{distinguisher}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


@dataclass(frozen=True)
class Queuing:
    """A queue configuration: `queues` of at most `length` requests, of which each flow is dealt `hand`.

    0 queues: a request that does not fit is refused. Fewer than 0: nothing is limited.
    """

    queues: int = 0
    hand: int = 0
    length: int = 0


UNLIMITED: Final = Queuing(queues=-1)
CONCURRENCY_LIMIT, QUEUE_FULL, TIME_OUT, CANCELLED = "concurrency-limit", "queue-full", "time-out", "cancelled"
"""Reasons for which a request is refused."""


@dataclass(frozen=True)
class Demand:
    """The seats in use or waited for over a period: average, standard deviation, maximum."""

    average: float = 0.0
    deviation: float = 0.0
    most: int = 0
    duration_s: float = 0.0


class QueueSet:
    """The queues of one priority level.

    Invariants: the seats in use are at most `limit`, unless one request that is wider than `limit` runs alone.
    While a waiting request fits, no executable request is left at the front of its queue.
    """

    def __init__(self, queuing: Queuing, limit: int, now_s: float = 0.0) -> None:
        self.queuing, self.limit = queuing, limit
        self.queues: list[Queue] = []
        self.waiting = self.executing = self.seats_in_use = self.seats_waiting = 0
        self.current_r = 0.0
        self.no_accommodation = 0
        """How often the request that was next was too wide for what was free."""
        self.rejected = self.timed_out = self.cancelled = self.dispatched = 0
        self._now_s = self._since_s = now_s
        self._busy = 0
        self._robin = self._enqueued = 0
        self._nonempty: dict[Queue, None] = {}
        """The queues in which something waits."""
        self._hands: dict[tuple[str, str], tuple[int, ...]] = {}
        self._sum = self._square_sum = 0.0
        self._most = 0
        self.configure(queuing, limit, now_s)

    @property
    def is_idle(self) -> bool:
        """Whether no request waits and none is executed."""
        return not self.waiting and not self.executing

    def configure(self, queuing: Queuing, limit: int, now_s: float) -> list[QueuedRequest]:
        """Apply another configuration and return the requests that are executed now.

        Surplus queues are removed once they are empty.
        """
        self._sync(now_s)
        if queuing != self.queuing:
            self._hands.clear()
        self.queuing, self.limit = queuing, limit
        while len(self.queues) < queuing.queues:
            self.queues.append(Queue(len(self.queues)))
        self._drop_surplus()
        return self._dispatch()

    # -- requests

    def start(self, request: QueuedRequest, schema: str, distinguisher: str, now_s: float) -> str:
        """Execute, queue or refuse a request; return "" or the reason of the refusal.

        Its state says whether it waits. Then call `dispatch`, because it may be narrower than the requests that already
        wait.
        """
        self._sync(now_s)
        request.arrival_s, request.arrival_r = now_s, self.current_r
        if self.queuing.queues < 1:
            if not self._fits(request.most):
                self.rejected += 1
                return CONCURRENCY_LIMIT
            self._execute(request)
            return ""
        queue = self._queue_for(schema, distinguisher)
        if not self.waiting and self._fits(request.most):
            if not queue.executing or queue.next_r < self.current_r:
                queue.next_r = self.current_r
            request.queue = queue
            self._execute(request)
            return ""
        if self.seats_in_use >= self.limit and len(queue.waiting) >= self.queuing.length:
            self.rejected += 1
            return QUEUE_FULL
        if not queue.waiting and not queue.executing:
            queue.next_r = self.current_r
            self._busy += 1
        request.queue, request.state = queue, WAITING
        queue.waiting[request] = None
        self._nonempty[queue] = None
        queue.seats_waiting += request.most
        queue.work_waiting += request.total_work
        self.waiting += 1
        self.seats_waiting += request.most
        self._clamp_virtual_time(queue)
        self._note_demand()
        return ""

    def dispatch(self, now_s: float) -> list[QueuedRequest]:
        """Return the requests that are executed from now on; the one enqueued last may or may not be among them."""
        self._sync(now_s)
        return self._dispatch()

    def finish(self, request: QueuedRequest, now_s: float) -> list[QueuedRequest]:
        """End an executed request and return the requests that are executed now.

        Its seats are kept for `work.additional_s`, after which `release` must be called; if that is 0, they are
        released at once.
        """
        self._sync(now_s)
        request.state = FINISHED
        self.executing -= 1
        if (queue := request.queue) is not None:
            queue.executing -= 1
            # The start was estimated with another service time than it had.
            queue.next_r -= request.work.seats * (ESTIMATED_SERVICE_S - (now_s - request.start_s))
            self._clamp_virtual_time(queue)
            if not queue.executing and not queue.waiting:
                self._busy -= 1
        if request.work.additional_s > 0:
            return []
        return self._release(request)

    def release(self, request: QueuedRequest, now_s: float) -> list[QueuedRequest]:
        """Release the seats that a finished request has kept, and return the requests that are executed now."""
        self._sync(now_s)
        return self._release(request)

    def withdraw(self, request: QueuedRequest, why: str, now_s: float) -> list[QueuedRequest]:
        """Remove a waiting request from its queue, and return the requests that are executed now. `why`: TIME_OUT,
        CANCELLED.
        """
        self._sync(now_s)
        queue = request.queue
        if request.state != WAITING or queue is None:
            return []
        self._leave(queue, request)
        request.state = FINISHED
        if not queue.executing and not queue.waiting:
            self._busy -= 1
        self._clamp_virtual_time(queue)
        self.rejected += 1
        self.timed_out += why == TIME_OUT
        self.cancelled += why == CANCELLED
        self._note_demand()
        return self._dispatch()

    # -- demand

    def demand(self, now_s: float) -> Demand:
        """Return the demand since the last call, and begin another period."""
        self._sync(now_s)
        duration_s = now_s - self._since_s
        now = self.seats_in_use + self.seats_waiting
        demand = Demand(float(now), 0.0, max(self._most, now))
        if duration_s > 0:
            average = self._sum / duration_s
            variance = max(0.0, self._square_sum / duration_s - average * average)
            demand = Demand(average, variance**0.5, max(self._most, now), duration_s)
        self._since_s, self._sum, self._square_sum, self._most = now_s, 0.0, 0.0, now
        return demand

    # -- inside

    def _sync(self, now_s: float) -> None:
        """Let virtual time pass: each busy queue is served at the same rate, by all the seats that are wanted."""
        passed_s = now_s - self._now_s
        if passed_s <= 0:
            return
        self._now_s = now_s
        demanded = self.seats_in_use + self.seats_waiting
        if demanded:
            self._sum += demanded * passed_s
            self._square_sum += demanded * demanded * passed_s
            if self._busy:
                self.current_r += passed_s * min(demanded, self.limit) / self._busy

    def _note_demand(self) -> None:
        demanded = self.seats_in_use + self.seats_waiting
        if demanded > self._most:
            self._most = demanded

    def _queue_for(self, schema: str, distinguisher: str) -> Queue:
        """Return the queue of the flow's hand in which the least work waits."""
        hand = self._hands.get((schema, distinguisher))
        if hand is None:
            if len(self._hands) >= HANDS_MAX:
                self._hands.clear()
            hand = hand_of(hash_of(schema, distinguisher), self.queuing.queues, self.queuing.hand)
            self._hands[schema, distinguisher] = hand
        offset, self._enqueued = self._enqueued % len(hand), self._enqueued + 1
        queues = self.queues
        best = queues[hand[offset]]
        if self.waiting:
            for place in (*hand[offset + 1 :], *hand[:offset]):
                if queues[place].work_waiting < best.work_waiting:
                    best = queues[place]
        return best

    def _fits(self, seats: int) -> bool:
        if self.queuing.queues < 0:
            return True
        if seats > self.limit:
            # Wider than the whole level: it is executed alone.
            return not self.seats_in_use
        return self.seats_in_use + seats <= self.limit

    def _execute(self, request: QueuedRequest) -> None:
        request.state, request.start_s = EXECUTING, self._now_s
        self.executing += 1
        self.seats_in_use += request.most
        self.dispatched += 1
        if (queue := request.queue) is not None:
            if not queue.executing and not queue.waiting:
                self._busy += 1
            queue.executing += 1
            queue.seats_in_use += request.most
            queue.next_r += request.total_work
        self._note_demand()

    def _leave(self, queue: Queue, request: QueuedRequest) -> None:
        del queue.waiting[request]
        if not queue.waiting:
            del self._nonempty[queue]
        queue.seats_waiting -= request.most
        queue.work_waiting = queue.work_waiting - request.total_work if queue.waiting else 0.0
        self.waiting -= 1
        self.seats_waiting -= request.most

    def _dispatch(self) -> list[QueuedRequest]:
        requests: list[QueuedRequest] = []
        while self.waiting and self.seats_in_use < self.limit:
            request = self._next()
            if request is None:
                break
            requests.append(request)
        return requests

    def _next(self) -> QueuedRequest | None:
        """Execute the request that finishes first in virtual time, unless it does not fit; equal queues take turns."""
        count, robin = len(self.queues), self._robin
        best: Queue | None = None
        least = (0.0, 0)
        for queue in self._nonempty:
            key = (queue.next_r + next(iter(queue.waiting)).total_work, (queue.index - robin - 1) % count)
            if best is None or key < least:
                best, least = queue, key
        assert best is not None, "something waits"
        request = best.oldest
        assert request is not None
        if not self._fits(request.most):
            self.no_accommodation += 1
            return None
        self._robin = best.index
        best.executing += 1  # busy all the while
        self._leave(best, request)
        self._execute(request)
        best.executing -= 1
        self._clamp_virtual_time(best)
        return request

    def _clamp_virtual_time(self, queue: Queue) -> None:
        """Let no request be dispatched in virtual time before it arrived: a queue that uses less than its share does
        not save it."""
        oldest = queue.oldest
        if oldest is not None and queue.next_r < oldest.arrival_r:
            queue.next_r = oldest.arrival_r

    def _release(self, request: QueuedRequest) -> list[QueuedRequest]:
        self.seats_in_use -= request.most
        if request.queue is not None:
            request.queue.seats_in_use -= request.most
            self._drop_surplus()
        return self._dispatch()

    def _drop_surplus(self) -> None:
        if len(self.queues) <= max(0, self.queuing.queues):
            return
        wanted, kept = max(0, self.queuing.queues), list[Queue]()
        surplus = len(self.queues) - wanted
        for queue in reversed(self.queues):
            if surplus and not queue.waiting and not queue.executing and not queue.seats_in_use:
                surplus -= 1
            else:
                kept.append(queue)
        self.queues = kept[::-1]
        for index, queue in enumerate(self.queues):
            queue.index = index
