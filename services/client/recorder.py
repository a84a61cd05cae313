"""Events for people: core/v1 Events, aggregated and limited, written in the background.

Recording never blocks and never fails: events beyond the limits are counted and dropped. The rules are those of
client-go's event correlator. The same event again raises a count on the existing object. Similar events are
combined from the tenth on, until there is none for ten minutes. One object may have a burst of 25 and then one
event in five minutes. Kubelets and controllers record this way, and the scheduler its elections. Its events
about pods follow the newer rules of `event_series`: a recorder with series uses them for every event with an
action.
Source: upstream `staging/src/k8s.io/client-go/tools/record/events_cache.go`.
"""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import structlog

from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.meta import Document, Key
from services.api.seams import Clock, Random
from services.api.times import format_time
from services.api.wire import encode
from services.client.client import Client, request_of
from services.client.event_series import Series, SeriesCorrelator
from services.reconcile.actions import RecordEvent, Related
from services.reconcile.workqueue import TokenBucket
from services.telemetry.metrics import Metrics, Samples, counter

SIMILAR_MAX = 10
SIMILAR_WINDOW_S = 600.0
COMBINED = "(combined from similar events): "
SPAM_BURST = 25
SPAM_PER_S = 1.0 / 300.0
MEMORY_MAX = 4096
"""Maximum number of remembered events, groups and objects; the least recently used are forgotten first."""
FORGET_PERIOD_S = 60.0
QUEUE_MAX = 4096
CONCURRENCY = 4
"""Maximum number of concurrent writes: a server busy with other work answers late, which slows Events first."""
WRITE_PER_S = 50.0
WRITE_BURST = 1000
"""Burst of writes of one recorder, as upstream's event-qps: Events must not displace the work they report."""
_TICK_NS = 4096
"""Granularity in ns of the time in event names, as in upstream's; the part below it is random, so that two
recorders seldom collide.
"""

log = structlog.get_logger()


@dataclass(slots=True)
class Recorded:
    """One Event object, stored or to be stored. `count` is its intended count."""

    action: RecordEvent
    message: str
    name: str
    first_s: float
    last_s: float
    count: int = 1
    is_created: bool = False
    traceparent: str = ""

    def patch(self) -> Document:
        """Return the patch for a stored Event."""
        return {"count": self.count, "message": self.message, "lastTimestamp": format_time(self.last_s)}

    def fields(self, component: str, host: str) -> Document:
        """Return the fields of the Event except the involved object."""
        return {
            "message": self.message,
            "count": self.count,
            "firstTimestamp": format_time(self.first_s),
            "lastTimestamp": format_time(self.last_s),
            "source": {"component": component, **({"host": host} if host else {})},
            "reportingComponent": component,
            "reportingInstance": host,
        }


@dataclass(slots=True)
class _Group:
    """Events that differ only in their message. `last_s`: time of the latest observation."""

    last_s: float
    messages: dict[str, None] = field(default_factory=dict)


