"""One task that reads one watch: it is woken when there is something to take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from apiserver_fake.storage.watch_hub import Watcher
from services.api.wire import WatchEvent


async def batches(watcher: Watcher) -> AsyncIterator[list[WatchEvent]]:
    """Yield a watcher's events as they come, in batches, until it ends; closing the iterator ends it.

    The watcher must have been opened with a `Signal`.
    """
    signal = watcher.notify
    assert isinstance(signal, Signal)
    try:
        while True:
            taken = watcher.take()
            if taken:
                yield taken
            elif watcher.end_reason:
                return
            else:
                await signal.wait()
    finally:
        watcher.close()


class Signal:
    """A `notify` that one task can wait for."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._is_set = False

    def __call__(self, watcher: Watcher) -> None:
        """Wake who waits."""
        self._is_set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Return once something was said since the last wait."""
        if not self._is_set:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
            self._future = None
        self._is_set = False
