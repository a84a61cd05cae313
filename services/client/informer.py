"""Reflector, store and handlers for one kind: the cache a component reads and the changes it handles.

Handlers are plain functions called in the order of the changes; they enqueue keys or feed a machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from services.api.meta import Document, Key, View
from services.api.resources import resource_of_view, resources
from services.api.seams import Clock, EventLog, Random
from services.api.selectors import EVERYTHING, Selector, parse_field_selector, parse_label_selector
from services.api.wire import Api, WatchEvent
from services.client.reflector import Reflector
from services.client.store import Handler, Item, Store
from services.telemetry.eventlog import NullEventLog
from services.telemetry.metrics import Metrics, counter, gauge

V = TypeVar("V", bound=View)

SYNC_LOG_EVERY = 1000
"""Changes between two `cache.sync` lines (guarantees 1.2)."""


class Informer(Generic[V]):
    """One kind, or the part of it that the selectors choose, as this process knows it."""

    def __init__(
        self,
        api: Api,
        view: type[V],
        *,
        clock: Clock,
        random: Random,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        keep_documents: bool = True,
        resource: str = "",
        events: EventLog | None = None,
        spread_s: float = 0.0,
    ) -> None:
        """Know nothing yet; `run` begins.

        `resource`: wire name, for a view that does not say its kind (`AnyObject`). `events`: where
        `cache.sync`, `watch.open` and `watch.close` are written.
        `spread_s`: after a failure wait up to this much longer, as many like us fail at once.
        """
        found = resources()[resource] if resource else resource_of_view(view)
        self.resource = found.name
        self.namespace = namespace
        self.field_selector = field_selector
        self.label_selector = label_selector
        self.lister: Store[V] = Store(
            view,
            kind=found.kind,
            keep_documents=keep_documents,
            matches=_matcher(found.name, namespace, field_selector, label_selector),
            now=clock.now,
        )
        self._reflector = Reflector(
            api,
            found.name,
            self,
            clock=clock,
            random=random,
            namespace=namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            events=None if isinstance(events, NullEventLog) else events,
            spread_s=spread_s,
        )
        # The hash of everything held is worth its time only where it is read.
        self._events = None if isinstance(events, NullEventLog) else events
        self._synced = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._progress: list[Callable[[], None]] = []
        self._unlogged = 0
        self._is_quiet = False
        self.events_total = 0

    def on_change(self, handler: Handler[V]) -> None:
        """Call `handler` with every change, in order; it is a plain def and must not wait."""
        self.lister.on_change(handler)

    def on_progress(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each batch, when `last_rv` has moved."""
        self._progress.append(callback)

    @property
    def has_synced(self) -> bool:
        """Whether the state has been taken once."""
        return self._synced.is_set()

    @property
    def last_rv(self) -> int:
        """The version up to which this informer has seen everything that concerns it."""
        return self.lister.reached_rv

    @property
    def received_s(self) -> float:
        """When the server last sent anything, monotonic seconds; heartbeats come every 10 s (W13)."""
        return self._reflector.received_s

    async def wait_until_synced(self) -> None:
        """Return once the state has been taken."""
        await self._synced.wait()

    async def wait_until_rv(self, rv: int) -> None:
        """Return once `last_rv` is at least `rv` (C7, K3). A quiet kind gets there by bookmarks."""
        if self.has_synced and self.last_rv >= rv:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((rv, future))
        await future

    def offer(self, document: Document | bytes) -> None:
        """Take the reply to an own write before the stream brings it; handlers are called now (C2)."""
        self.lister.offer(document)

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        await self._reflector.run()

    def log_sync(self) -> None:
        """Write a `cache.sync` line: the version reached and the hashes of what is held.

        Not while replies to own writes are ahead of the stream: then it is the state of no version.
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
                    "namespace": self.namespace,
                    "field_selector": self.field_selector,
                    "label_selector": self.label_selector,
                    "objects": len(self.lister),
                    "state_hash": self.lister.state_hash(),
                    "versions_hash": self.lister.versions_hash(),
                },
            )

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges of this informer."""
        return METRICS.of(self, self.resource)

    # --- what the reflector brings ---

    def replaced(self, items: list[Item], rv: int) -> None:
        """Hold exactly this state; handlers are called with the differences."""
        self.lister.replace(items, rv)
        self._synced.set()
        self._unlogged += len(items)
        self._after(rv)

    def happened(self, event: WatchEvent) -> None:
        """Hold this change and call the handlers."""
        self.events_total += 1
        self._unlogged += 1
        self._is_quiet = False
        key = Key(event.namespace, event.name)
        if event.type == "DELETED":
            self.lister.remove(key, event.rv, event.traceparent)
        else:
            self.lister.put(key, event.rv, event.body, event.traceparent)
        self.lister.reached_rv = event.rv

    def progressed(self, rv: int, *, is_bookmark: bool) -> None:
        """Know that everything up to `rv` has been delivered."""
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
    gauge("informer_objects", "Objects held.", lambda informer: len(informer.lister)),
    gauge("informer_last_resource_version", "Version up to which all is delivered.", lambda informer: informer.last_rv),
    counter("informer_events_total", "Changes received by watch.", lambda informer: informer.events_total),
    counter(
        "informer_undecodable_total",
        "Objects that could not be decoded and are not held.",
        lambda informer: informer.lister.undecodable_total + informer._reflector.undecodable_total,
    ),
    counter("informer_stale_total", "Changes older than what was held.", lambda informer: informer.lister.stale_total),
    counter(
        "reflector_lists_total",
        "How often the whole state was taken.",
        lambda informer: informer._reflector.relists_total,
    ),
    counter(
        "reflector_watches_total",
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
