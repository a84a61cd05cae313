"""Distribution of store changes to bounded queues, one per watch; a slow watch is cut, and no events are
skipped (W14, W15).

A watch sees a change as an event through its selection. The hub finds a change's watchers by index: a watch on
one name or on one node's pods costs nothing for changes of others. Events are made once and shared. Events are
read from a watcher with `take`; its `notify` callback signals that there are events, so one task may serve
thousands of watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from apiserver_fake.storage.backlog import Backlog, Backlogs
from apiserver_fake.storage.records import DELETED, Change, Selection, future_version, parse_rv
from apiserver_fake.storage.store import INDEXED_FIELDS, Store
from apiserver_fake.storage.watch_events import bookmark, error_event, event_for, event_of, transition_type
from services.api.errors import ApiError, BadRequest, Expired, TooManyRequests
from services.api.identity import Identity
from services.api.meta import Resource
from services.api.seams import Clock, Random
from services.api.wire import WatchEvent, WatchRequest
from services.telemetry.metrics import Histogram

QUEUE_EVENTS = 1_000
QUEUE_BYTES = 1 << 20
QUEUED_BYTES_MAX = 256 << 20
"""Bytes of distinct events in all queues (L-WT)."""
BATCH_EVENTS = 500
BATCH_BYTES = 1 << 20
BOOKMARK_S = 10.0
LAST_BOOKMARK_S = 2.0
SEND_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of the histogram of W17."""
DURATION_MIN_S, DURATION_MAX_S = 300.0, 600.0
DURATION_ASKED_MAX_S = 1_800.0
FUTURE_WAIT_S = 3.0
WATCHERS_MAX = 20_000
WATCHERS_PER_NODE, WATCHERS_PER_IDENTITY = 16, 256

TIMEOUT, SLOW, EXPIRED, SHUTDOWN, CLIENT_GONE = "Timeout", "SlowWatcher", "Expired", "Shutdown", "ClientGone"
REDEFINED = "Redefined"

Notify = Callable[["Watcher"], None]
Taken = Callable[["Watcher", list[WatchEvent]], None]


class _Queued(msgspec.Struct):
    """A live event in the queues of watches, made once for all of them. `queues`: the number of queues that hold it."""

    event: WatchEvent
    size: int
    at_s: float
    queues: int = 0


