"""Which API call runs next: at most one wanted and one running call for each object.

A new call for an object takes the place of the one that waits: it is merged with it when both are of one type,
dropped when the other matters more, and put in its stead when it matters more itself. What is already running
is never taken back; the newer call waits behind it. A call may be delayed (KEP-5501): further delayed calls
change what will be said, not when; a call without delay makes the merged one due at once. Times are the
caller's monotonic seconds; callers that wait for a call are named in the `Finished` values that are returned.

Invariant: of one object at most one call runs, and at most one other is recorded.
Source: kep-5229 4; kep-5501 4.1. Deviates: a call recorded behind a running one is rebased on what that one
wrote, and dropped if nothing is left to say; upstream computes it from a status that no longer holds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, Self

import msgspec

from services.api.kinds.pod import Pod

CLOSED: Final = "api dispatcher is closed"
LESS_RELEVANT: Final = "a more relevant call is already enqueued for this object"
OVERRULED: Final = "a more relevant call was enqueued for this object"
MERGED: Final = "a call of the same type was enqueued for this object"
NO_EFFECT: Final = "call does not need to be executed because it has no effect"
SYNCED_AWAY: Final = "call does not need to be executed because after sync it has no effect"
OBJECT_GONE: Final = "the object is gone, or no longer waits for what the call says"


class ApiCall(Protocol):
    """One desired call about one object, as a value: every method returns a new call."""

    @property
    def call_type(self) -> str:
        """The name in metrics and in the table of relevances."""
        ...

    @property
    def uid(self) -> str:
        """The object's uid."""
        ...

    @property
    def is_noop(self) -> bool:
        """Whether the object is known to be so already."""
        ...

    def merged(self, old: Any) -> Self:
        """Return this call with what the older one of the same type still wants."""
        ...

    def synced(self, pod: Pod) -> Self:
        """Return this call over the object as it is now known."""
        ...

    def after(self, done: Any, rv: int) -> Self:
        """Return this call over the object as `done` left it at that version."""
        ...


