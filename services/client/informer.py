"""Reflector, store and handlers for one kind: the cache a component reads and the changes it handles.

The reflector takes the state, then every change, even if streams break. The state comes as a watch that begins
with it (W12), or as a list where the server refuses that. After a broken stream the watch resumes from the last
version seen; only a 410 forces a new state (guarantees C1, C3, C4).
Handlers are plain functions called in the order of the changes; they enqueue keys or feed a machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Generic, Protocol, TypeVar, Unpack

import msgspec
import structlog

from services.api.errors import UNREADABLE, ApiError, Expired, UnknownOutcome, from_status
from services.api.meta import Document, Key, Resource, View
from services.api.resources import resource_of_view, resources
from services.api.seams import Clock, EventLog, Random
from services.api.selectors import EVERYTHING, Selector, parse_field_selector, parse_label_selector
from services.api.wire import Api, WatchEvent, WatchRequest
from services.client.client import Backoff, Client, Part
from services.client.store import Handler, Item, Store, item_of
from services.telemetry.eventlog import NullEventLog
from services.telemetry.metrics import Metrics, Samples, counter, gauge

V = TypeVar("V", bound=View)

SILENCE_MAX_S = 30.0
"""A stream without any frame for this long is given up and resumed (W13)."""
HEALTHY_S = 30.0
"""A stream that lived this long resets the back-off (C3)."""
TOO_LARGE_MAX = 3
"""Number of `ResourceVersionTooLarge` in a row after which the state is taken again (W10)."""
SYNC_LOG_EVERY = 1000
"""Changes between two `cache.sync` lines (guarantees 1.2)."""
_EVERYTHING: Final[Part] = {"namespace": "", "field_selector": "", "label_selector": ""}

log = structlog.get_logger()


class Followed(Protocol):
    """Receiver of one kind's state and changes: an informer, or a forwarder."""

    resource: str

    def on_replaced(self, items: list[Item], rv: int) -> None:
        """Replace the state: exactly these objects exist at version `rv`."""
        ...

    def on_event(self, event: WatchEvent) -> None:
        """Take the change of one object."""
        ...

    def on_progressed(self, rv: int, *, is_bookmark: bool) -> None:
        """Note that all changes of the kind up to version `rv` were seen."""
        ...


class Beginning(Protocol):
    """Receiver of a state object by object; `Followed.on_replaced` then gets no objects."""

    def began(self) -> None:
        """Begin a new state; discard an unfinished one."""
        ...

    def on_arrived(self, item: Item) -> None:
        """Take one object of the state."""
        ...