class Correlator:
    """Decides which Event object an observation belongs to, or that it exceeds the limit. Pure."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, _Group] = {}
        self._recorded: dict[Hashable, Recorded] = {}
        self._buckets: dict[Hashable, TokenBucket] = {}
        self._forget_at_s = 0.0

    def knows(self, action: RecordEvent) -> bool:
        """Whether a recent observation differs at most in its message."""
        return (action.kind, action.api_version, action.key, action.uid, action.type, action.reason) in self._groups

    def observe(self, action: RecordEvent, name: str, now: float, wall: float) -> tuple[Hashable, Recorded] | None:
        """Return the object to create or patch now, with its identity; None if it is limited as spam.

        `name`: the name for a new object. The count keeps rising while an object is limited.
        """
        who = (action.kind, action.api_version, action.key, action.uid)
        similar = (*who, action.type, action.reason)
        if now >= self._forget_at_s:
            self._forget(now)
        group = self._groups.pop(similar, None)
        if group is None or now - group.last_s > SIMILAR_WINDOW_S:
            group = _Group(now)
        self._groups[similar] = group
        group.messages[action.message], group.last_s = None, now
        identity: Hashable = (*similar, action.field_path, action.message)
        message = action.message
        if len(group.messages) >= SIMILAR_MAX:
            identity, message = similar, COMBINED + action.message
            group.messages.pop(next(iter(group.messages)))  # bounded: the next one is the tenth again
        recorded = self._recorded.pop(identity, None)
        if recorded is None:
            recorded = Recorded(action, message, name, wall, wall)
        else:
            recorded.count += 1
            recorded.message, recorded.last_s = message, wall
        self._recorded[identity] = recorded
        bucket = self._buckets.pop(who, None)
        if bucket is None:
            bucket = TokenBucket(SPAM_PER_S, SPAM_BURST)
        self._buckets[who] = bucket
        for memory in (self._groups, self._recorded, self._buckets):
            if len(memory) > MEMORY_MAX:
                del memory[next(iter(memory))]
        return (identity, recorded) if bucket.try_take(now) else None

    def _forget(self, now: float) -> None:
        """Forget what is as if it had never been: groups without any event for ten minutes, buckets that are full."""
        self._forget_at_s = now + FORGET_PERIOD_S
        while self._groups and now - self._groups[oldest := next(iter(self._groups))].last_s > SIMILAR_WINDOW_S:
            del self._groups[oldest]
        while self._buckets and self._buckets[who := next(iter(self._buckets))].is_full(now):
            del self._buckets[who]


class Recorder:
    """Recorder of one component, for example `replicaset-controller`, on one host.

    `series_host`: record events with an action in series, as by events.k8s.io, from that host.
    """

    def __init__(
        self, client: Client, clock: Clock, random: Random, *, component: str, host: str = "", series_host: str = ""
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._component = component
        self._host = host
        self._correlator = Correlator()
        self._series = SeriesCorrelator(clock.now()) if series_host else None
        self._series_host = series_host
        self._pending: dict[Hashable, Recorded | Series] = {}
        self._wake = asyncio.Event()
        self._writes = TokenBucket(WRITE_PER_S, WRITE_BURST)
        self._last_tick = 0
        self.recorded_total = 0
        self.limited_total = 0
        self.dropped_total = 0

    def event(
        self,
        *,
        kind: str,
        api_version: str,
        key: Key,
        uid: str,
        reason: str,
        message: str,
        type: str = "Normal",  # noqa: A002  the field's name
        action: str = "",
        related: Related | None = None,
        reporter: str = "",
        field_path: str = "",
        resource_version: str = "",
        traceparent: str = "",
    ) -> None:
        """Record one event; returns at once. `reporter`: the reporting component, if not this one."""
        event = RecordEvent(
            kind, api_version, key, uid, reason, message, type, action, related, reporter, field_path, resource_version
        )
        self.record(event, traceparent)

    def record(self, action: RecordEvent, traceparent: str = "") -> None:
        """Record one event given as an action; returns at once."""
        series = self._series if action.action else None
        if len(self._pending) >= QUEUE_MAX and not (series or self._correlator).knows(action):
            # At thousands of bound pods a second this is the rule, and it should cost less than writing one.
            self.dropped_total += 1
            return
        wall = self._clock.wall()
        # Names in the order of what happened: kubectl sorts by whole seconds, and lists come by name.
        self._last_tick = max(self._last_tick + 1, int(wall * 1e9) // _TICK_NS)
        name = f"{action.key.name}.{self._last_tick * _TICK_NS + self._random.getrandbits(12):x}"
        now = self._clock.now()
        observation: tuple[Hashable, Recorded | Series] | None
        if series is not None:
            self._count(series, now)
            observation = series.observe(action, name, now, wall)
        else:
            observation = self._correlator.observe(action, name, now, wall)
            self.limited_total += observation is None
        if observation is None:
            self._wake.set()  # a series has a time at which its count is written
            return
        identity, recorded = observation
        if identity not in self._pending and len(self._pending) >= QUEUE_MAX:
            self.dropped_total += 1
            return
        recorded.traceparent = traceparent or recorded.traceparent
        self._pending[identity] = recorded
        self._wake.set()

    async def run(self) -> None:
        """Write recorded events until cancelled; several observations of one event become one write."""
        while True:
            if not self._pending:
                await self._sleep()
                continue
            batch = [self._pending.pop(identity) for identity in list(islice(self._pending, CONCURRENCY))]
            now = self._clock.now()
            owed_s = max([self._writes.reserve(now) for _ in batch])
            if owed_s > 0:
                await asyncio.sleep(owed_s)
            if len(batch) == 1:
                await self._write(batch[0])
                continue
            async with asyncio.TaskGroup() as group:
                for recorded in batch:
                    group.create_task(self._write(recorded))

    def metrics(self) -> Samples:
        """Return counters of this recorder."""
        return METRICS.of(self, self._component)

    async def _sleep(self) -> None:
        """Return when something is to be written, or may be."""
        self._wake.clear()
        due_s = self._series.next_due_s if self._series is not None else None
        try:
            async with asyncio.timeout(max(due_s - self._clock.now(), 0.0) if due_s is not None else None):
                await self._wake.wait()
        except TimeoutError:
            assert self._series is not None
            self._count(self._series, self._clock.now())

    def _count(self, series: SeriesCorrelator, now: float) -> None:
        """Write the counts of series that are over, or go on for long."""
        for identity, recorded in series.tick(now):
            self._pending[identity] = recorded
            self._wake.set()

    async def _write(self, recorded: Recorded | Series) -> None:
        key = Key(recorded.action.key.namespace or "default", recorded.name)
        try:
            if recorded.is_created:
                try:
                    await self._client.patch_rv("events", key, recorded.patch(), traceparent=recorded.traceparent)
                    self.recorded_total += 1
                    return
                except NotFound:
                    pass  # its hour is over: begin a new object
            body = encode(self._document(recorded, key))
            request = request_of("create", "events", key, body, traceparent=recorded.traceparent)
            (await self._client.call(request)).unwrap()  # the stored Event is not looked at
            recorded.is_created = True
            self.recorded_total += 1
        except (ApiError, UnknownOutcome) as error:
            self.dropped_total += 1
            log.debug("event.dropped", reason=str(error), key=str(key))

    def _document(self, recorded: Recorded | Series, key: Key) -> Document:
        action = recorded.action
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "involvedObject": _reference(action) | ({"fieldPath": action.field_path} if action.field_path else {}),
            **({"action": action.action} if action.action else {}),
            **({"related": _reference(action.related)} if action.related is not None else {}),
            "reason": action.reason,
            "type": action.type,
            **recorded.fields(
                action.reporter or self._component, self._series_host if isinstance(recorded, Series) else self._host
            ),
        }


METRICS: Final[Metrics[Recorder]] = Metrics(
    counter("keplab_events_recorded_total", "Events accepted for writing.", lambda recorder: recorder.recorded_total),
    counter("keplab_events_limited_total", "Events left out as too frequent.", lambda recorder: recorder.limited_total),
    counter(
        "keplab_events_dropped_total", "Events that could not be written.", lambda recorder: recorder.dropped_total
    ),
    labels=("component",),
)


def _reference(to: RecordEvent | Related) -> Document:
    namespace = {"namespace": to.key.namespace} if to.key.namespace else {}
    version = {"resourceVersion": to.resource_version} if to.resource_version else {}
    return {"apiVersion": to.api_version, "kind": to.kind, **namespace, "name": to.key.name, "uid": to.uid, **version}
