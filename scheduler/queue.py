"""The scheduling queue: which pod is next, and when a rejected one deserves another look.

Three stores. *Active*: ready, ordered by QueueSort. *Back-off*: waiting out a penalty, in two heaps, one for
pods that plugins rejected and one for pods that came back by an error; an idle scheduler may take from the
first before its time (KEP-5142), never from the second. *Unschedulable*: waiting for an event that a
plugin's hint finds promising (KEP-4247); gated pods wait there too.

A pod popped and not yet done is *in flight*: events are kept for it, so that what happened while it was
being tried is not missed. All times are the caller's monotonic seconds.

Invariant: a key is in exactly one pool; `pools` counts them.
Source: scheduler-queue-and-cycles 2; upstream `backend/queue` v1.34.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final

from scheduler.framework.events import (
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    POP_FROM_BACKOFF,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_TIMEOUT,
    UNSCHEDULED_POD_ADD,
    ClusterEvent,
    Hint,
    Registration,
)
from scheduler.framework.interface import SUCCESS, Status
from scheduler.node_info import PodInfo
from scheduler.nominator import Nominator
from services.api.kinds.pod import Pod
from services.api.meta import Key

UNSCHEDULABLE_STAY_S: Final = 300.0
LEFTOVER_PERIOD_S: Final = 30.0
WINDOW_S: Final = 1.0


class Pool(StrEnum):
    """Where a queued pod is; the values are upstream's metric labels."""

    NONE = ""
    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error_backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


class Strategy(Enum):
    """What an event makes of a rejected pod."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod with its history in the queue.

    `timestamp`: when it last (re)entered. `unschedulable_count` and `consecutive_errors` drive the
    back-off. `not_before`: no attempt before this time, whatever happens (kubelet-unbinding 7.2).
    `moved_by` names the event that last moved it, `rescued` that it was the periodic flush.
    """

    info: PodInfo
    timestamp: float
    initial_attempt: float | None = None
    attempts: int = 0
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    gating_plugin: str = ""
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    backoff_expiration: float | None = None
    not_before: float = 0.0
    pool: Pool = Pool.NONE
    ticket: int = 0
    moved_by: str = ""
    is_rescued: bool = False
    traceparent: str = ""

    @property
    def key(self) -> Key:
        """`(namespace, name)`."""
        return self.info.key

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.info.uid


@dataclass(frozen=True, slots=True)
class _Happened:
    event: ClusterEvent
    old: Any
    new: Any
    only_uid: str = ""


PreEnqueue = Callable[[PodInfo, str], Status]
SortKey = Callable[[PodInfo, float], tuple[float, ...]]


