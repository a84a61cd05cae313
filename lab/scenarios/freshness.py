"""How new the observer's view is: it is brought up to the store's version before a judgement and at the end of a run.

Between processes the observer learns of changes when its watches bring them, which on a busy machine may be seconds
later. Asking for the store's version, and for bookmarks that show that it was reached, makes a line be judged from a
view that has seen everything that was acknowledged before it. A simulation needs none of it (`Mesh.progress` is None).

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
"""So long at most the judgement of a moment waits for its view."""
ASK_AGAIN_S: Final = 1.0
"""A watch that was reopened meanwhile has not heard the request for a bookmark."""
ENDED_WITHIN_S: Final = 20.0
"""So long at most a run that is over waits for the store's last version, and again once its state was listed anew."""


class UntilVersion:
    """An API server whose watches bring nothing above a version, once that is set."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.last_rv: int | None = None

    async def call(self, request: Request) -> Response:
        """Return the answer."""
        return await self._api.call(request)

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches; what is above the version says only that the version was reached. A state that a watch begins
        with is whole, whatever its version."""
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
    """Keeps one run's observer as new as what is judged from it."""

    def __init__(self, mesh: Mesh, observer: Observer, until: UntilVersion, ending: Ending) -> None:
        self._progress: Progress | None = mesh.progress
        self._observer, self._until, self._ending = observer, until, ending
        self._waited_s, self._wanted = 0.0, 0
        self._judged_late: dict[str, None] = {}
        self.seen: ObserverProgress | None = None

    async def reach(self, resources: Sequence[str], limit_s: float = JUDGED_WITHIN_S) -> bool:
        """Return whether the observer has seen of these resources what the store has now; it has `limit_s` for that,
        and a server that is away for some of it is asked again."""
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
        """Have the result say that a line was judged although the last `reach` had failed."""
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
        """Have the run end now, and return when the observer has seen the store's version of this moment; what it has
        not seen in time is listed anew."""
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