class Reflector:
    """Keeps one informer up to date with the server; `run` never returns."""

    def __init__(
        self,
        informer: Followed,
        api: Api,
        part: Part,
        *,
        clock: Clock,
        random: Random,
        events: EventLog | None,
        spread_s: float,
        beginning: Beginning | None = None,
    ) -> None:
        """`beginning`: gets the state object by object, so that it is never held as a whole."""
        self._informer, self._resource, self._part = informer, informer.resource, part
        self._beginning = beginning
        self._api, self._client = api, Client(api, clock, random)
        self._clock, self._events = clock, events
        self._backoff = Backoff(random)
        self._random, self._spread_s = random, spread_s
        self._must_relist = True
        self._stream_end: asyncio.Timeout | None = None
        self._can_stream = True
        self._too_large = 0
        self._retried_at_once = False
        self._watchdog: asyncio.TimerHandle | None = None
        self.last_rv = 0
        self.received_s = clock.now()
        """When the server last sent anything at all, monotonic seconds."""
        self.relists_total: int = 0
        self.resumes_total: int = 0
        self.undecodable_total: int = 0

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        while True:
            opened = self._clock.now()
            error: Exception | None = None
            reason = "ended"
            try:
                await self._once()
            except ApiError as refusal:
                error, reason = refusal, refusal.reason
            except UnknownOutcome as lost:
                error, reason = lost, "lost"
            if self._clock.now() - opened >= HEALTHY_S:
                self._backoff.reset()
                self._retried_at_once = False
            if self._events is not None:
                data = {"resource": self._resource, "reason": reason, "last_rv": self.last_rv}
                self._events.write("watch.close", rv_seen=self.last_rv, data=data)
            if not self._may_retry_at_once(error):
                delay_s = self._backoff.next_s()
                if self._spread_s:
                    delay_s += self._random.uniform(0.0, self._spread_s)
                if error is not None:
                    fields = {"resource": self._resource, "resource_version": self.last_rv, "reason": str(error)}
                    log.warning("watch.failed", **fields, backoff_s=round(delay_s, 3))
                await asyncio.sleep(delay_s)
            self.resumes_total += 1

    def list_again(self) -> None:
        """Drop the stream, and take the state anew."""
        self._must_relist = True
        if self._stream_end is not None:
            self._stream_end.reschedule(asyncio.get_running_loop().time())

    def _may_retry_at_once(self, error: Exception | None) -> bool:
        """Note what the end means for the next attempt; whether that may follow without waiting."""
        at_once = error is None
        if isinstance(error, ApiError):
            if isinstance(error, Expired):
                log.info("watch.expired", resource=self._resource, resource_version=self.last_rv)
                self._must_relist = at_once = True
            elif error.code == 504:
                self._too_large += 1
                if self._too_large >= TOO_LARGE_MAX:
                    self._must_relist, self._too_large = True, 0
            elif error.code in (400, 422) and self._must_relist and self._can_stream:
                self._can_stream, at_once = False, True
        if at_once and not self._retried_at_once:
            self._retried_at_once = True
            return True
        return False

    async def _once(self) -> None:
        """Take the state if need be, then watch until the stream ends."""
        if self._must_relist and not self._can_stream:
            # C1: without a version, so that the answer is the newest state.
            raw, rv = await self._client.list_raw(self._resource, **self._part)
            items = self._items(raw)
            if self._beginning is not None:
                self._beginning.began()
                for item in items:
                    self._beginning.on_arrived(item)
                items = []
            self._replace(items, rv)
        is_initial = self._must_relist
        if self._events is not None:
            data = {"resource": self._resource, **self._part, "start_rv": 0 if is_initial else self.last_rv}
            self._events.write("watch.open", rv_seen=self.last_rv, data=data)
        request = WatchRequest(
            resource=self._resource,
            **self._part,
            resource_version="" if is_initial else str(self.last_rv),
            resource_version_match="NotOlderThan" if is_initial else "",
            send_initial_events=is_initial,
            allow_bookmarks=True,
        )
        stream = self._api.watch(request)
        if is_initial and self._beginning is not None:
            self._beginning.began()
        try:
            await self._follow(stream, [] if is_initial else None)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def _follow(self, stream: AsyncIterator[list[WatchEvent]], initial: list[Item] | None) -> None:
        """Deliver batches until the stream ends; `initial` collects the state until it is complete."""
        iterator = aiter(stream)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as silence:
                self._stream_end = silence
                # One timer that looks how long ago the last batch came, not a new one for every batch.
                # Opening a stream is no message of the server: received_s moves with batches alone (C9).
                opened_s = self._clock.now()

                def look() -> None:
                    self._watchdog = None
                    left_s = max(self.received_s, opened_s) + SILENCE_MAX_S - self._clock.now()
                    if left_s > 0:
                        self._watchdog = loop.call_later(left_s, look)
                    else:
                        silence.reschedule(loop.time())

                self._watchdog = loop.call_later(SILENCE_MAX_S, look)
                while (batch := await anext(iterator, None)) is not None:
                    self.received_s = self._clock.now()
                    initial = self._take(batch, initial)
        except TimeoutError:
            if self._must_relist and initial is None:
                return
            raise UnknownOutcome(f"the watch of {self._resource} was silent for {SILENCE_MAX_S:g} s") from None
        finally:
            self._stream_end = None
            if self._watchdog is not None:
                self._watchdog.cancel()
                self._watchdog = None

    def _take(self, batch: list[WatchEvent], initial: list[Item] | None) -> list[Item] | None:
        """Hand on one batch; return what is still missing of the state, or None once it is complete."""
        is_bookmark = False
        for event in batch:
            if event.type == "ERROR":
                raise _error_of(event)
            if initial is not None:
                if event.type == "ADDED":
                    item = Item(Key(event.namespace, event.name), event.rv, event.body, event.traceparent)
                    if self._beginning is not None:
                        self._beginning.on_arrived(item)
                    else:
                        initial.append(item)
                elif event.type == "BOOKMARK" and event.initial_events_end:
                    self._replace(initial, event.rv)
                    initial = None
                continue
            self._too_large = 0
            if event.type == "BOOKMARK":
                is_bookmark = True
            else:
                self._informer.on_event(event)
            self.last_rv = max(self.last_rv, event.rv)
        if initial is None and batch:
            self._informer.on_progressed(self.last_rv, is_bookmark=is_bookmark)
        return initial

    def _items(self, raw: list[msgspec.Raw]) -> list[Item]:
        items: list[Item] = []
        for body in raw:
            try:
                items.append(item_of(bytes(body)))
            except (*UNREADABLE, ValueError):
                self.undecodable_total += 1
        return items

    def _replace(self, items: list[Item], rv: int) -> None:
        self._must_relist = False
        self._too_large = 0
        self.last_rv = rv
        self.relists_total += 1
        self._informer.on_replaced(items, rv)


