"""The order of API calls: at most one pending and one running call for each object.

A new call for an object replaces the pending one: it is merged with it when both are of one type, dropped
when the pending one is more relevant, and put in its place when it is more relevant itself. A running call
is never taken back; the newer call waits behind it. A call may be delayed (KEP-5501): further delayed calls
change its content, not its time; a call without delay makes the merged one due at once. Reports of
PreEnqueue may have a rate limit of their own: a due report then waits for its token as if for a delay.
Times are the caller's monotonic seconds; callers that wait for a call are named in the `Endings` that are
returned.

Invariant: for one object at most one call runs, and at most one other is recorded. Source: kep-5229 4;
kep-5501 4.1. Deviates: a call recorded behind a running one is rebased on what that one wrote, and dropped
if it would change nothing; upstream computes it from a status that no longer holds.
"""

import heapq
from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum

from scheduler.dispatcher.calls import POD_BINDING, POD_STATUS_PATCH, RELEVANCES, ApiCall, StatusPatch
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.reconcile.workqueue import TokenBucket


class Ending(StrEnum):
    """The end of a call, for the callers that wait for it.

    Skipped: it would change nothing (any more), a more relevant call is recorded, or its object is gone.
    Overwritten: a more relevant call took its place, or one of its own type that it was merged with.
    """

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    OVERWRITTEN = "overwritten"
    CLOSED = "closed"


Endings = dict[int, Ending]
"""The ended calls, by their numbers."""


@dataclass(slots=True, eq=False)
class Recorded:
    """A recorded call and its number."""

    call: ApiCall
    call_id: int
    not_before: float
    ticket: int = 0
    """The ticket of its entry in the line or among the delayed calls.

    0: it waits behind a running call, or runs.
    """
    has_token: bool = False
    """Whether it has a reserved token of the reports' own rate limit."""


