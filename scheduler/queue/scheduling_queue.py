"""The scheduling queue: the next pod to try, and when a rejected one deserves another attempt.

Three stores. *Active*: ready, ordered by QueueSort. *Back-off*: waiting out a penalty, in two heaps, one
for pods that plugins rejected and one for pods that came back by an error; an idle scheduler may take from
the first before its time (KEP-5142), never from the second. *Unschedulable*: waiting for an event that a
plugin's hint finds promising (`hints`); gated pods wait there too.

A pod popped and not yet done is *in flight* (`in_flight`): events are kept for it, so that changes during
its attempt are not missed. All times are the caller's monotonic seconds.

Invariant: a key is in exactly one pool; `pools` counts them. Source: scheduler-queue-and-cycles 2; upstream
`pkg/scheduler/backend/queue` v1.34.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.framework.events import (
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    POP_FROM_BACKOFF,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_TIMEOUT,
    UNSCHEDULED_POD_ADD,
    UNSCHEDULED_POD_UPDATE,
    WILDCARD,
    ClusterEvent,
    Registration,
)
from scheduler.framework.status import SUCCESS, Status
from scheduler.framework.timing import Turns, Watch
from scheduler.queue.backoff import Backoff
from scheduler.queue.hints import Hints, Strategy
from scheduler.queue.in_flight import InFlight
from scheduler.queue.queued_pod import Pool, QueuedPod
from scheduler.queue.rejected_pods import RejectedPods
from services.api.kinds.pod import Pod
from services.api.meta import Key

__all__ = ["Pool", "QueuedPod", "SchedulingQueue", "Strategy"]

UNSCHEDULABLE_STAY_S: Final = 300.0
LEFTOVER_PERIOD_S: Final = 30.0
STALE_MAX: Final = 64
"""Number of entries of removed pods that a heap keeps at least before it is cleaned."""
POPPED, POD_BOUND, POD_DELETED = "Pop", "Bind", "PodDelete"
"""Causes of a pod's move that are not cluster events: popped, bound, and gone or not waiting any more."""
IN_BACKOFF: Final = (Pool.BACKOFF, Pool.ERROR_BACKOFF)
PARKED: Final = (Pool.UNSCHEDULABLE, Pool.GATED)