class SchedulingQueue:
    """`pre_enqueue(pod, plugin to ask first)` gates; `registrations` are hints by plugin.

    `registrations_by_profile`: the same by schedulerName, where profiles give a plugin different arguments.
    """

    def __init__(
        self,
        *,
        sort_key: SortKey,
        pre_enqueue: PreEnqueue = lambda pod, first: SUCCESS,
        registrations: Mapping[str, Sequence[Registration]] | None = None,
        registrations_by_profile: Mapping[str, Mapping[str, Sequence[Registration]]] | None = None,
        backoff_initial_s: float = 1.0,
        backoff_max_s: float = 10.0,
        pop_from_backoff: bool = True,
        nominator: Nominator | None = None,
    ) -> None:
        self._sort_key = sort_key
        self._pre_enqueue = pre_enqueue
        self._registrations = dict(registrations or {})
        self._registrations_by_profile = dict(registrations_by_profile or {})
        self._backoff_initial_s = backoff_initial_s
        self._backoff_max_s = backoff_max_s
        self._pop_from_backoff = pop_from_backoff
        self.nominator = nominator if nominator is not None else Nominator()
        self.pools: dict[Pool, int] = dict.fromkeys(Pool, 0)
        self.incoming: dict[tuple[str, str], int] = {}
        """`(queue, event) -> pods`, for scheduler_queue_incoming_pods_total."""
        self.scheduling_cycle = 0
        self._pods: dict[Key, QueuedPod] = {}
        self._keys: dict[str, Key] = {}
        self._tickets = 0
        self._active: list[tuple[Any, ...]] = []
        self._backoff: list[tuple[Any, ...]] = []
        self._error_backoff: list[tuple[Any, ...]] = []
        self._unschedulable: dict[Key, QueuedPod] = {}
        self._rejected_by: dict[str, dict[Key, QueuedPod]] = {}
        self._interest: dict[ClusterEvent, list[str]] = {}
        self._in_flight: dict[str, int] = {}
        self._events: deque[_Happened] = deque()
        self._events_start = 0
        self._next_leftover_flush: float | None = None

    # -- looking in ------------------------------------------------------------------------------------

    def get(self, key: Key) -> QueuedPod | None:
        """Return the queued (or in-flight) pod of that key."""
        return self._pods.get(key)

    def all(self) -> list[QueuedPod]:
        """Return everybody, in no particular order."""
        return list(self._pods.values())

    def next_attempt(self, queued: QueuedPod) -> float | None:
        """Return when time alone makes the pod ready; None when it is ready, or when only an event helps."""
        if queued.pool in (Pool.BACKOFF, Pool.ERROR_BACKOFF):
            return self._first_free(queued)
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
        """Events kept for pods in flight."""
        return len(self._events)

    def unschedulable_plugins(self) -> dict[str, int]:
        """Return how many waiting pods each plugin rejected."""
        return {plugin: len(pods) for plugin, pods in self._rejected_by.items() if pods}

    def wakes_on(self, queued: QueuedPod) -> list[str]:
        """Return the events that may wake the pod, as `Plugin: Resource/Action`."""
        return [
            f"{plugin}: {r.event.resource}/{r.event.action.name or r.event.action}"
            for plugin in sorted(queued.unschedulable_plugins | queued.pending_plugins)
            for r in self._registered(queued, plugin)
        ]

    # -- pods come and go --------------------------------------------------------------------------------

    def add(self, info: PodInfo, now: float, *, traceparent: str = "") -> None:
        """Take in a pod that waits for a node."""
        if info.key in self._pods:
            self.delete(info.key)
        queued = QueuedPod(info, now, attempts=info.attempts, traceparent=traceparent)
        self._pods[info.key] = queued
        self._keys[info.uid] = info.key
        self._move_to_active(queued, UNSCHEDULED_POD_ADD)
        self.nominator.update(None, info)

    def add_after(self, info: PodInfo, now: float, not_before: float, event: ClusterEvent, *,
                  traceparent: str = "") -> QueuedPod:  # fmt: skip
        """Take in a pod that must not be tried before `not_before`.

        It waits in the error heap: that back-off is a rate limit, which an idle scheduler must respect.
        """
        if info.key in self._pods:
            self.delete(info.key)
        queued = QueuedPod(info, now, attempts=info.attempts, not_before=not_before, traceparent=traceparent)
        self._pods[info.key] = queued
        self._keys[info.uid] = info.key
        self._move_to_backoff(queued, event)
        return queued

    def update(self, info: PodInfo, now: float, events: Sequence[tuple[ClusterEvent, Pod]] = (), *,
               traceparent: str = "") -> None:  # fmt: skip
        """Replace a pod by its newer form; `events` are what changed, each with the old form.

        A pod in flight gets the events recorded; a rejected one is woken if a hint says so; an unknown
        one is added.
        """
        queued = self._pods.get(info.key)
        if queued is None or queued.uid != info.uid:
            self.add(info, now, traceparent=traceparent)
            return
        old = queued.info
        info.attempts = max(info.attempts, old.attempts)
        if queued.uid in self._in_flight:
            queued.info = info
            for event, before in events:
                self._events.append(_Happened(event, before, info.pod, info.uid))
            return
        queued.info = info
        if traceparent:
            queued.traceparent = traceparent
        self.nominator.update(old, info)
        if queued.pool is Pool.GATED:
            if any(self._gate_cares(queued, event) for event, _ in events):
                queued.timestamp = now
                self._leave(queued)
                self._move_to_active(queued, events[0][0])
            return
        if queued.pool is not Pool.UNSCHEDULABLE:
            return
        for event, before in events:
            strategy = self._worth(queued, event, before, info.pod)
            if strategy is not Strategy.SKIP:
                self._requeue(queued, strategy, event, now)
                return

    def delete(self, key: Key) -> QueuedPod | None:
        """Forget the pod and its nomination."""
        queued = self._pods.pop(key, None)
        if queued is not None:
            self._keys.pop(queued.uid, None)
            self._leave(queued)
            self.done(queued.uid)
            self.nominator.remove(queued.uid)
        return queued

    # -- scheduling cycles ---------------------------------------------------------------------------------

    def pop(self, now: float) -> QueuedPod | None:
        """Return the next pod to try, now in flight, or None when there is nothing to do."""
        queued = self._take(self._active)
        if queued is None and self._pop_from_backoff:
            queued = self._take(self._backoff)
            if queued is not None:
                self._count_incoming(Pool.ACTIVE, POP_FROM_BACKOFF)
        if queued is None:
            return None
        self._leave(queued)
        if queued.initial_attempt is None:
            queued.initial_attempt = now
        queued.attempts += 1
        queued.info.attempts = queued.attempts
        queued.unschedulable_plugins = set()
        queued.pending_plugins = set()
        queued.backoff_expiration = None
        queued.not_before = 0.0
        self._enter(queued, Pool.IN_FLIGHT)
        self._in_flight[queued.uid] = self._events_start + len(self._events)
        self.scheduling_cycle += 1
        return queued

    def done(self, uid: str) -> None:
        """End the pod's flight; events nobody needs any more are dropped."""
        if self._in_flight.pop(uid, None) is None:
            return
        if not self._in_flight:
            self._events_start += len(self._events)
            self._events.clear()
            return
        oldest = next(iter(self._in_flight.values()))  # pods are in order of their pop
        while self._events_start < oldest:
            self._events.popleft()
            self._events_start += 1

    def bound(self, queued: QueuedPod) -> None:
        """Let go of a pod whose binding goes its way; its flight ends."""
        self.done(queued.uid)
        if self._pods.get(queued.key) is queued:
            self._leave(queued)
            del self._pods[queued.key]
            del self._keys[queued.uid]

    def add_unschedulable(self, queued: QueuedPod, now: float, *, rejectors: Iterable[str] = (),
                          pending: Iterable[str] = ()) -> None:  # fmt: skip
        """Put back a pod whose attempt failed; without rejectors it was an error. Its flight ends."""
        queued.unschedulable_plugins = set(rejectors)
        queued.pending_plugins = set(pending)
        if queued.unschedulable_plugins or queued.pending_plugins:
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
        self._requeue(queued, strategy, SCHEDULE_ATTEMPT_FAILURE, now)

    def move_all(self, event: ClusterEvent, old: Any, new: Any, now: float, *,
                 only: Callable[[QueuedPod], bool] | None = None) -> int:  # fmt: skip
        """Wake the rejected pods that the event may help (and `only` admits); return how many."""
        interested = self._interested(event)
        if not interested and not event.is_wildcard:
            return 0
        moved = 0
        for queued in self._candidates(event, interested):
            if only is not None and not only(queued):
                continue
            if queued.pool is Pool.GATED and not self._gate_cares(queued, event):
                continue
            strategy = self._worth(queued, event, old, new)
            if strategy is not Strategy.SKIP:
                self._requeue(queued, strategy, event, now)
                moved += 1
        if self._in_flight:
            self._events.append(_Happened(event, old, new))
        return moved

    def move(self, key: Key, event: ClusterEvent, now: float) -> bool:
        """Wake one rejected pod, after its back-off; say whether it was waiting."""
        queued = self._pods.get(key)
        if queued is None:
            return False
        if queued.uid in self._in_flight:
            self._events.append(_Happened(event, None, None, queued.uid))
            return False
        if queued.pool is not Pool.UNSCHEDULABLE:
            return False
        self._requeue(queued, Strategy.AFTER_BACKOFF, event, now)
        return True

    def activate(self, keys: Iterable[Key], now: float) -> None:
        """Force pods to the active queue, whatever they wait for; gates still hold."""
        for key in keys:
            queued = self._pods.get(key)
            if queued is None or queued.pool is Pool.ACTIVE:
                continue
            if queued.uid in self._in_flight:
                self._events.append(_Happened(FORCE_ACTIVATE, None, None, queued.uid))
                continue
            self._leave(queued)
            queued.timestamp = now
            self._move_to_active(queued, FORCE_ACTIVATE)

    # -- time ------------------------------------------------------------------------------------------------

    def flush(self, now: float) -> None:
        """Move what has waited long enough; call at `next_deadline` or oftener."""
        for heap in (self._backoff, self._error_backoff):
            while True:
                queued = self._peek(heap)
                if queued is None or self._is_backing_off(queued, now):
                    break
                self._leave(queued)
                self._move_to_active(queued, BACKOFF_COMPLETE, was_in_backoff=True)
        if self._next_leftover_flush is None:
            self._next_leftover_flush = now + LEFTOVER_PERIOD_S
        elif now >= self._next_leftover_flush:
            self._next_leftover_flush = now + LEFTOVER_PERIOD_S
            self._flush_leftovers(now)

    def next_deadline(self, now: float) -> float | None:
        """Return when `flush` has something to do, if nothing else happens; None when never."""
        deadlines = []
        for heap in (self._backoff, self._error_backoff):
            queued = self._peek(heap)
            if queued is not None:
                deadlines.append(max(self._first_free(queued), now))
        if (self.pools[Pool.UNSCHEDULABLE] or self.pools[Pool.GATED]) and self._next_leftover_flush is not None:
            deadlines.append(self._next_leftover_flush)
        return min(deadlines, default=None)

    def _first_free(self, queued: QueuedPod) -> float:
        """Return when the once-a-second flush first finds the pod free."""
        self._backoff_expiration(queued)
        expiration = queued.backoff_expiration or 0.0
        if expiration:
            # A pod whose window is the current second still counts as backing off.
            expiration = expiration + WINDOW_S if self._pop_from_backoff else math.ceil(expiration)
        return max(expiration, queued.not_before)

    def _flush_leftovers(self, now: float) -> None:
        late = [q for q in self._unschedulable.values()
                if now - q.timestamp > UNSCHEDULABLE_STAY_S
                and (q.pool is not Pool.GATED or self._gate_cares(q, UNSCHEDULABLE_TIMEOUT))]  # fmt: skip
        for queued in late:
            self._requeue(queued, Strategy.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT, now)
            queued.is_rescued = queued.pool is not Pool.GATED

    # -- back-off ----------------------------------------------------------------------------------------------

    def backoff_duration(self, count: int) -> float:
        """Return the seconds after the count-th failure: 1, 2, 4, 8, 10, 10."""
        if count == 0:
            return 0.0
        return float(min(self._backoff_max_s, self._backoff_initial_s * 2.0 ** min(count - 1, 62)))

    def _backoff_expiration(self, queued: QueuedPod) -> float:
        if queued.backoff_expiration is None:
            count = queued.consecutive_errors or queued.unschedulable_count
            duration = self.backoff_duration(count)
            expiration = queued.timestamp + duration
            if self._pop_from_backoff:
                expiration = math.floor(expiration)
            queued.backoff_expiration = expiration if duration else 0.0
        return max(queued.backoff_expiration, queued.not_before)

    def _is_backing_off(self, queued: QueuedPod, now: float) -> bool:
        if now < queued.not_before:
            return True
        self._backoff_expiration(queued)
        expiration = queued.backoff_expiration
        if not expiration:
            return False
        if self._pop_from_backoff:
            return expiration >= math.floor(now)
        return expiration > now

    # -- moving --------------------------------------------------------------------------------------------------

    def _requeue(self, queued: QueuedPod, strategy: Strategy, event: ClusterEvent, now: float) -> None:
        self._leave(queued)
        if strategy is Strategy.SKIP:
            self._to_unschedulable(queued, Pool.UNSCHEDULABLE)
            self._count_incoming(Pool.UNSCHEDULABLE, event)
        elif strategy is Strategy.AFTER_BACKOFF and self._is_backing_off(queued, now):
            self._move_to_backoff(queued, event)
        else:
            self._move_to_active(queued, event)

    def _is_gated(self, queued: QueuedPod) -> bool:
        status = self._pre_enqueue(queued.info, queued.gating_plugin)
        if status.is_success:
            queued.gating_plugin = ""
            return False
        queued.gating_plugin = status.plugin
        queued.unschedulable_plugins.add(status.plugin)
        self._to_unschedulable(queued, Pool.GATED)
        return True

    def _move_to_active(self, queued: QueuedPod, event: ClusterEvent, *, was_in_backoff: bool = False) -> None:
        # With pop-from-back-off the gates were asked on the way into the back-off queue already.
        if not (was_in_backoff and self._pop_from_backoff) and self._is_gated(queued):
            return
        self._enter(queued, Pool.ACTIVE)
        queued.moved_by = event.label
        key = self._sort_key(queued.info, queued.timestamp)
        heapq.heappush(self._active, (*key, queued.ticket, queued))
        self._count_incoming(Pool.ACTIVE, event)

    def _move_to_backoff(self, queued: QueuedPod, event: ClusterEvent) -> None:
        if self._pop_from_backoff and self._is_gated(queued):
            return
        expiration = self._backoff_expiration(queued)
        is_error = bool(queued.not_before) or not (queued.unschedulable_plugins or queued.pending_plugins)
        self._enter(queued, Pool.ERROR_BACKOFF if is_error else Pool.BACKOFF)
        queued.moved_by = event.label
        if is_error:
            heapq.heappush(self._error_backoff, (expiration, queued.ticket, queued))
        else:
            key = self._sort_key(queued.info, queued.timestamp) if self._pop_from_backoff else ()
            heapq.heappush(self._backoff, (expiration, *key, queued.ticket, queued))
        self._count_incoming(Pool.BACKOFF, event)

    def _to_unschedulable(self, queued: QueuedPod, pool: Pool) -> None:
        self._enter(queued, pool)
        self._unschedulable[queued.key] = queued
        for plugin in sorted(queued.unschedulable_plugins | queued.pending_plugins):
            self._rejected_by.setdefault(plugin, {})[queued.key] = queued

    def _enter(self, queued: QueuedPod, pool: Pool) -> None:
        self._tickets += 1
        queued.ticket = self._tickets
        queued.pool = pool
        self.pools[pool] += 1

    def _leave(self, queued: QueuedPod) -> None:
        if queued.pool in (Pool.UNSCHEDULABLE, Pool.GATED):
            del self._unschedulable[queued.key]
            for plugin in sorted(queued.unschedulable_plugins | queued.pending_plugins):
                pods = self._rejected_by.get(plugin)
                if pods is not None:
                    pods.pop(queued.key, None)
        if queued.pool is not Pool.NONE:
            self.pools[queued.pool] -= 1
            queued.pool = Pool.NONE
        queued.ticket = 0  # makes its entry in a heap stale

    @staticmethod
    def _peek(heap: list[tuple[Any, ...]]) -> QueuedPod | None:
        while heap:
            ticket, queued = heap[0][-2:]
            if queued.ticket == ticket:
                found: QueuedPod = queued
                return found
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

    # -- hints -----------------------------------------------------------------------------------------------------

    def _interested(self, event: ClusterEvent) -> list[str]:
        found = self._interest.get(event)
        if found is None:
            tables = (self._registrations, *self._registrations_by_profile.values())
            interested = {
                plugin: None
                for table in tables
                for plugin, registered in table.items()
                if any(event.matches(registration.event) for registration in registered)
            }
            found = self._interest[event] = list(interested)
        return found

    def _registered(self, queued: QueuedPod, plugin: str) -> Sequence[Registration]:
        table = self._registrations_by_profile.get(queued.info.spec.scheduler_name, self._registrations)
        return table.get(plugin, ())

    def _candidates(self, event: ClusterEvent, interested: list[str]) -> list[QueuedPod]:
        if event.is_wildcard:
            return list(self._unschedulable.values())
        found: dict[Key, QueuedPod] = {}
        for plugin in interested:
            found.update(self._rejected_by.get(plugin, {}))
        return list(found.values())

    def _gate_cares(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        return any(event.matches(r.event) for r in self._registered(queued, queued.gating_plugin))

    def _worth(self, queued: QueuedPod, event: ClusterEvent, old: Any, new: Any) -> Strategy:
        rejectors = queued.unschedulable_plugins | queued.pending_plugins
        if not rejectors or event.is_wildcard:
            return Strategy.AFTER_BACKOFF
        found = Strategy.SKIP
        for plugin in sorted(rejectors):
            is_pending = plugin in queued.pending_plugins
            if found is not Strategy.SKIP and not is_pending:
                continue
            for registration in self._registered(queued, plugin):
                if event.matches(registration.event) and self._says_queue(registration, queued, old, new):
                    if is_pending:
                        return Strategy.IMMEDIATELY
                    found = Strategy.AFTER_BACKOFF
                    break
        return found

    @staticmethod
    def _says_queue(registration: Registration, queued: QueuedPod, old: Any, new: Any) -> bool:
        if registration.hint is None:
            return True
        try:
            return registration.hint(queued.info, old, new) is Hint.QUEUE
        except Exception:  # a broken hint must not make a pod wait for ever: it counts as Queue
            return True

    def _missed_while_in_flight(self, queued: QueuedPod) -> Strategy:
        if not (queued.unschedulable_plugins or queued.pending_plugins):
            return Strategy.AFTER_BACKOFF
        start = self._in_flight.get(queued.uid)
        if start is None:
            # Nobody knows what it missed: better one attempt too many.
            return Strategy.AFTER_BACKOFF
        best = Strategy.SKIP
        for happened in list(self._events)[start - self._events_start :]:
            if happened.only_uid and happened.only_uid != queued.uid:
                continue
            strategy = self._worth(queued, happened.event, happened.old, happened.new)
            if strategy is Strategy.IMMEDIATELY:
                return strategy
            if strategy is Strategy.AFTER_BACKOFF:
                best = strategy
        return best
