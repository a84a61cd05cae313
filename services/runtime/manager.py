"""Run controllers: shared informers, a work queue and workers for each, one reconcile at a time per key.

A controller is a record and a plain function; everything else is common: waiting for sync, mapping changes to
keys, deduplication, back-off, live reads on request, performing the actions under the controller's own
identity, and holding a key until the caches have seen its own last writes (guarantees C7). Each reconcile
leaves one log line, one event line and, if it performed an action, one span.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

import msgspec
import structlog

from services.api.errors import UNREADABLE, ApiError, Forbidden, NotFound, Unavailable, UnknownOutcome
from services.api.meta import AnyObject, Key, OwnerReference, Resource, View
from services.api.resources import resource_of_view
from services.api.seams import Seams, Span
from services.api.wire import Request
from services.client.client import Client
from services.client.executor import OUTAGE_WAIT_S, Executor, Outcome, Report
from services.client.leases import Elector
from services.client.recorder import Recorder
from services.client.store import meta_of
from services.reconcile.actions import NOT_PERFORMED, Action, Batch, Delete, Query, Result
from services.reconcile.controller import Change, Controller, Moment, Watch
from services.reconcile.manager_switches import ManagerSwitches
from services.reconcile.workqueue import WorkQueue
from services.runtime.caches import Caches
from services.runtime.config import StartError
from services.telemetry.metrics import Histogram, Metrics, Samples, counter, gauge, histogram

CAUSES_MAX = 8
"""Maximum number of traceparents kept for one key; with more, the span only says that there were more."""
REFRESHES_MAX = 5
"""Maximum number of live-read rounds of one reconcile before it counts as failed."""
YIELD_EVERY = 20
"""Number of reconciles in a row without a wait, before other tasks get a turn."""
STALE_TRIES_MAX = 5
"""Number of conflicts in a row that is normal for a cache; more are reported (C5)."""
STALE_S = 30.0
"""Seconds without any message after which caches are too stale to justify a deletion (C9)."""
SLOW_S = 30.0
"""Seconds after which a reconcile is reported as slow (P15)."""
GATE_MAX_S = 60.0
"""Maximum seconds that a key is held for its own writes; a slower cache is reported."""
SCAN = Key("", "")
"""The key of a controller's periodic scan."""
_COUNTED_AS = {
    Outcome.TERMINAL: "terminal",
    Outcome.WAIT: "requeued",
    Outcome.REQUEUE_NOW: "requeued",
    Outcome.BACK_OFF: "failed",
}

log = structlog.get_logger()


class OwnWriteGate:
    """Keys that must not be reconciled yet, because a cache has not reached their last own write (guarantees C7).

    Pure. Invariant: a key is held only for resources that some cache follows, and at most `GATE_MAX_S`.
    """

    def __init__(self, reached: Callable[[str], int | None]) -> None:
        """`reached`: returns the version that a resource's cache has reached; None if there is no such cache."""
        self._reached = reached
        self._awaited: dict[Key, tuple[dict[str, int], float]] = {}
        self.held: dict[Key, None] = {}
        """Keys that were due and had to wait."""
        self.overdue_total = 0

    def wrote(self, key: Key, written: dict[str, int], now: float) -> None:
        """Hold the key until the caches reach these versions."""
        awaited, _ = self._awaited.get(key, ({}, now))
        for resource, rv in written.items():
            reached = self._reached(resource)
            if reached is not None and rv > max(reached, awaited.get(resource, 0)):
                awaited[resource] = rv
        if awaited:
            self._awaited[key] = (awaited, now)

    def is_open(self, key: Key, now: float) -> bool:
        """Whether the caches show all own writes of the key, or the hold has timed out."""
        entry = self._awaited.get(key)
        if entry is None:
            return True
        awaited, since = entry
        late = [resource for resource, rv in awaited.items() if (self._reached(resource) or 0) < rv]
        if late and now - since < GATE_MAX_S:
            return False
        self.overdue_total += bool(late)
        del self._awaited[key]
        return True

    def release(self, now: float) -> list[Key]:
        """Release and return the held keys that may continue."""
        free = [key for key in self.held if self.is_open(key, now)]
        for key in free:
            del self.held[key]
        return free