@dataclass(kw_only=True)
class SchedulingQueue:
    """The scheduling queue. `pre_enqueue(pod, plugin to ask first)` gates pods.

    `registrations_by_profile` are hints by schedulerName and plugin. `on_gate(pod, status, now)` is called with
    every rejection at PreEnqueue, and when a pod rejected before now passes; `on_move(pod, pool, by, hint)`, if
    set, is called when a pod enters a pool, and with Pool.NONE when it leaves the queue: `by` is the event's
    label, or the plugins that reject or gate it; `hint` the plugin whose hint admitted the event.
    """

    sort_key: Callable[[PodInfo, float], tuple[float, ...]]
    pre_enqueue: Callable[[PodInfo, str], Status] = lambda pod, first: SUCCESS
    registrations_by_profile: Mapping[str, Mapping[str, Sequence[Registration]]] = field(default_factory=dict)
    backoff_initial_s: float = 1.0
    backoff_max_s: float = 10.0
    pop_from_backoff: bool = True
    nominator: Nominator = field(default_factory=Nominator)
    on_gate: Callable[[QueuedPod, Status, float], None] = lambda queued, status, now: None
    on_move: Callable[[QueuedPod, Pool, str, str], None] | None = None

    def __post_init__(self) -> None:
        self.pools: dict[Pool, int] = dict.fromkeys(Pool, 0)
        self.incoming: dict[tuple[str, str], int] = {}
        """`(queue, event) -> pods`, for scheduler_queue_incoming_pods_total."""
        self._hints = Hints(self.registrations_by_profile)
        self._backoff_of = Backoff(self.backoff_initial_s, self.backoff_max_s, is_in_windows=self.pop_from_backoff)
        self._pods: dict[Key, QueuedPod] = {}
        self._keys: dict[str, Key] = {}
        self._tickets = 0
        self._active: list[tuple[Any, ...]] = []
        self._backoff: list[tuple[Any, ...]] = []
        self._error_backoff: list[tuple[Any, ...]] = []
        self._unschedulable: dict[Key, QueuedPod] = {}
        self._rejected = RejectedPods(self.registrations_by_profile.values())
        self._in_flight = InFlight()
        self._next_leftover_flush: float | None = None
        self._hint = ""
        """Whose hint has the pod moved that is being moved now."""
        self._events_turns = Turns()

    # -- looking in ------------------------------------------------------------------------------------

    def watch(self, watch: Watch) -> None:
        """Time one hint and one event in ten from now on."""
        self._hints.watch = watch

    def get(self, key: Key) -> QueuedPod | None:
        """Return the queued (or in-flight) pod of that key."""
        return self._pods.get(key)

    def all(self) -> list[QueuedPod]:
        """Return every pod, in no particular order."""
        return list(self._pods.values())

    def next_attempt(self, queued: QueuedPod) -> float | None:
        """Return when time alone makes the pod ready; None when it is ready, or when only an event helps."""
        if queued.pool in IN_BACKOFF:
            return self._backoff_of.first_free(queued)
        return queued.timestamp + UNSCHEDULABLE_STAY_S if queued.pool is Pool.UNSCHEDULABLE else None

    def by_uid(self, uid: str) -> QueuedPod | None:
        """Return the queued pod of that uid."""
        key = self._keys.get(uid)
        return None if key is None else self._pods.get(key)

    def is_in_flight(self, uid: str) -> bool:
        """Whether the pod was popped and is not done."""
        return uid in self._in_flight

    @property
    def in_flight_event_count(self) -> int:
        """The number of events kept for pods in flight."""
        return self._in_flight.event_count

    def unschedulable_plugins(self) -> dict[str, int]:
        """Return the number of pods that each plugin rejected and that were not tried again since."""
        rejected = (each for each in self._pods.values() if each.pool is not Pool.IN_FLIGHT)
        return Counter(plugin for each in rejected for plugin in sorted(each.rejectors))

    def wakes_on(self, queued: QueuedPod) -> list[str]:
        """Return the events that may wake the pod, as `Plugin: Resource/Action`."""
        return [
            f"{plugin}: {r.event.resource}/{r.event.action.words}"
            for plugin in sorted(queued.rejectors)
            for r in self._hints.registrations_of(queued, plugin)
        ]

    # -- pods come and go --------------------------------------------------------------------------------

    def add(
        self, info: PodInfo, now: float, *, traceparent: str = "", event: ClusterEvent = UNSCHEDULED_POD_ADD
    ) -> None:
        """Add a pod that waits for a node; `event` is how it became known."""
        queued = self._take_in(QueuedPod(info, now, attempts=info.attempts, traceparent=traceparent))
        self._move_to_active(queued, event, now)
        self.nominator.update(None, info)

    def add_after(
        self, info: PodInfo, now: float, not_before: float, event: ClusterEvent, *, traceparent: str = ""
    ) -> QueuedPod:
        """Add a pod that must not be tried before `not_before`.

        It waits in the error heap: that back-off is a rate limit, which an idle scheduler must respect.
        """
        queued = QueuedPod(info, now, attempts=info.attempts, not_before=not_before, traceparent=traceparent)
        self._move_to_backoff(self._take_in(queued), event, now)
        return queued

    def _take_in(self, queued: QueuedPod) -> QueuedPod:
        if queued.key in self._pods:
            self.delete(queued.key)
        self._pods[queued.key] = queued
        self._keys[queued.uid] = queued.key
        return queued

    def update(
        self, info: PodInfo, now: float, events: Sequence[tuple[ClusterEvent, Pod]] = (), *, traceparent: str = ""
    ) -> None:
        """Replace a pod by its newer form; `events` are its changes, each with the old form.

        A pod in flight gets the events recorded; a rejected or gated one is woken if a hint says so; an unknown one
        is added.
        """
        queued = self._pods.get(info.key)
        if queued is None or queued.uid != info.uid:
            self.add(info, now, traceparent=traceparent, event=UNSCHEDULED_POD_UPDATE)
            return
        old = queued.info
        info.attempts = max(info.attempts, old.attempts)
        queued.info = info
        if queued.uid in self._in_flight:
            for event, before in events:
                self._in_flight.note(event, before, info.pod, info.uid)
            return
        queued.traceparent = traceparent or queued.traceparent
        if queued.pool in PARKED:
            self._rejected.refresh(queued)
        self.nominator.update(old, info)
        for event, before in events:
            if queued.pool not in PARKED:
                return
            strategy = self._hints.worth(queued, event, before, info.pod)
            if strategy is not Strategy.SKIP:
                self._requeue(queued, strategy, event, now, self._hints.said_by)

    def delete(self, key: Key) -> QueuedPod | None:
        """Forget the pod and its nomination."""
        queued = self._pods.pop(key, None)
        if queued is not None:
            self._keys.pop(queued.uid, None)
            self._leave(queued)
            self._report_move(queued, Pool.NONE, POD_DELETED)
            self.done(queued.uid)
            self.nominator.remove(queued.uid)
            if len(self._active) > 2 * self.pools[Pool.ACTIVE] + STALE_MAX:
                # A standby pops nothing while it waits to lead, yet pods come and are bound by another.
                self._active = [entry for entry in self._active if entry[-1].ticket == entry[-2]]
                heapq.heapify(self._active)
        return queued

    # -- scheduling cycles ---------------------------------------------------------------------------------

    def pop(self, now: float) -> QueuedPod | None:
        """Return the next pod to try, now in flight, or None when there is nothing to do."""
        queued, by = self._take(self._active) if self._active else None, POPPED
        if queued is None and self.pop_from_backoff and self._backoff:
            queued, by = self._take(self._backoff), POP_FROM_BACKOFF.label
            if queued is not None:
                self._count_incoming(Pool.ACTIVE, POP_FROM_BACKOFF)
        if queued is None:
            return None
        self._leave(queued)
        queued.attempts += 1
        queued.info.attempts = queued.attempts
        queued.unschedulable_plugins, queued.pending_plugins = set(), set()
        queued.backoff_expiration = None
        queued.not_before = 0.0
        self._enter(queued, Pool.IN_FLIGHT, by)
        self._in_flight.begin(queued.uid)
        return queued

    def done(self, uid: str) -> None:
        """End the pod's flight; events that no pod in flight needs any more are dropped."""
        self._in_flight.end(uid)

    def on_bound(self, queued: QueuedPod) -> None:
        """Forget a pod whose binding is under way; it is in flight no longer."""
        self.done(queued.uid)
        if self._pods.get(queued.key) is queued:
            self._leave(queued)
            self._report_move(queued, Pool.NONE, POD_BOUND)
            del self._pods[queued.key], self._keys[queued.uid]

    def add_unschedulable(
        self, queued: QueuedPod, now: float, *, rejectors: Iterable[str] = (), pending: Iterable[str] = ()
    ) -> None:
        """Put back a pod whose attempt failed; without rejectors it was an error. Its flight ends."""
        queued.unschedulable_plugins, queued.pending_plugins = set(rejectors), set(pending)
        if queued.rejectors:
            queued.unschedulable_count += 1
            queued.consecutive_errors = 0
        else:
            queued.consecutive_errors += 1
        queued.timestamp = now
        queued.backoff_expiration = None
        queued.is_rescued = False
        strategy = self._missed_while_in_flight(queued)
        self.done(queued.uid)
        if self._pods.get(queued.key) is not queued:
            return  # deleted, or deleted and created again, meanwhile
        hint = self._hints.said_by if strategy is not Strategy.SKIP else ""
        self._requeue(queued, strategy, SCHEDULE_ATTEMPT_FAILURE, now, hint)

    def move_all(
        self, event: ClusterEvent, old: Any, new: Any, now: float, *, only: Callable[[QueuedPod], bool] | None = None
    ) -> int:
        """Wake the rejected pods that the event may help (and `only` admits); return how many."""
        interested = self._hints.interested_plugins(event)
        if not interested and event.resource != WILDCARD:
            return 0
        watch = self._hints.watch if self._hints.watch is not None and self._events_turns.is_next() else None
        began = watch.now() if watch is not None else 0.0
        moved = 0
        if event.is_wildcard:
            candidates = list(self._unschedulable.values())
        else:
            candidates = self._rejected.candidates(event, interested, old, new)
        for queued in candidates:
            if only is not None and not only(queued):
                continue
            # What gates a pod decides alone whether it is looked at: no other plugin's event can let it in.
            if queued.pool is Pool.GATED and not self._hints.gate_cares(queued, event):
                continue
            strategy = self._hints.worth(queued, event, old, new)
            if strategy is not Strategy.SKIP:
                moved += self._requeue(queued, strategy, event, now, self._hints.said_by)
        self._in_flight.note(event, old, new)
        if watch is not None:
            watch.event(event.label, watch.now() - began)
        return moved

    def move(self, key: Key, event: ClusterEvent, now: float) -> bool:
        """Wake one rejected pod, after its back-off; return whether it was waiting."""
        queued = self._pods.get(key)
        if queued is None:
            return False
        if queued.uid in self._in_flight:
            self._in_flight.note(event, None, None, queued.uid)
            return False
        if queued.pool is not Pool.UNSCHEDULABLE:
            return False
        self._requeue(queued, Strategy.AFTER_BACKOFF, event, now)
        return True

    def wake(self, key: Key, event: ClusterEvent, now: float) -> None:
        """Wake one pod, after its back-off; for a gated pod PreEnqueue runs again."""
        queued = self._pods.get(key)
        if queued is not None and queued.pool is Pool.GATED:
            self._requeue(queued, Strategy.AFTER_BACKOFF, event, now)
        else:
            self.move(key, event, now)

    def activate(self, keys: Iterable[Key], now: float) -> None:
        """Force pods to the active queue, whatever they wait for; gates still hold, and so does `not_before`."""
        for key in keys:
            queued = self._pods.get(key)
            if queued is None:
                continue
            if queued.uid in self._in_flight:
                self._in_flight.note(FORCE_ACTIVATE, None, None, queued.uid)
            elif queued.pool in (*PARKED, *IN_BACKOFF) and now >= queued.not_before:
                was_in_backoff = queued.pool in IN_BACKOFF
                self._leave(queued)
                self._move_to_active(queued, FORCE_ACTIVATE, now, was_in_backoff=was_in_backoff)

    # -- time ------------------------------------------------------------------------------------------------

    def flush(self, now: float) -> None:
        """Move the pods that have waited long enough; call it at `next_deadline` or more often."""
        for heap in (self._backoff, self._error_backoff):
            while heap:
                queued = self._peek(heap)
                if queued is None or self._backoff_of.is_backing_off(queued, now):
                    break
                self._leave(queued)
                self._move_to_active(queued, BACKOFF_COMPLETE, now, was_in_backoff=True)
        if self._next_leftover_flush is None:
            self._next_leftover_flush = now + LEFTOVER_PERIOD_S
        elif now >= self._next_leftover_flush:
            self._next_leftover_flush = now + LEFTOVER_PERIOD_S
            self._flush_leftovers(now)

    def next_deadline(self, now: float) -> float | None:
        """Return when `flush` has work, if nothing else happens; None when never."""
        deadlines: list[float] = []
        for heap in (self._backoff, self._error_backoff):
            if heap and (queued := self._peek(heap)) is not None:
                deadlines.append(max(self._backoff_of.first_free(queued), now))
        if self._unschedulable and self._next_leftover_flush is not None:
            deadlines.append(self._next_leftover_flush)
        return min(deadlines, default=None)

    def _flush_leftovers(self, now: float) -> None:
        """Try pods again that wait too long; a gated pod's gates are asked again, too."""
        late = [
            q
            for q in self._unschedulable.values()
            if now - q.timestamp > UNSCHEDULABLE_STAY_S
            and (q.pool is not Pool.GATED or self._hints.gate_cares(q, UNSCHEDULABLE_TIMEOUT))
        ]
        for queued in late:
            queued.is_rescued = True
            queued.rescued_from = tuple(sorted(queued.rejectors))
            self._requeue(queued, Strategy.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT, now)

    # -- moving --------------------------------------------------------------------------------------------------

    def _requeue(self, queued: QueuedPod, strategy: Strategy, event: ClusterEvent, now: float, hint: str = "") -> bool:
        """Put the pod where the strategy says, unless it is gated; say whether it left the unschedulable ones. `hint`:
        the plugin that said so."""
        self._hint = hint
        self._leave(queued)
        if strategy is Strategy.SKIP:
            self._to_unschedulable(queued, Pool.UNSCHEDULABLE, event)
        elif strategy is Strategy.AFTER_BACKOFF and self._backoff_of.is_backing_off(queued, now):
            self._move_to_backoff(queued, event, now)
        else:
            self._move_to_active(queued, event, now)
        self._hint = ""
        return queued.pool not in PARKED

    def _is_gated(self, queued: QueuedPod, event: ClusterEvent, now: float) -> bool:
        status = self.pre_enqueue(queued.info, queued.gating_plugin)
        was_gated, is_free = bool(queued.gating_plugin), status.is_success
        queued.gating_plugin = "" if is_free else status.plugin
        if not is_free:
            queued.unschedulable_plugins.add(status.plugin)
            self._to_unschedulable(queued, Pool.GATED, event)
        if was_gated or queued.reported or not is_free:
            self._report_gate(queued, status, now)
        return not is_free

    def _report_gate(self, queued: QueuedPod, status: Status, now: float) -> None:
        self.on_gate(queued, status, now)

    def _move_to_active(
        self, queued: QueuedPod, event: ClusterEvent, now: float, *, was_in_backoff: bool = False
    ) -> None:
        # With pop-from-back-off the gates were asked on the way into the back-off queue already.
        if not (was_in_backoff and self.pop_from_backoff) and self._is_gated(queued, event, now):
            return
        if queued.initial_attempt is None:
            queued.initial_attempt = now
        self._enter(queued, Pool.ACTIVE, event.label)
        queued.moved_by = event.label
        key = self.sort_key(queued.info, queued.timestamp)
        heapq.heappush(self._active, (*key, queued.ticket, queued))
        self._count_incoming(Pool.ACTIVE, event)

    def _move_to_backoff(self, queued: QueuedPod, event: ClusterEvent, now: float) -> None:
        if self.pop_from_backoff and self._is_gated(queued, event, now):
            return
        expiration = self._backoff_of.expiration(queued)
        is_error = bool(queued.not_before) or not queued.rejectors
        self._enter(queued, Pool.ERROR_BACKOFF if is_error else Pool.BACKOFF, event.label)
        queued.moved_by = event.label
        if is_error:
            heapq.heappush(self._error_backoff, (expiration, queued.ticket, queued))
        else:
            key = self.sort_key(queued.info, queued.timestamp) if self.pop_from_backoff else ()
            heapq.heappush(self._backoff, (expiration, *key, queued.ticket, queued))
        self._count_incoming(Pool.BACKOFF, event)

    def _to_unschedulable(self, queued: QueuedPod, pool: Pool, event: ClusterEvent) -> None:
        self._enter(queued, pool, event.label)
        queued.is_rescued = False
        self._unschedulable[queued.key] = queued
        self._rejected.add(queued)
        self._count_incoming(Pool.UNSCHEDULABLE, event)

    def _enter(self, queued: QueuedPod, pool: Pool, by: str) -> None:
        self._tickets += 1
        queued.ticket = self._tickets
        queued.pool = pool
        self.pools[pool] += 1
        self._report_move(queued, pool, by)

    def _report_move(self, queued: QueuedPod, pool: Pool, by: str) -> None:
        if self.on_move is not None:
            if pool in PARKED:
                rejectors = [queued.gating_plugin] if pool is Pool.GATED else sorted(queued.rejectors)
                by = "+".join(rejectors) or by
            self.on_move(queued, pool, by, self._hint)

    def _leave(self, queued: QueuedPod) -> None:
        if queued.pool in PARKED:
            del self._unschedulable[queued.key]
            self._rejected.discard(queued)
        if queued.pool is not Pool.NONE:
            self.pools[queued.pool] -= 1
            queued.pool = Pool.NONE
        queued.ticket = 0  # makes its entry in a heap stale

    @staticmethod
    def _peek(heap: list[tuple[Any, ...]]) -> QueuedPod | None:
        while heap:
            ticket, queued = heap[0][-2:]
            if queued.ticket == ticket:
                first: QueuedPod = queued
                return first
            heapq.heappop(heap)
        return None

    def _take(self, heap: list[tuple[Any, ...]]) -> QueuedPod | None:
        queued = self._peek(heap)
        if queued is not None:
            heapq.heappop(heap)
        return queued

    def _count_incoming(self, pool: Pool, event: ClusterEvent) -> None:
        key = (pool.value, event.label)
        self.incoming[key] = self.incoming.get(key, 0) + 1

    def _missed_while_in_flight(self, queued: QueuedPod) -> Strategy:
        missed = self._in_flight.since(queued.uid)
        if not queued.rejectors or missed is None:
            # An error, or what it missed is not known: better one attempt too many.
            return Strategy.AFTER_BACKOFF
        best = Strategy.SKIP
        for happened in missed:
            strategy = self._hints.worth(queued, happened.event, happened.old, happened.new)
            if strategy is Strategy.IMMEDIATELY:
                return strategy
            if strategy is Strategy.AFTER_BACKOFF:
                best = strategy
                if not queued.pending_plugins:
                    return best
        return best
