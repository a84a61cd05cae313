"""Observe the watches of another client without opening any. Pure."""

from collections.abc import AsyncIterator, Callable

from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest


class ObservedApi:
    """An API server whose watch events are also passed to an observer as they are read; nothing else is different."""

    def __init__(self, api: Api, on_event: Callable[[WatchEvent], None]) -> None:
        self._api, self._on_event = api, on_event

    async def call(self, request: Request) -> Response:
        """Return the response to a request."""
        return await self._api.call(request)

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches of a watch, each after its events were passed to the observer."""
        stream = self._api.watch(request)
        try:
            async for batch in stream:
                for event in batch:
                    self._on_event(event)
                yield batch
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