class Informer(Generic[V]):
    """Cache of one kind, or of the part that the selectors choose."""

    def __init__(
        self,
        api: Api,
        view: type[V],
        *,
        clock: Clock,
        random: Random,
        keep_documents: bool = True,
        resource: str | Resource = "",
        events: EventLog | None = None,
        spread_s: float = 0.0,
        **part: Unpack[Part],
    ) -> None:
        """Create an empty informer; `run` starts it.

        `resource`: the kind or its wire name, for a view without a kind of its own (`AnyObject`). `events`: the log for
        `cache.sync`, `watch.open` and `watch.close`.
        `spread_s`: after a failure wait up to this much longer, because many informers fail at once.
        """
        if isinstance(resource, Resource):
            served_resource = resource
        else:
            served_resource = resources()[resource] if resource else resource_of_view(view)
        self.resource = served_resource.name
        self._part = _EVERYTHING | part
        self.lister: Store[V] = Store(
            view,
            kind=served_resource.kind,
            keep_documents=keep_documents,
            matches=_matcher(served_resource.name, **self._part),
            now=clock.now,
        )
        # The hash of everything held is worth its time only where it is read.
        self._events = None if isinstance(events, NullEventLog) else events
        self._reflector = Reflector(
            self, api, self._part, clock=clock, random=random, events=self._events, spread_s=spread_s
        )
        self._synced = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._progress: list[Callable[[], None]] = []
        self._unlogged = 0
        self._is_quiet = False
        self.taken_anew: list[tuple[int, int]] = []
        """From and to which version the state was taken in place of changes, after the first time."""
        self.events_total = 0

    def on_change(self, handler: Handler[V]) -> None:
        """Call `handler` with every change, in order; it is a plain def and must not wait."""
        self.lister.on_change(handler)

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each batch, once `last_rv` has moved."""
        self._progress.append(callback)

    @property
    def has_synced(self) -> bool:
        """Whether the initial state is complete."""
        return self._synced.is_set()

    @property
    def last_rv(self) -> int:
        """The version up to which this informer has seen all changes of its kind."""
        return self.lister.reached_rv

    @property
    def received_s(self) -> float:
        """Monotonic time of the server's last message, in seconds; heartbeats come every 10 s (W13)."""
        return self._reflector.received_s

    async def wait_until_synced(self) -> None:
        """Wait until the initial state is complete."""
        await self._synced.wait()

    async def wait_until_rv(self, rv: int) -> None:
        """Wait until `last_rv` is at least `rv` (C7, K3). For a quiet kind, bookmarks move it."""
        if self.has_synced and self.last_rv >= rv:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((rv, future))
        await future

    def offer(self, document: Document | bytes) -> None:
        """Take the reply to the process's own write before the stream brings it; handlers are called now (C2)."""
        self.lister.offer(document)

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        await self._reflector.run()

    def list_again(self) -> None:
        """Take the state anew, instead of the pending changes of the stream."""
        self._reflector.list_again()

    def log_sync(self) -> None:
        """Write a `cache.sync` line: the version reached and the hashes of the cached objects.

        Skipped while replies to own writes are ahead of the stream: the cache then matches no version.
        """
        if self.lister.is_ahead:
            return
        self._unlogged = 0
        if self._events is not None:
            self._events.write(
                "cache.sync",
                rv_seen=self.last_rv,
                data={
                    "resource": self.resource,
                    **self._part,
                    "objects": len(self.lister),
                    "state_hash": self.lister.state_hash(),
                    "versions_hash": self.lister.versions_hash(),
                },
            )

    def metrics(self) -> Samples:
        """Return counters and gauges of this informer."""
        return METRICS.of(self, self.resource)

    def on_replaced(self, items: list[Item], rv: int) -> None:
        """Replace the cached state; handlers are called with the differences."""
        if self.has_synced:
            self.taken_anew.append((self.last_rv, rv))
        self.lister.replace(items, rv)
        self._synced.set()
        self._unlogged += len(items)
        self._after(rv)

    def on_event(self, event: WatchEvent) -> None:
        """Store this change and call the handlers."""
        self.events_total += 1
        self._unlogged += 1
        self._is_quiet = False
        key = Key(event.namespace, event.name)
        if event.type == "DELETED":
            self.lister.remove(key, event.rv, event.traceparent)
        else:
            self.lister.put(key, event.rv, event.body, event.traceparent)
        self.lister.reached_rv = event.rv

    def on_progressed(self, rv: int, *, is_bookmark: bool) -> None:
        """Note that all changes up to `rv` have been delivered."""
        self.lister.reached_rv = rv
        self._after(rv)
        if is_bookmark:
            # A whole heartbeat without a change: the mesh is at rest as far as this kind goes.
            if self._is_quiet and self._unlogged:
                self.log_sync()
            self._is_quiet = True

    def _after(self, rv: int) -> None:
        if self._unlogged >= SYNC_LOG_EVERY:
            self.log_sync()
        if self._waiters:
            waiting, self._waiters = self._waiters, []
            for wanted, future in waiting:
                if wanted > rv:
                    self._waiters.append((wanted, future))
                elif not future.done():
                    future.set_result(None)
        for callback in self._progress:
            callback()