class CallQueue:
    """The recorded and the running calls, by their objects' uids."""

    def __init__(self, reports: TokenBucket | None = None) -> None:
        """Start empty. `reports`: the rate limit of reports, if they have one of their own."""
        self._reports = reports
        self._records: dict[str, Recorded] = {}
        self._running: dict[str, Recorded] = {}
        self._line: deque[tuple[int, str]] = deque()
        self._delayed: list[tuple[float, int, str]] = []
        self._tickets = 0
        self._last_id = 0
        self._is_closed = False
        self.pending = Counter({POD_STATUS_PATCH: 0, POD_BINDING: 0})
        """Calls that wait to be run, by type; patches of groups only once there was one."""

    def next_due(self, now: float) -> float | None:
        """Return when `pop` will return a call: now, later, or None for never."""
        self._promote(now)
        if self._peek() is not None:
            return now
        while self._delayed and not self._is_placed(self._delayed[0][2], self._delayed[0][1]):
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    def add(self, call: ApiCall, now: float, *, delay_s: float = 0.0) -> tuple[int, Endings]:
        """Record the call, which may run from `now + delay_s` on; return its number and the calls that it ended."""
        self._last_id += 1
        call_id, uid, due = self._last_id, call.uid, now + delay_s
        if self._is_closed:
            return call_id, {call_id: Ending.CLOSED}
        ended = Endings()
        old = self._records.get(uid)
        if old is not None:
            is_old_running = self._running.get(uid) is old
            # A bind overwrites no report in a condition of its own: what clears it waits until the bind is answered.
            is_behind = is_old_running and isinstance(call, StatusPatch) and call.is_report
            if RELEVANCES[call.call_type] < RELEVANCES[old.call.call_type] and not is_behind:
                return call_id, {call_id: Ending.SKIPPED}
            if call.call_type == old.call.call_type:
                call = call.merge(old.call)
                ended[old.call_id] = Ending.OVERWRITTEN
                if not is_old_running:
                    due = min(due, old.not_before)
            elif not is_old_running:
                ended[old.call_id] = Ending.OVERWRITTEN
        if call.is_noop and uid not in self._running:
            if old is not None:
                self._remove(uid)
            ended[call_id] = Ending.SKIPPED
        else:
            self._record(uid, Recorded(call, call_id, due), now)
        return call_id, ended

    def sync(self, live: Pod | PodGroup) -> Endings:
        """Take the object as the watch shows it; drop a waiting call that would change nothing."""
        uid = live.metadata.uid
        record, running = self._records.get(uid), self._running.get(uid)
        if record is None or running is record:
            return {}
        record.call = record.call.sync(live)
        return self._remove(uid) if running is None and record.call.is_noop else {}

    def drop_status(self, uid: str) -> Endings:
        """Drop the object's waiting status patch."""
        record = self._records.get(uid)
        if record is None or not isinstance(record.call, StatusPatch) or self._running.get(uid) is record:
            return {}
        return self._remove(uid)

    def pop(self, now: float) -> Recorded | None:
        """Return the next due call, marked as running, or None; `finalize` must follow."""
        self._promote(now)
        uid = self._peek()
        while uid is not None and self._must_wait(self._records[uid], now):
            uid = self._peek()
        if uid is None or self._is_closed:
            return None
        self._line.popleft()
        started = self._running[uid] = self._records[uid]
        self._unplace(started)
        return started

    def finalize(self, started: Recorded, now: float, *, is_done: bool, rv: int = 0) -> Endings:
        """End a run; `rv` is the version its write made, 0 without a write. The call behind it becomes pending."""
        uid = started.call.uid
        del self._running[uid]
        ended = {started.call_id: Ending.DONE if is_done else Ending.FAILED}
        record = self._records.get(uid)
        if record is started:
            del self._records[uid]
        elif record is not None:
            if is_done:
                record.call = record.call.after(started.call, rv)
            if record.call.is_noop:
                return ended | self._remove(uid)
            self._place(record, now)
        return ended

    def close(self) -> Endings:
        """Refuse further calls and start none; every waiting caller gets an error."""
        if self._is_closed:
            return {}
        self._is_closed = True
        return {each.call_id: Ending.CLOSED for each in (*self._records.values(), *self._running.values())}

    def _must_wait(self, record: Recorded, now: float) -> bool:
        """Whether the due call is a report whose token is not there yet; then it is delayed until it is."""
        call = record.call
        if self._reports is None or record.has_token or not (isinstance(call, StatusPatch) and call.is_report):
            return False
        record.has_token = True
        wait_s = self._reports.reserve(now)
        if not wait_s:
            return False
        self._unplace(record)
        record.not_before = now + wait_s
        self._place(record, now)
        return True

    def _record(self, uid: str, new: Recorded, now: float) -> None:
        old = self._records.get(uid)
        self._records[uid] = new
        if old is not None and uid not in self._running:
            new.has_token = old.has_token
        if uid in self._running:
            return
        if old is not None and max(old.not_before, new.not_before) <= now:
            # It stands in the line: the newer call keeps the place.
            new.ticket = old.ticket
            self.pending[old.call.call_type] -= 1
            self.pending[new.call.call_type] += 1
            return
        if old is not None:
            self._unplace(old)
        self._place(new, now)

    def _place(self, record: Recorded, now: float) -> None:
        self._tickets += 1
        record.ticket = self._tickets
        self.pending[record.call.call_type] += 1
        if record.not_before <= now:
            self._line.append((record.ticket, record.call.uid))
        else:
            heapq.heappush(self._delayed, (record.not_before, record.ticket, record.call.uid))

    def _unplace(self, record: Recorded) -> None:
        if record.ticket:
            record.ticket = 0  # makes its entry stale
            self.pending[record.call.call_type] -= 1

    def _remove(self, uid: str) -> Endings:
        record = self._records.pop(uid)
        self._unplace(record)
        return {record.call_id: Ending.SKIPPED}

    def _is_placed(self, uid: str, ticket: int) -> bool:
        record = self._records.get(uid)
        return record is not None and record.ticket == ticket

    def _promote(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            _, ticket, uid = heapq.heappop(self._delayed)
            if self._is_placed(uid, ticket):
                self._line.append((ticket, uid))

    def _peek(self) -> str | None:
        while self._line:
            ticket, uid = self._line[0]
            if self._is_placed(uid, ticket):
                return uid
            self._line.popleft()
        return None
