"""A look at the watches of another client, which opens none of its own. Pure."""

from collections.abc import AsyncIterator, Callable

from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest


class ObservedApi:
    """An API server whose watches are shown to another as they are read; nothing else is different."""

    def __init__(self, api: Api, on_event: Callable[[WatchEvent], None]) -> None:
        self._api, self._on_event = api, on_event

    async def call(self, request: Request) -> Response:
        """Return the answer."""
        return await self._api.call(request)

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches, each after its events were shown."""
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