METRICS: Final[Metrics[Informer[Any]]] = Metrics(
    gauge("keplab_informer_objects", "Objects held.", lambda informer: len(informer.lister)),
    gauge(
        "keplab_informer_last_resource_version",
        "Version up to which all is delivered.",
        lambda informer: informer.last_rv,
    ),
    counter("keplab_informer_events_total", "Changes received by watch.", lambda informer: informer.events_total),
    counter(
        "keplab_informer_undecodable_total",
        "Objects that could not be decoded and are not held.",
        lambda informer: informer.lister.undecodable_total + informer._reflector.undecodable_total,
    ),
    counter(
        "keplab_informer_stale_total", "Changes older than what was held.", lambda informer: informer.lister.stale_total
    ),
    counter(
        "keplab_reflector_lists_total",
        "How often the whole state was taken.",
        lambda informer: informer._reflector.relists_total,
    ),
    counter(
        "keplab_reflector_watches_total",
        "How often a watch was opened.",
        lambda informer: informer._reflector.resumes_total + 1,
    ),
    labels=("resource",),
)


def _matcher(
    resource: str, namespace: str, field_selector: str, label_selector: str
) -> Callable[[Document], bool] | None:
    """Return whether a document would be on this informer's stream; None when everything is."""
    if not (namespace or field_selector or label_selector):
        return None
    fields: Selector = parse_field_selector(field_selector)
    labels: Selector = parse_label_selector(label_selector) if label_selector else EVERYTHING
    selectable = resources()[resource].selectable_fields

    def matches(document: Document) -> bool:
        metadata = document.get("metadata", {})
        values = {
            "metadata.name": metadata.get("name", ""),
            "metadata.namespace": metadata.get("namespace", ""),
            **{term.key: selectable[term.key](document) for term in fields.terms if term.key in selectable},
        }
        return (
            (not namespace or metadata.get("namespace", "") == namespace)
            and fields.matches(values)
            and labels.matches(metadata.get("labels") or {})
        )

    return matches


def _error_of(event: WatchEvent) -> ApiError:
    try:
        code = int(msgspec.json.decode(event.body, type=dict[str, Any]).get("code") or 500)
    except (*UNREADABLE, ValueError, TypeError):
        code = 500
    return from_status(code, event.body)
