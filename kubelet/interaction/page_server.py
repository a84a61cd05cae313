"""HTTP over a stream of a forwarded port: requests are read one by one, and answered by a function."""

from collections.abc import AsyncIterator, Callable

from kubelet.runtime import pages
from services.runtime.spdy.connection import Stream

HEAD_BYTES_MAX = 64 << 10


async def serve_pages(stream: Stream, answer: Callable[[pages.PageRequest], bytes]) -> None:
    """Answer HTTP requests on a stream until one side ends. Raises: ConnectionError."""
    buffer = bytearray()
    async for asked in _requests(stream, buffer):
        if asked is None:
            await stream.write(pages.BAD_REQUEST)
            return
        await stream.write(answer(asked))
        if not asked.keeps_open:
            return


async def _requests(stream: Stream, buffer: bytearray) -> AsyncIterator[pages.PageRequest | None]:
    while True:
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            data = await stream.read()
            if not data or len(buffer) > HEAD_BYTES_MAX:
                if buffer:
                    yield None
                return
            buffer += data
        asked = pages.read_head(bytes(buffer[:end]))
        del buffer[: end + 4]
        left = 0 if asked is None else asked.length
        while left > len(buffer):
            left -= len(buffer)
            buffer.clear()
            if not (data := await stream.read()):
                return
            buffer += data
        del buffer[:left]
        yield asked