class Watcher:
    """One watch: the backlog of its start, then a bounded queue of live events.

    Invariant: the events returned by `take` are a contiguous prefix of the matching changes above the start.
    `end_reason` is empty while the watch lives. Queued events may be taken after its end, except when it was cut
    for slowness.
    """

    __slots__ = (
        "_backlog", "_hub", "_place", "_queue", "bookmarks", "end_reason", "ends_at_s", "identity", "is_empty",
        "is_held", "is_over", "is_selecting", "last_rv", "notify", "number", "queued_bytes", "request", "resource",
        "selection", "start_rv",
    )  # fmt: skip

    def __init__(
        self, hub: Hub, number: int, identity: Identity, resource: Resource, request: WatchRequest, selection: Selection
    ) -> None:
        self._hub, self.number, self.identity = hub, number, identity
        self.resource, self.request, self.selection = resource, request, selection
        self.bookmarks = request.allow_bookmarks
        self.is_selecting = bool(selection.namespace or selection.is_filtered)
        """Whether it selects fewer than all objects of its kind."""
        self.is_empty = False
        """Whether the last `take` left nothing: whoever was called by `notify` since has events again."""
        self.start_rv = self.last_rv = 0
        self.end_reason = ""
        self.is_over = False
        """Whether no more events will come: it has ended, and all its events were taken."""
        self.is_held = False
        """Whether it waits for `Hub.release`."""
        self.ends_at_s = 0.0
        self.notify: Notify | None = None
        self._backlog: Backlog | None = None
        self._queue: list[_Queued] = []
        self.queued_bytes = 0
        self._place: dict[int, Watcher] | None = None

    @property
    def queue_length(self) -> int:
        """Number of live events that wait to be taken."""
        return len(self._queue)

    @property
    def is_filling(self) -> bool:
        """Whether so many events wait that they should be taken at once."""
        return len(self._queue) * 8 > self._hub.queue_events or self.queued_bytes * 8 > self._hub.queue_bytes

    @property
    def has_events(self) -> bool:
        """Whether `take` would return events."""
        return bool(self._backlog or self._queue)

    @property
    def is_beginning(self) -> bool:
        """Whether part of its start has not been taken yet."""
        return self.is_held or self._backlog is not None

    def take(self, events_max: int = BATCH_EVENTS, bytes_max: int = BATCH_BYTES) -> list[WatchEvent]:
        """Return the next events, oldest first: at most `events_max` and about `bytes_max`; [] when none wait."""
        if self._backlog is not None:
            if events := self._backlog.take(events_max, bytes_max):
                self.is_empty = False
                self.is_over = bool(self.end_reason) and not self.has_events
                return self._take(events)
            self._backlog = None
        queue = self._queue
        if not queue:
            self.is_empty = True
            self.is_over = bool(self.end_reason)
            return []
        hub, taken, size = self._hub, list[WatchEvent](), 0
        for queued in queue:
            if taken and (len(taken) >= events_max or size + queued.size > bytes_max):
                break
            taken.append(queued.event)
            size += queued.size
            queued.queues -= 1
            if not queued.queues:
                hub.queued_bytes -= queued.size
        self.queued_bytes -= size
        del queue[: len(taken)]
        self.is_empty = not queue
        if self.end_reason:
            self.is_over = self.is_empty
        # As in `_take`; most events leave by this way.
        self.last_rv = max(self.last_rv, taken[-1].rv)
        if hub.taken is not None:
            hub.taken(self, taken)
        return taken

    def take_piece(self, events_max: int = BATCH_EVENTS, bytes_max: int = BATCH_BYTES) -> list[WatchEvent]:
        """Return the next events like `take`; while the start lasts, return one whole piece of it, which may be
        empty.
        """
        if self._backlog is not None:
            events = self._backlog.piece()
            if not self._backlog:
                self._backlog = None
                self.is_over = bool(self.end_reason) and not self._queue
            return self._take(events) if events else events
        if self._queue:
            self._hub.sent_s.observe(self._hub.now() - self._queue[0].at_s)
        return self.take(events_max, bytes_max)

    def _take(self, events: list[WatchEvent]) -> list[WatchEvent]:
        self.last_rv = max(self.last_rv, events[-1].rv)
        if self._hub.taken is not None:
            self._hub.taken(self, events)
        return events

    def close(self, reason: str = CLIENT_GONE) -> None:
        """End the watch and drop the events it has not taken. A second call has no effect."""
        self._hub.end(self, reason)
        self._drop()

    # -- the hub's side

    def begin(self, backlog: Backlog | None) -> None:
        """Set the backlog of the start, which is taken first; it does not count against the queue's limits."""
        self._backlog = backlog
        if backlog:
            self._notify_once()

    def send_first_frame(self) -> None:
        """Send the first frame, even when no event is pending."""
        self._notify_once()

    def offer(self, queued: _Queued) -> None:
        """Queue a live event; cut the watch if it has not kept up (W14)."""
        hub, queue = self._hub, self._queue
        if len(queue) >= hub.queue_events or (queue and self.queued_bytes + queued.size > hub.queue_bytes):
            self.cut()
            return
        queue.append(queued)
        self.queued_bytes += queued.size
        if not queued.queues:
            hub.queued_bytes += queued.size
        queued.queues += 1
        if len(queue) == 1 and self.notify is not None:
            self.notify(self)

    def cut(self) -> None:
        """End the watch as too slow, and drop the events it has not taken (W14)."""
        self._drop()
        self._hub.end(self, SLOW)

    def _drop(self) -> None:
        self._backlog = None
        for queued in self._queue:
            queued.queues -= 1
            if not queued.queues:
                self._hub.queued_bytes -= queued.size
        self._queue, self.queued_bytes = [], 0
        self.is_over = bool(self.end_reason)

    def settle(self, place: dict[int, Watcher]) -> None:
        """Add this watcher to an index entry, and remember the entry."""
        self._place = place
        place[self.number] = self

    def leave(self, reason: str) -> None:
        """Remove the watcher from the index and mark it as ended."""
        self.end_reason, self.is_over = reason, not self.has_events
        if self._place is not None:
            self._place.pop(self.number, None)
            self._place = None
        self._notify_once()

    @property
    def is_live(self) -> bool:
        """Whether the hub delivers live events to it already."""
        return self._place is not None

    def _notify_once(self) -> None:
        if self.notify is not None:
            self.notify(self)