class Ending(StrEnum):
    """How a call ended for the callers that wait for it."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    OVERWRITTEN = "overwritten"
    CLOSED = "closed"

    @property
    def is_expected(self) -> bool:
        """Whether it is no error: done, or made needless by another call."""
        return self in (Ending.DONE, Ending.SKIPPED, Ending.OVERWRITTEN)


class Finished(msgspec.Struct, frozen=True):
    """A call that is over."""

    call_id: int
    ending: Ending
    why: str = ""


class Added(msgspec.Struct, frozen=True):
    """The number of the call just added, and what its arrival ended, perhaps itself."""

    call_id: int
    finished: tuple[Finished, ...] = ()

    @property
    def own(self) -> Finished | None:
        """How the new call ended, if it has."""
        return next((each for each in self.finished if each.call_id == self.call_id), None)


class Started(msgspec.Struct, frozen=True):
    """A call to be run now; `finalize` must follow."""

    call_id: int
    call: Any


@dataclass(slots=True, eq=False)
class _Record:
    call: Any
    call_id: int
    not_before: float
    ticket: int = 0
    """Of its entry in the line or among the delayed; 0: it waits behind a running call, or runs."""


class CallQueue:
    """`relevances`: call type to weight; only types about different kinds of object may weigh the same."""

    def __init__(self, relevances: Mapping[str, int]) -> None:
        self._relevances = dict(relevances)
        self._records: dict[str, _Record] = {}
        self._running: dict[str, Started] = {}
        self._line: deque[tuple[int, str]] = deque()
        self._delayed: list[tuple[float, int, str]] = []
        self._tickets = 0
        self._last_id = 0
        self._is_closed = False
        self.pending: dict[str, int] = dict.fromkeys(relevances, 0)
        """Calls that wait to be run, by type."""

    # -- looking in ------------------------------------------------------------------------------------

    def is_running(self, uid: str) -> bool:
        """Whether a call about the object is under way."""
        return uid in self._running

    def wanted(self, uid: str) -> Any | None:
        """Return the latest wanted call of the object, waiting or running."""
        record = self._records.get(uid)
        return None if record is None else record.call

    def next_due(self, now: float) -> float | None:
        """Return when `pop` has something: now, later, or None for never."""
        self._promote(now)
        if self._peek() is not None:
            return now
        while self._delayed and not self._is_placed(self._delayed[0][2], self._delayed[0][1]):
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    # -- requests ----------------------------------------------------------------------------------------

    def add(self, call: ApiCall, now: float, *, delay_s: float = 0.0) -> Added:
        """Record the call; it may be run from `now + delay_s` on."""
        self._last_id += 1
        call_id, uid, new = self._last_id, call.uid, call
        if self._is_closed:
            return Added(call_id, (Finished(call_id, Ending.CLOSED, CLOSED),))
        due = now + delay_s
        ended: list[Finished] = []
        old = self._records.get(uid)
        if old is not None:
            running = self._running.get(uid)
            is_old_running = running is not None and running.call_id == old.call_id
            if self._relevances[call.call_type] < self._relevances[old.call.call_type]:
                return Added(call_id, (Finished(call_id, Ending.SKIPPED, LESS_RELEVANT),))
            if call.call_type == old.call.call_type:
                new = call.merged(old.call)
                ended.append(Finished(old.call_id, Ending.OVERWRITTEN, MERGED))
                if not is_old_running:
                    due = min(due, old.not_before)
            elif not is_old_running:
                ended.append(Finished(old.call_id, Ending.OVERWRITTEN, OVERRULED))
        if new.is_noop and uid not in self._running:
            if old is not None:
                self._remove(uid)
            ended.append(Finished(call_id, Ending.SKIPPED, NO_EFFECT))
            return Added(call_id, tuple(ended))
        self._record(uid, _Record(new, call_id, due), now)
        return Added(call_id, tuple(ended))

    def sync(self, pod: Pod) -> list[Finished]:
        """Take in the object as the watch shows it; a waiting call with nothing left to say is dropped."""
        uid = pod.metadata.uid
        record = self._records.get(uid)
        running = self._running.get(uid)
        if record is None or (running is not None and running.call_id == record.call_id):
            return []
        record.call = record.call.synced(pod)
        if running is not None or not record.call.is_noop:
            return []
        self._remove(uid)
        return [Finished(record.call_id, Ending.SKIPPED, SYNCED_AWAY)]

    def drop(self, uid: str, call_type: str) -> list[Finished]:
        """Forget the object's waiting call of that type."""
        record = self._records.get(uid)
        running = self._running.get(uid)
        if record is None or record.call.call_type != call_type:
            return []
        if running is not None and running.call_id == record.call_id:
            return []
        self._remove(uid)
        return [Finished(record.call_id, Ending.SKIPPED, OBJECT_GONE)]

    # -- running -----------------------------------------------------------------------------------------

    def pop(self, now: float) -> Started | None:
        """Return the next due call, now running, or None; `finalize` must follow."""
        self._promote(now)
        uid = self._peek()
        if uid is None or self._is_closed:
            return None
        self._line.popleft()
        record = self._records[uid]
        self._unplace(record)
        started = self._running[uid] = Started(record.call_id, record.call)
        return started

    def finalize(self, started: Started, now: float, *, is_done: bool, rv: int = 0, why: str = "") -> list[Finished]:
        """End a run; `rv` is the version its write made, 0 when it wrote nothing. A call behind it gets its turn."""
        uid = started.call.uid
        del self._running[uid]
        ended = [Finished(started.call_id, Ending.DONE if is_done else Ending.FAILED, why)]
        record = self._records.get(uid)
        if record is None:
            return ended
        if record.call_id == started.call_id:
            del self._records[uid]
            return ended
        if is_done:
            record.call = record.call.after(started.call, rv)
        if record.call.is_noop:
            del self._records[uid]
            return [*ended, Finished(record.call_id, Ending.SKIPPED, NO_EFFECT)]
        self._place(record, now)
        return ended

    def close(self) -> list[Finished]:
        """Take no more calls and start none; every waiting caller gets an error."""
        if self._is_closed:
            return []
        self._is_closed = True
        ids = {record.call_id: None for record in self._records.values()}
        ids.update((started.call_id, None) for started in self._running.values())
        return [Finished(call_id, Ending.CLOSED, CLOSED) for call_id in ids]

    # -- places ------------------------------------------------------------------------------------------

    def _record(self, uid: str, new: _Record, now: float) -> None:
        old = self._records.get(uid)
        self._records[uid] = new
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

    def _place(self, record: _Record, now: float) -> None:
        self._tickets += 1
        record.ticket = self._tickets
        self.pending[record.call.call_type] += 1
        if record.not_before <= now:
            self._line.append((record.ticket, record.call.uid))
        else:
            heapq.heappush(self._delayed, (record.not_before, record.ticket, record.call.uid))

    def _unplace(self, record: _Record) -> None:
        if record.ticket:
            record.ticket = 0  # makes its entry stale
            self.pending[record.call.call_type] -= 1

    def _remove(self, uid: str) -> None:
        self._unplace(self._records.pop(uid))

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