class ControllerLoop:
    """The running loop of one controller."""

    def __init__(self, controller: Controller, seams: Seams, caches: Caches) -> None:
        self._controller = controller
        self._seams = seams
        self._clock = seams.clock
        self._caches = caches
        try:
            api = seams.transport.api(controller.user)
        except KeyError as error:
            raise StartError(str(error.args[0])) from None
        self._client = Client(api, seams.clock, seams.random, field_manager=controller.name)
        reporter = controller.reporter or f"{controller.name}-controller"
        self._recorder = Recorder(self._client, seams.clock, seams.random, component=reporter)
        self._executor = Executor(self._client, self._recorder, seams.events, controller=controller.name)
        self._queue: WorkQueue[Key] = WorkQueue()
        self._causes: dict[Key, dict[str, None]] = {}
        self._idle: dict[asyncio.Future[None], None] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._has_gate = seams.switches.of(ManagerSwitches).has_own_write_gate
        self._gate = OwnWriteGate(self._cached_version)
        self._outcomes: dict[str, float] = {"done": 0, "unchanged": 0, "requeued": 0, "failed": 0, "terminal": 0}
        self._faults_total = 0
        self._quiet_runs = 0
        self._under_way: dict[Key, tuple[object, asyncio.Task[Any]]] = {}
        self._subscribe()

    def lead(self, epoch: str, deposed: Callable[[], None]) -> None:
        """Add this epoch to every write from now on; `deposed` is called when the epoch is no longer the newest."""
        self._client.lead(epoch, deposed)

    @property
    def is_idle(self) -> bool:
        """Whether no key is due or in progress."""
        return self._queue.is_idle and not self._gate.held

    async def run(self) -> None:
        """Work with the controller's number of workers, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recorder.run())
                if self._controller.period_s is not None:
                    self._add(SCAN)
                for _ in range(self._controller.workers):
                    group.create_task(self._worker())
        finally:
            self._silence()

    def under_way(self) -> dict[str, tuple[object, asyncio.Task[Any]]]:
        """Return the reconciles in progress (`services.runtime.watchdog`)."""
        return {f"reconcile {self._controller.name} {key}": work for key, work in self._under_way.items()}

    def metrics(self) -> Samples:
        """Return the queue's and the reconciles' metrics."""
        name = self._controller.name
        queue = QUEUE_METRICS.of(self._queue, self._controller.queue or name)
        return queue | self._recorder.metrics() | METRICS.of(self, name) | self._controller.metrics()

    def _subscribe(self) -> None:
        controller = self._controller
        if controller.reconciles is not None and controller.reconciles is not AnyObject:
            self._caches.on_change(
                controller.reconciles, lambda change: self._add(meta_of(change.object).key, change.traceparent)
            )
            owner = resource_of_view(controller.reconciles)
            for view in controller.owns:
                self._caches.on_change(view, self._on_owned(owner))
        for watch in controller.watches:
            self._caches.on_change(watch.view, self._on_watched(watch), watch.interest)
        self._caches.on_progress(self._on_progress, self._gate.held)

    def _on_owned(self, owner: Resource) -> Callable[[Change[Any]], None]:
        group = owner.api_version.rpartition("/")[0]

        def key_of(view: View | None) -> Key | None:
            if view is None:
                return None
            metadata = meta_of(view)
            reference: OwnerReference | None = metadata.controller
            if reference is None or (reference.api_version.rpartition("/")[0], reference.kind) != (group, owner.kind):
                return None
            return Key(metadata.namespace if owner.namespaced else "", reference.name)

        def handle(change: Change[Any]) -> None:
            before, after = key_of(change.old), key_of(change.new)
            if before is not None and before != after:
                self._add(before, change.traceparent)
            if after is not None:
                self._add(after, change.traceparent)

        return handle

    def _on_watched(self, watch: Watch[Any]) -> Callable[[Change[Any]], None]:
        def handle(change: Change[Any]) -> None:
            try:
                keys: Iterable[Key] = list(watch.keys(change, self._caches))
            except Exception as error:  # one poisonous object must not stop the others (V11)
                self._fault(meta_of(change.object).key, error)
                return
            for key in keys:
                self._add(key, change.traceparent)

        return handle

    def _add(self, key: Key, cause: str = "") -> None:
        self._queue.add(key, self._clock.now())
        if cause:
            causes = self._causes.setdefault(key, {})
            if len(causes) < CAUSES_MAX:
                causes[cause] = None
        if self._idle:
            self._wake_workers()

    def _on_progress(self) -> None:
        if self._gate.held:
            for key in self._gate.release(self._clock.now()):
                self._add(key)

    def _cached_version(self, resource: str) -> int | None:
        informer = self._caches.by_resource.get(resource)
        return informer.last_rv if informer is not None else None

    async def _worker(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            key = await self._next()
            if self._has_gate and not self._gate.is_open(key, self._clock.now()):
                self._hold(key)
                continue
            self._gate.held.pop(key, None)
            self._under_way[key] = [], task
            try:
                await self._reconcile(key)
            finally:
                del self._under_way[key]
                self._queue.done(key, self._clock.now())
            self._quiet_runs += 1
            if self._quiet_runs >= YIELD_EVERY:
                self._quiet_runs = 0
                await asyncio.sleep(0)

    def _hold(self, key: Key) -> None:
        """Let the key wait until a cache's progress, or time, opens the gate."""
        self._gate.held[key] = None
        self._queue.done(key, self._clock.now())
        asyncio.get_running_loop().call_later(GATE_MAX_S, self._on_progress)

    async def _next(self) -> Key:
        """Return the next key once one is due."""
        while True:
            now = self._clock.now()
            key = self._queue.get(now)
            if key is not None:
                return key
            self._set_alarm(now)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle[turn] = None
            try:
                await turn
            finally:
                self._idle.pop(turn, None)

    def _wake_workers(self) -> None:
        """Wake as many idle workers as keys are ready, the longest idle first, and set the alarm."""
        self._set_alarm(self._clock.now())
        for turn in list(islice(self._idle, len(self._queue))):
            del self._idle[turn]
            if not turn.done():
                turn.set_result(None)

    def _set_alarm(self, now: float) -> None:
        """Have idle workers woken when the earliest delayed key is due; one timer serves all of them."""
        due = self._queue.next_due(now)
        if due is None or due <= now:
            return
        loop = asyncio.get_running_loop()
        rings_at = loop.time() + max(0.001, due - now)
        if self._alarm is None or self._alarm.when() > rings_at + 1e-9:
            self._silence()
            self._alarm = loop.call_at(rings_at, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._idle:
            self._wake_workers()

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _reconcile(self, key: Key) -> None:
        """Decide and act once for a key, then say when to look again."""
        started = self._clock.now()
        causes = list(self._causes.pop(key, ()))
        rv_seen = self._caches.newest_rv
        self._seams.events.write(
            "ctrl.reconcile", rv_seen=rv_seen, data={"controller": self._controller.name, "key": str(key)}
        )
        span: Span | None = None
        result, report = Result(), Report()
        try:
            result = await self._decide(key)
            self._follow(key, result.follow)
            self._refuse_stale_deletes(key, result)
            if result.actions:
                span = self._start_span(key, causes)
                report = await self._executor.perform(
                    result.actions, key=key, failed=self._failed_of(key), traceparent=span.traceparent, rv_seen=rv_seen
                )
            if report.outcome is Outcome.TERMINAL and not self._controller.gives_up:
                report.outcome = Outcome.BACK_OFF
            if result.error and report.outcome is Outcome.DONE:
                report.outcome, report.reason = Outcome.BACK_OFF, result.error
        except Exception as error:  # one poisonous object must not stop the others (V11)
            report.outcome, report.reason = Outcome.BACK_OFF, f"{type(error).__name__}: {error}"
            if isinstance(error, Unavailable | UnknownOutcome):  # no live read, or no cache that is in touch
                report.outcome, report.wait_s = Outcome.WAIT, OUTAGE_WAIT_S
            elif not isinstance(error, ApiError):  # else a live read was refused
                self._fault(key, error)
        if self._has_gate and report.written:
            self._gate.wrote(key, report.written, self._clock.now())
        again_s = self._requeue(key, result, report)
        if span is not None:
            span.end(report.reason if report.outcome is not Outcome.DONE else "")
        self._log(key, result, report, started, again_s, span)

    def _follow(self, key: Key, names: Sequence[str]) -> None:
        if not names:
            return
        watches = [watch for watch in self._controller.watches if watch.view is AnyObject]
        handlers = [(self._on_watched(watch), watch.interest) for watch in watches]
        for name in names:
            self._caches.follow_as(self._controller.user, name, handlers, partial(self._add, key))

    async def _decide(self, key: Key) -> Result:
        """Return what to do, with the live reads the rule asked for. Raises: ApiError, UnknownOutcome."""
        live: dict[Query, View | None] = {}
        listed: dict[Query, tuple[View, ...]] = {}
        refused: dict[Query, str] = {}
        for _ in range(REFRESHES_MAX):
            moment = Moment(self._clock.now(), self._clock.wall(), live, listed, refused)
            result = self._controller.reconcile(key, self._caches, moment)
            if not result.refresh:
                return result
            for query in result.refresh:
                try:
                    if query.key.name:
                        live[query] = await self._read(query)
                    else:
                        listed[query] = await self._list(query)
                except ApiError as error:
                    if not (query.is_metric or (query.may_be_refused and isinstance(error, Forbidden))):
                        raise
                    refused[query] = error.message
        raise ApiError(f"{self._controller.name} {key}: still asks for live reads after {REFRESHES_MAX} rounds")

    async def _read(self, query: Query) -> View | None:
        if query.is_metric:
            request = Request(
                verb="get",
                resource=_resource_of(query),
                namespace=query.key.namespace,
                name=query.key.name,
                label_selector=query.label_selector,
                field_selector=query.field_selector,
            )
            return _decode(query, (await self._client.call(request)).unwrap().body)
        try:
            body = await self._client.get_raw(_resource_of(query), query.key)
        except NotFound:
            return None
        return _decode(query, body)

    async def _list(self, query: Query) -> tuple[View, ...]:
        items, _ = await self._client.list_raw(
            _resource_of(query),
            namespace=query.key.namespace,
            label_selector=query.label_selector,
            field_selector=query.field_selector,
        )
        return tuple(_decode(query, item) for item in items)

    def _refuse_stale_deletes(self, key: Key, result: Result) -> None:
        """Let a decision that deletes wait for caches that are in touch with the server (C9). Raises: Unavailable. The
        controller's `on_failed` learns that nothing was performed.
        """
        actions = [a for action in result.actions for a in (action.actions if isinstance(action, Batch) else (action,))]
        if not any(isinstance(action, Delete) for action in actions):
            return
        silence_s = self._caches.silence_s(self._clock.now())
        if silence_s > STALE_S:
            if failed := self._failed_of(key):
                for action in actions:
                    failed(action, NOT_PERFORMED)
            raise Unavailable(f"will not delete: the caches have received nothing for {silence_s:.0f} s")

    def _requeue(self, key: Key, result: Result, report: Report) -> float | None:
        """Put the key back as the outcome asks; return in how many seconds, None when it is not."""
        now = self._clock.now()
        self._outcomes[_COUNTED_AS.get(report.outcome, "done" if result.actions else "unchanged")] += 1
        again_s = report.wait_s if report.outcome is Outcome.WAIT else result.requeue_after_s
        if report.outcome in (Outcome.DONE, Outcome.TERMINAL):
            self._queue.forget(key)
        if report.outcome in (Outcome.REQUEUE_NOW, Outcome.BACK_OFF):
            # The first retries come within milliseconds; a conflict that lasts backs off (C5).
            again_s = self._queue.retry(key, now)
        elif again_s is not None:
            self._queue.add_after(key, again_s, now)
        if key == SCAN and self._controller.period_s is not None:
            self._queue.add_after(key, self._controller.period_s, now)
        if self._idle:
            self._wake_workers()
        return again_s

    def _failed_of(self, key: Key) -> Callable[[Action, str], None] | None:
        failed = self._controller.failed
        return None if failed is None else partial(failed, key)

    def _start_span(self, key: Key, causes: list[str]) -> Span:
        # One cause continues its writer's trace; several begin a new one that links to them (decision 0007).
        name, parent = self._controller.name, causes[0] if len(causes) == 1 else ""
        return self._seams.tracer.start(
            f"reconcile {name}",
            kind="consumer" if causes else "internal",
            parent=parent,
            links=causes,
            controller=name,
            key=str(key),
        )

    def _fault(self, key: Key, error: Exception) -> None:
        self._faults_total += 1
        log.error("reconcile.faulted", controller=self._controller.name, key=str(key), exc_info=error)

    def _log(
        self, key: Key, result: Result, report: Report, started: float, again_s: float | None, span: Span | None
    ) -> None:
        fields: dict[str, Any] = {
            "controller": self._controller.name,
            "key": str(key),
            "actions": report.performed,
            "duration_ms": round((self._clock.now() - started) * 1000, 3),
        }
        if again_s is not None:
            fields["requeue_after_s"] = round(again_s, 3)
        if span is not None and span.trace_id:
            fields["trace_id"] = span.trace_id
        if report.reason:
            fields["reason"] = report.reason
        if self._clock.now() - started > SLOW_S:
            log.warning("reconcile.slow", **fields)
        match report.outcome:
            case Outcome.DONE if result.actions:
                log.info("reconcile.done", **fields)
            case Outcome.REQUEUE_NOW if self._queue.failures(key) > STALE_TRIES_MAX:
                log.warning("reconcile.failed", **fields)
            case Outcome.DONE | Outcome.REQUEUE_NOW:
                log.debug("reconcile.done", **fields)
            case _:
                log.warning("reconcile.failed", **fields)


QUEUE_METRICS: Final[Metrics[WorkQueue[Key]]] = Metrics(
    gauge("workqueue_depth", "Keys that are ready.", len),
    counter("workqueue_adds_total", "Keys added.", lambda queue: queue.adds_total),
    counter("workqueue_retries_total", "Keys added after a failure.", lambda queue: queue.retries_total),
    histogram(
        "workqueue_queue_duration_seconds",
        "How long keys were ready before they were handed out.",
        lambda queue: Histogram(sum=queue.queue_duration_s, count=queue.begun_total),
    ),
    histogram(
        "workqueue_work_duration_seconds",
        "How long keys were worked on.",
        lambda queue: Histogram(sum=queue.work_duration_s, count=queue.works_total),
    ),
    labels=("name",),
)
"""Upstream's work queue metrics, with the controller's name as label; all values are in one bucket."""

METRICS: Final[Metrics[ControllerLoop]] = Metrics(
    counter("controller_runtime_reconcile_total", "Reconciles by what they came to.", lambda loop: loop._outcomes,
            "result"),
    counter("controller_runtime_reconcile_panics_total", "Reconciles ended by a bug.", lambda loop: loop._faults_total),
    counter("keplab_controller_writes_total", "Writes sent.", lambda loop: loop._executor.writes_total),
    gauge("keplab_controller_held_keys", "Keys waiting for own writes to be seen.", lambda loop: len(loop._gate.held)),
    counter("keplab_controller_held_too_long_total", "Keys let through without that.",
            lambda loop: loop._gate.overdue_total),
    labels=("controller",),
)  # fmt: skip


def _resource_of(query: Query) -> str:
    return query.resource or resource_of_view(query.view).name


def _decode(query: Query, body: bytes | msgspec.Raw) -> View:
    try:
        return msgspec.json.decode(body, type=query.view)
    except UNREADABLE as error:
        raise ApiError(f"{_resource_of(query)} {query.key} cannot be decoded: {error}") from error


class Beside(Protocol):
    """Work that runs beside the controllers of a process, once it leads."""

    def lead(self, epoch: str, deposed: Callable[[], None]) -> None:
        """Write under this lease epoch from now on."""

    async def run(self) -> None:
        """Generate load until cancelled."""


class Manager:
    """The component that runs controllers: informers, one `ControllerLoop` per controller, optionally an elector.

    With an elector it works only while it leads, and every write carries the epoch (C11). Raises: KeyError when the
    transport has no credential of a controller's identity.
    """

    def __init__(
        self,
        controllers: Sequence[Controller],
        seams: Seams,
        *,
        elector: Elector | None = None,
        follows_definitions: bool = False,
        beside: Sequence[Beside] = (),
    ) -> None:
        self._beside = beside
        views: dict[type[View], None] = {}
        for reconciler in controllers:
            declared = (
                reconciler.reconciles,
                *reconciler.owns,
                *(watch.view for watch in reconciler.watches),
                *reconciler.reads,
            )
            views |= dict.fromkeys(view for view in declared if view is not None)
        self._caches = Caches(seams, list(views), follows_definitions=follows_definitions)
        self._loops = [ControllerLoop(controller, seams, self._caches) for controller in controllers]
        self._elector = elector

    @property
    def is_ready(self) -> bool:
        """Whether all caches are synced; a replica that waits for the lease counts as ready too."""
        return all(informer.has_synced for informer in self._caches.informers)

    async def run(self) -> None:
        """Work until cancelled. Raises: LeadershipLost when the lease is lost."""
        async with asyncio.TaskGroup() as group:
            self._caches.start(lambda informer: group.create_task(informer.run()))
            for informer in self._caches.informers:
                await informer.wait_until_synced()
            if self._elector is not None:
                epoch = await self._elector.acquire()
                for led in (*self._loops, *self._beside):
                    led.lead(epoch, self._elector.on_deposed)
                group.create_task(self._elector.hold())
            for runner in (*self._loops, *self._beside):
                group.create_task(runner.run())

    def log_sync(self) -> None:
        """Write a `cache.sync` line for each cache."""
        for informer in self._caches.informers:
            informer.log_sync()

    def under_way(self) -> dict[str, tuple[object, asyncio.Task[Any]]]:
        """Return the reconciles of all controllers in progress."""
        return {name: work for loop in self._loops for name, work in loop.under_way().items()}

    def metrics(self) -> Samples:
        """Return the metrics of informers, queues, reconciles and recorders."""
        samples = self._elector.metrics() if self._elector is not None else Samples()
        for informer in self._caches.informers:
            samples |= informer.metrics()
        for loop in self._loops:
            samples |= loop.metrics()
        return samples

    @property
    def is_idle(self) -> bool:
        """Whether no key waits or is in progress; delayed keys do not count."""
        return all(loop.is_idle for loop in self._loops)
