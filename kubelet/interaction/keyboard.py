"""The typed input of processes of emulated containers."""

import asyncio
import contextlib
from collections.abc import Awaitable

from kubelet.runtime.outcome import Interrupted

SLEEP_S_MAX = 365 * 86400.0


class Input:
    """The typed input of one process; writers wait while it is full."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(16)
        self._is_over = False
        self._interrupted = asyncio.Event()

    async def put(self, data: bytes) -> None:
        """Add bytes; b"" ends the input."""
        await self._pieces.put(data)

    def end(self) -> None:
        """End the input, whatever bytes are waiting."""
        with contextlib.suppress(asyncio.QueueFull):
            self._pieces.put_nowait(b"")
        self._is_over = True

    def interrupt(self) -> None:
        """Send SIGINT."""
        while not self._pieces.empty():
            self._pieces.get_nowait()
        self._interrupted.set()

    def take_interrupt(self) -> bool:
        """Return whether SIGINT was sent, and reset that."""
        was_sent = self._interrupted.is_set()
        self._interrupted.clear()
        return was_sent

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end. Raises: Interrupted."""
        if self._is_over and self._pieces.empty():
            return b""
        return await self._or_interrupted(self._pieces.get())

    async def sleep(self, seconds: float) -> bytes:
        """Sleep and return b"". Raises: Interrupted."""

        async def rest() -> bytes:
            await asyncio.sleep(min(seconds, SLEEP_S_MAX))
            return b""

        return await self._or_interrupted(rest())

    async def _or_interrupted(self, work: Awaitable[bytes]) -> bytes:
        task = asyncio.ensure_future(work)
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        try:
            await asyncio.wait((task, interrupted), return_when=asyncio.FIRST_COMPLETED)
            if interrupted.done():
                self._interrupted.clear()
                raise Interrupted
            return task.result()
        finally:
            task.cancel()
            interrupted.cancel()