class _Index:
    """The watchers of one kind, by their most selective criterion."""

    __slots__ = ("broad", "by_value")

    def __init__(self) -> None:
        self.broad: dict[int, Watcher] = {}
        self.by_value: dict[tuple[str, str], dict[int, Watcher]] = {}

    def place(self, selection: Selection, fields: tuple[str, ...]) -> dict[int, Watcher]:
        for field in ("metadata.name", *fields):
            value = selection.exact(field)
            if value:
                return self.by_value.setdefault((field, value), {})
        return self.broad

    def watchers_of(self, change: Change) -> list[Watcher]:
        """Return the watchers that may see a change, in the order in which they are told."""
        watchers = list(self.broad.values())
        record, previous = change.record, change.previous
        watchers += self.by_value.get(("metadata.name", record.name), {}).values()
        for field in INDEXED_FIELDS.get(record.resource, ()):
            now_value = record.fields.get(field, "")
            then_value = previous.fields.get(field, "") if previous is not None else ""
            for value in (now_value,) if now_value == then_value else (now_value, then_value):
                if value:
                    watchers += self.by_value.get((field, value), {}).values()
        return watchers


def _waiting_bytes(watcher: Watcher) -> int:
    return watcher.queued_bytes


class Hub:
    """All watches. There is no await between reading the store and entering the index, so that no change is
    lost or doubled (W12, P2).
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        random: Random,
        *,
        ended: Notify | None = None,
        taken: Taken | None = None,
        queue_events: int = QUEUE_EVENTS,
        queue_bytes: int = QUEUE_BYTES,
        queued_bytes_max: int = QUEUED_BYTES_MAX,
    ) -> None:
        self._store, self._clock, self._random = store, clock, random
        self._ended, self.taken = ended, taken
        self.queue_events, self.queue_bytes = queue_events, queue_bytes
        self._queued_bytes_max, self.now = queued_bytes_max, clock.now
        self._indexes: dict[str, _Index] = {}
        self._watchers: dict[int, Watcher] = {}
        self._per_identity: dict[str, int] = {}
        self._timers: list[tuple[float, int, str, int]] = []
        self._is_sooner = asyncio.Event()
        """A timer was set before which none was due."""
        self._future: list[tuple[int, asyncio.Future[None]]] = []
        self._waiting: dict[int, Watcher] = {}
        self._number = self._timer_number = 0
        self._bookmarks: dict[str, _Queued] = {}
        self._backlogs = Backlogs(store)
        self.events_sent = self.closed_slow = self.queued_bytes = 0
        self.sent_s = Histogram(SEND_SECONDS)
        """From the publication of a change until a watch's stream takes it, of the oldest of each batch (W17)."""

    def counts(self) -> dict[str, int]:
        """Return the number of watchers by resource, in name order."""
        return dict(sorted(Counter(watcher.resource.name for watcher in self._watchers.values()).items()))

    # -- opening

    def count_interested(self, resource: str) -> int:
        """Return how many watches may receive an event of that kind, whichever object it is about."""
        index = self._indexes.get(resource)
        return len(index.broad) if index is not None else 0

    def users(self) -> frozenset[str]:
        """Return the users whose watches are open."""
        return frozenset(watcher.identity.user for watcher in self._watchers.values())

    def open(
        self, identity: Identity, resource: Resource, request: WatchRequest, notify: Notify, *, is_held: bool = False
    ) -> Watcher:
        """Begin a watch; from now on `notify` is called whenever its queue stops being empty or it ends.

        A watch with `is_held` begins with `release`.

        Raises: BadRequest for malformed parameters, TooManyRequests above the number of watches (L-WN). A version that
        is too old or too far ahead is an ERROR event, then the end (W10, W11).
        """
        selection = Selection.parse(resource, request.namespace, request.label_selector, request.field_selector)
        start = self._start_of(request)
        self._admit(identity)
        self._number += 1
        watcher = Watcher(self, self._number, identity, resource, request, selection)
        self._watchers[watcher.number] = watcher
        self._per_identity[identity.user] = self._per_identity.get(identity.user, 0) + 1
        duration_s = self._random.uniform(DURATION_MIN_S, DURATION_MAX_S)
        if request.timeout_s > 0:
            duration_s = min(request.timeout_s, DURATION_ASKED_MAX_S)
        now_s = self._clock.now()
        watcher.ends_at_s = now_s + duration_s
        self._set_timer(watcher.ends_at_s, "end", watcher.number)
        if watcher.bookmarks:
            if duration_s > LAST_BOOKMARK_S:
                self._set_timer(watcher.ends_at_s - LAST_BOOKMARK_S, "last", watcher.number)
            self._set_timer(now_s + BOOKMARK_S, "bookmark", watcher.number)
        if is_held:
            watcher.is_held = True
        elif start > self._store.rv:
            watcher.start_rv = start
            self._waiting[watcher.number] = watcher
            self._set_timer(now_s + FUTURE_WAIT_S, "future", watcher.number)
        else:
            self._begin(watcher, start)
        watcher.notify = notify
        if watcher.has_events or watcher.end_reason:
            notify(watcher)
        return watcher

    def release(self, watcher: Watcher, error: ApiError | None = None) -> None:
        """Let a held watch begin now, or end with that error."""
        watcher.is_held = False
        if watcher.end_reason:
            return
        if error is None:
            self._begin(watcher, 0)
            watcher.send_first_frame()
        else:
            watcher.begin(Backlog(None, [error_event(error, watcher.resource)]))
            self.end(watcher, EXPIRED)

    def size(self, resource: Resource, request: WatchRequest) -> int:
        """Return the most objects or changes that a watch begins with; 0 for a watch that would be refused."""
        try:
            selection = Selection.parse(resource, request.namespace, request.label_selector, request.field_selector)
            start = self._start_of(request)
        except BadRequest:
            return 0
        is_state = start == 0 or request.send_initial_events
        return self._backlogs.size(resource.name, selection, None if is_state else start)

    def _start_of(self, request: WatchRequest) -> int:
        match = request.resource_version_match
        start = parse_rv(request.resource_version)
        if request.send_initial_events:
            if match != "NotOlderThan":
                raise BadRequest(f"sendInitialEvents needs resourceVersionMatch=NotOlderThan, got {match!r}")
        elif match:
            raise BadRequest(f"resourceVersionMatch {match!r} is forbidden for watch unless sendInitialEvents is set")
        return start

    def _admit(self, identity: Identity) -> None:
        most = WATCHERS_PER_NODE if identity.node else WATCHERS_PER_IDENTITY
        mine = self._per_identity.get(identity.user, 0)
        if mine >= most:
            raise TooManyRequests(f"{identity.user} has {mine} watches, at most {most} are allowed", retry_after_s=1)
        if len(self._watchers) >= WATCHERS_MAX:
            raise TooManyRequests(f"{len(self._watchers)} watches are open, the most there may be", retry_after_s=1)
        if self.queued_bytes + self.queue_bytes > self._queued_bytes_max:
            text = f"{self.queued_bytes} bytes wait for watches, at most {self._queued_bytes_max} may (L-WT)"
            raise TooManyRequests(text, retry_after_s=1)

    def _begin(self, watcher: Watcher, start: int) -> None:
        """Give a watcher what exists or what it missed, and enter it into the index. No await (W12)."""
        request, resource, selection = watcher.request, watcher.resource, watcher.selection
        rv = self._store.rv
        try:
            if start == 0 or request.send_initial_events:
                is_marked = request.send_initial_events and request.allow_bookmarks
                mark = [bookmark(resource, rv, initial_events_end=True)] if is_marked else []
                backlog = self._backlogs.state(resource.name, selection, mark)
                watcher.start_rv = watcher.last_rv = rv
            else:
                backlog = self._backlogs.backlog_after(resource.name, selection, start)
                watcher.start_rv = watcher.last_rv = start
        except Expired as error:
            watcher.begin(Backlog(None, [error_event(error, resource)]))
            self.end(watcher, EXPIRED)
            return
        watcher.begin(backlog)
        index = self._indexes.setdefault(resource.name, _Index())
        watcher.settle(index.place(selection, INDEXED_FIELDS.get(resource.name, ())))

    # -- changes

    def publish(self, changes: Sequence[Change]) -> None:
        """Deliver published changes to every watch that selects them, in order."""
        self._bookmarks.clear()
        now_s = self._clock.now()
        for change in changes:
            index = self._indexes.get(change.record.resource)
            if index is not None:
                self._deliver(change, index, now_s)
        while self.queued_bytes > self._queued_bytes_max:
            max(self._watchers.values(), key=_waiting_bytes).cut()
        rv = self._store.rv
        for watcher in list(self._waiting.values()):
            if watcher.start_rv <= rv:
                del self._waiting[watcher.number]
                self._begin(watcher, watcher.start_rv)
        # Each takes itself out of the list when it wakes.
        for wanted, future in self._future:
            if wanted <= rv and not future.done():
                future.set_result(None)

    def _deliver(self, change: Change, index: _Index, now_s: float) -> None:
        queued_by_type: dict[str, _Queued] = {}
        for watcher in index.watchers_of(change) if index.by_value else list(index.broad.values()):
            kind = transition_type(change, watcher.selection) if watcher.is_selecting else change.type
            if not kind:
                continue
            queued = queued_by_type.get(kind)
            if queued is None:
                is_end = kind == DELETED
                event = event_for(kind, change) if is_end else event_of(kind, change.record, change.traceparent)
                queued = queued_by_type[kind] = _Queued(event, len(event.body), now_s)
            self.events_sent += 1
            watcher.offer(queued)

    async def wait_until_visible(self, rv: int) -> None:
        """Wait until the store has reached `rv`. Raises: Timeout `ResourceVersionTooLarge` after 3 s (S12)."""
        if rv <= self._store.rv:
            return
        future = asyncio.get_running_loop().create_future()
        self._future.append((rv, future))
        try:
            async with asyncio.timeout(FUTURE_WAIT_S):
                await future
        except TimeoutError:
            raise future_version(rv, self._store.rv) from None
        finally:
            self._future = [(r, f) for r, f in self._future if f is not future]

    # -- ending

    def end(self, watcher: Watcher, reason: str) -> None:
        """End a watch for that reason; only the first call has an effect."""
        if watcher.end_reason:
            return
        self._watchers.pop(watcher.number, None)
        self._waiting.pop(watcher.number, None)
        user = watcher.identity.user
        self._per_identity[user] -= 1
        if not self._per_identity[user]:
            del self._per_identity[user]
        self.closed_slow += reason == SLOW
        watcher.leave(reason)
        self._prune(watcher)
        if self._ended is not None:
            self._ended(watcher)

    def _prune(self, watcher: Watcher) -> None:
        index = self._indexes.get(watcher.resource.name)
        if index is None:
            return
        for field in ("metadata.name", *INDEXED_FIELDS.get(watcher.resource.name, ())):
            value = watcher.selection.exact(field)
            if value and not index.by_value.get((field, value), True):
                del index.by_value[(field, value)]

    def end_kind(self, resource: str) -> None:
        """End all watches of a kind, because it is served differently from now on; their clients resume."""
        for watcher in [each for each in self._watchers.values() if each.resource.name == resource]:
            self.end(watcher, REDEFINED)

    def shut_down(self) -> None:
        """End all watches."""
        for watcher in list(self._watchers.values()):
            self.end(watcher, SHUTDOWN)

    # -- time

    def _set_timer(self, at_s: float, what: str, number: int) -> None:
        self._timer_number += 1
        heapq.heappush(self._timers, (at_s, self._timer_number, what, number))
        if self._timers[0][1] == self._timer_number:
            self._is_sooner.set()

    async def run(self) -> None:
        """Send bookmarks and end expired watches, until cancelled."""
        while True:
            wait_s = self.tick(self._clock.now())
            self._is_sooner.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._is_sooner.wait()

    def tick(self, now_s: float) -> float | None:
        """Do the work that is due; return the seconds until the next work, or None if none is planned."""
        timers = self._timers
        while timers and timers[0][0] <= now_s:
            at_s, _, what, number = heapq.heappop(timers)
            watcher = self._watchers.get(number)
            if watcher is None:
                continue
            if what == "end":
                self.end(watcher, TIMEOUT)
            elif what == "future":
                if number in self._waiting:
                    error = future_version(watcher.start_rv, self._store.rv)
                    watcher.begin(Backlog(None, [error_event(error, watcher.resource)]))
                    self.end(watcher, EXPIRED)
            else:
                self.report_progress(watcher)
                if what == "bookmark":
                    self._set_timer(at_s + BOOKMARK_S, what, number)
        while timers and timers[0][3] not in self._watchers:
            heapq.heappop(timers)
        return max(0.0, timers[0][0] - now_s) if timers else None

    def report_progress(self, watcher: Watcher) -> None:
        """Queue a bookmark at the store's version after the waiting events, if the watch takes bookmarks."""
        if watcher.bookmarks and watcher.is_live:
            watcher.offer(self._bookmark(watcher.resource))

    def _bookmark(self, resource: Resource) -> _Queued:
        found = self._bookmarks.get(resource.name)
        if found is None:
            event = bookmark(resource, self._store.rv)
            found = self._bookmarks[resource.name] = _Queued(event, len(event.body), self._clock.now())
        return found
