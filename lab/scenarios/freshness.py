"""Freshness of the observer's view: it catches up with the store before a judgement and at the end of a run.

With processes, the observer learns of changes when its watches deliver them, which on a busy machine may
be seconds later. It therefore requests the store's version, and bookmarks that show that the version was
reached. So a line is judged from a view that includes every write acknowledged before. A simulation does
not need this (`Mesh.progress` is None).

Source: KEP-2340, consistent reads from a cache, which waits for the version that a read of etcd has.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from lab.scenarios.mesh import Mesh, Progress
from lab.scenarios.observer import Observer
from lab.scenarios.observer_progress import Ending, ObserverProgress
from services.api.errors import ApiError, UnknownOutcome
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest

JUDGED_WITHIN_S: Final = 10.0
"""Longest time that a judgement waits for its view, in seconds."""
ASK_AGAIN_S: Final = 1.0
"""Interval for repeating the request for a bookmark, in seconds; a watch reopened in between has missed the request."""
ENDED_WITHIN_S: Final = 20.0
"""Longest time that a finished run waits for the store's last version, in seconds; and again after a fresh list."""


class UntilVersion:
    """Wrapper of an API server whose watches deliver nothing above `last_rv`, once that is set."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.last_rv: int | None = None

    async def call(self, request: Request) -> Response:
        """Forward the request, and return the response."""
        return await self._api.call(request)

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches without events above the version; a bookmark at the version replaces them. The initial state
        of a watch is complete, whatever its version.
        """
        stream = self._api.watch(request)
        is_state = request.send_initial_events
        try:
            async for batch in stream:
                is_whole, is_state = is_state, is_state and not any(event.initial_events_end for event in batch)
                yield batch if self.last_rv is None or is_whole else self._cut(batch, self.last_rv)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    @staticmethod
    def _cut(batch: list[WatchEvent], last_rv: int) -> list[WatchEvent]:
        kept = [event for event in batch if event.rv <= last_rv]
        if len(kept) < len(batch):
            kept.append(WatchEvent(type="BOOKMARK", resource=batch[0].resource, rv=last_rv))
        return kept


class Freshness:
    """Keeper of one run's observer: its view is made fresh enough for each judgement."""

    def __init__(self, mesh: Mesh, observer: Observer, until: UntilVersion, ending: Ending) -> None:
        self._progress: Progress | None = mesh.progress
        self._observer, self._until, self._ending = observer, until, ending
        self._waited_s, self._wanted = 0.0, 0
        self._judged_late: dict[str, None] = {}
        self.seen: ObserverProgress | None = None

    async def reach(self, resources: Sequence[str], limit_s: float = JUDGED_WITHIN_S) -> bool:
        """Wait until the observer has the store's current version of these resources; return whether it did within
        `limit_s`.

        A server that is temporarily away is asked again.
        """
        if self._progress is None:
            return True
        begun_s, self._wanted = self._observer.now_s, 0
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    if is_reached := await self._reaches_newest(resources):
                        break
                    await asyncio.sleep(ASK_AGAIN_S)
        except TimeoutError:
            is_reached = False
        if self._wanted:
            self._waited_s = max(self._waited_s, self._observer.now_s - begun_s)
        return is_reached

    async def _reaches_newest(self, resources: Sequence[str]) -> bool:
        assert self._progress is not None
        try:
            self._wanted = self._wanted or await self._progress(resources)
            await self._seen_until(self._wanted, resources)
        except (ApiError, UnknownOutcome):
            return False
        return True

    def note_late(self, resources: Sequence[str], line: str) -> None:
        """Record in the result that a line was judged although the last `reach` had failed."""
        newest = f"version {self._wanted}" if self._wanted else "what the store had, which the API server did not say"
        self._judged_late[f"{line}: judged from version {self._observer.version(resources)} instead of {newest}"] = None

    async def _seen_until(self, version: int, resources: Iterable[str]) -> None:
        assert self._progress is not None
        for resource in resources:
            while True:
                try:
                    async with asyncio.timeout(ASK_AGAIN_S):
                        await self._observer.wait_until_rv(version, resource)
                    break
                except TimeoutError:
                    await self._progress((resource,))

    async def end(self) -> None:
        """End the run now, and return when the observer has the store's current version; resources that do not get
        there in time are listed anew.
        """
        if self._progress is None:
            return
        resources, newest = self._observer.resources, None
        try:
            async with asyncio.timeout(JUDGED_WITHIN_S):
                newest = await self._progress(resources)
        except (TimeoutError, ApiError, UnknownOutcome):
            pass
        self._observer.end()
        self._ending.version, self._ending.at_s = newest, self._observer.started_s + self._observer.now_s
        if newest is not None:
            self._until.last_rv = newest
            if not await self._reaches(newest, resources):
                self._observer.list_again(
                    resource for resource in resources if self._observer.version((resource,)) < newest
                )
                await self._reaches(newest, resources)
        reached = self._observer.version(resources)
        self.seen = ObserverProgress(
            reached if newest is None else min(reached, newest),
            newest,
            self._waited_s,
            self._observer.gaps(),
            tuple(self._judged_late),
        )

    async def _reaches(self, version: int, resources: Sequence[str]) -> bool:
        try:
            async with asyncio.timeout(ENDED_WITHIN_S):
                await self._seen_until(version, resources)
        except (TimeoutError, ApiError, UnknownOutcome):
            return False
        return True
