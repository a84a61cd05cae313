"""Follow one kind at the API server: take the state, then every change, whatever happens to the stream.

The state comes as a watch that begins with it (W12), or as a list where the server refuses that. After
any end the watch resumes from the last version seen; only a 410 makes the state be taken again
(guarantees C1, C3, C4).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec
import structlog

from services.api.errors import ApiError, Expired, UnknownOutcome, from_status
from services.api.meta import Key
from services.api.seams import Clock, EventLog, Random
from services.api.wire import Api, WatchEvent, WatchRequest
from services.client.backoff import Backoff
from services.client.client import Client
from services.client.store import Item, item_of

SILENCE_MAX_S = 30.0
"""A stream without any frame for this long is given up and resumed (W13)."""
HEALTHY_S = 30.0
"""A stream that lived this long resets the back-off (C3)."""
TOO_LARGE_MAX = 3
"""After so many `ResourceVersionTooLarge` in a row the state is taken again (W10)."""

log = structlog.get_logger()


class Sink(Protocol):
    """Where a reflector puts what it learns."""

    def replaced(self, items: list[Item], rv: int) -> None:
        """Take the whole state as of `rv`."""
        ...

    def happened(self, event: WatchEvent) -> None:
        """Take one ADDED, MODIFIED or DELETED."""
        ...

    def progressed(self, rv: int, *, is_bookmark: bool) -> None:
        """Learn, after each batch, that everything up to `rv` has been delivered."""
        ...


class Reflector:
    """Keeps one sink at the server's state; `run` never returns."""

    def __init__(
        self,
        api: Api,
        resource: str,
        sink: Sink,
        *,
        clock: Clock,
        random: Random,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        events: EventLog | None = None,
        spread_s: float = 0.0,
    ) -> None:
        """Know nothing yet. `spread_s`: after a failure wait up to this much longer, as many like us fail at once."""
        self._api = api
        self._client = Client(api, clock, random)
        self._sink = sink
        self._clock = clock
        self._backoff = Backoff(random)
        self._events = events
        self._random, self._spread_s = random, spread_s
        self._resource = resource
        self._namespace = namespace
        self._field_selector = field_selector
        self._label_selector = label_selector
        self._must_relist = True
        self._can_stream = True
        self._too_large = 0
        self._retried_at_once = False
        self._watchdog: asyncio.TimerHandle | None = None
        self.last_rv = 0
        self.received_s = clock.now()
        """When the server last sent anything at all, monotonic seconds."""
        self.relists_total = 0
        self.resumes_total = 0
        self.undecodable_total = 0

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            opened = self._clock.now()
            error: Exception | None = None
            try:
                await self._once()
            except (ApiError, UnknownOutcome) as caught:
                error = caught
            if self._clock.now() - opened >= HEALTHY_S:
                self._backoff.reset()
                self._retried_at_once = False
            if self._events is not None:
                self._events.write(
                    "watch.close",
                    rv_seen=self.last_rv,
                    data={"resource": self._resource, "reason": _reason(error), "last_rv": self.last_rv},
                )
            if not self._may_retry_at_once(error):
                delay_s = self._backoff.next_s()
                if self._spread_s:
                    delay_s += self._random.uniform(0.0, self._spread_s)
                if error is not None:
                    log.warning(
                        "watch.failed",
                        resource=self._resource,
                        resource_version=self.last_rv,
                        reason=str(error),
                        backoff_s=round(delay_s, 3),
                    )
                await asyncio.sleep(delay_s)
            self.resumes_total += 1

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
            raw, rv = await self._client.list_raw(
                self._resource,
                namespace=self._namespace,
                field_selector=self._field_selector,
                label_selector=self._label_selector,
            )
            self._replace(self._items(raw), rv)
        is_initial = self._must_relist
        if self._events is not None:
            self._events.write(
                "watch.open",
                rv_seen=self.last_rv,
                data={
                    "resource": self._resource,
                    "namespace": self._namespace,
                    "field_selector": self._field_selector,
                    "label_selector": self._label_selector,
                    "start_rv": 0 if is_initial else self.last_rv,
                },
            )
        request = WatchRequest(
            resource=self._resource,
            namespace=self._namespace,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
            resource_version="" if is_initial else str(self.last_rv),
            resource_version_match="NotOlderThan" if is_initial else "",
            send_initial_events=is_initial,
            allow_bookmarks=True,
        )
        stream = self._api.watch(request)
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
            raise UnknownOutcome(f"the watch of {self._resource} was silent for {SILENCE_MAX_S:g} s") from None
        finally:
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
                    key = Key(event.namespace, event.name)
                    initial.append(Item(key, event.rv, event.body, event.traceparent))
                elif event.type == "BOOKMARK" and event.initial_events_end:
                    self._replace(initial, event.rv)
                    initial = None
                continue
            self._too_large = 0
            if event.type == "BOOKMARK":
                is_bookmark = True
            else:
                self._sink.happened(event)
            self.last_rv = max(self.last_rv, event.rv)
        if initial is None and batch:
            self._sink.progressed(self.last_rv, is_bookmark=is_bookmark)
        return initial

    def _items(self, raw: list[msgspec.Raw]) -> list[Item]:
        items: list[Item] = []
        for body in raw:
            try:
                items.append(item_of(bytes(body)))
            except (msgspec.DecodeError, ValueError):
                self.undecodable_total += 1
        return items

    def _replace(self, items: list[Item], rv: int) -> None:
        self._must_relist = False
        self._too_large = 0
        self.last_rv = rv
        self.relists_total += 1
        self._sink.replaced(items, rv)


def _error_of(event: WatchEvent) -> ApiError:
    try:
        status: dict[str, Any] = msgspec.json.decode(event.body, type=dict[str, Any])
        code = int(status.get("code") or 500)
    except (msgspec.DecodeError, ValueError, TypeError):
        code = 500
    return from_status(code, event.body)


def _reason(error: Exception | None) -> str:
    if error is None:
        return "ended"
    return error.reason if isinstance(error, ApiError) else "lost"
