"""A SPDY/3.1 connection over a pair of asyncio streams: its streams, whose directions end independently.

An unread stream blocks the whole connection once 256 KiB of it wait, as one socket would.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from services.runtime.spdy import frames as spdy
from services.runtime.spdy.frames import Frame, SpdyError

WAITING_BYTES_MAX = 256 << 10
CHUNK_BYTES = 32 << 10
STREAMS_MAX = 256
"""Maximum number of open streams of one connection."""
HEAD_BYTES_MAX = 64 << 10
"""Maximum size of an answer's head in bytes; a request may be longer."""
PING_S = 5.0
"""Interval of a server's pings in seconds. They detect a lost client whose input is not being read, because a
slow process consumes it: the client's machine answers with a reset.
"""
CLOSE_WITHIN_S = 5.0
WRITE_BYTES_MAX = 64 << 10
"""Bytes that may wait to be sent, per connection, before writers wait."""
UPGRADE: str = "SPDY/3.1"


class Stream:
    """One stream; its `read` and `write` directions end independently."""

    def __init__(self, connection: "Connection", number: int, headers: Mapping[str, str]) -> None:
        self._connection, self.number, self.headers = connection, number, headers
        self._waiting = bytearray()
        self._changed = asyncio.Event()
        self._is_ended = self.is_reset = self.is_finished = False

    @property
    def kind(self) -> str:
        """The purpose of the stream, from Kubernetes' header."""
        return self.headers.get("streamtype", "")

    async def read(self) -> bytes:
        """Return received data, at most 32 KiB; b"" once the other side has ended. Raises: ConnectionError when it was
        reset.
        """
        while not self._waiting:
            if self.is_reset:
                raise ConnectionResetError("the stream was reset")
            if self._is_ended:
                return b""
            self._changed.clear()
            await self._changed.wait()
        # In pieces: who puts them into a queue holds no more than so many pieces.
        data = bytes(self._waiting[:CHUNK_BYTES])
        del self._waiting[:CHUNK_BYTES]
        self._connection.on_consumed(len(data))
        return data

    async def write(self, data: bytes) -> None:
        """Send data, once there is space. Raises: ConnectionError when the other side accepts no more."""
        for place in range(0, len(data), CHUNK_BYTES):
            if self.is_reset or self.is_finished:
                raise ConnectionResetError("the stream was reset")
            await self._connection.send(Frame(0, self.number, data=data[place : place + CHUNK_BYTES]))

    async def finish(self) -> None:
        """End the write direction."""
        if not self.is_finished and not self.is_reset:
            self.is_finished = True
            await self._connection.send(Frame(0, self.number, spdy.FIN))
            self._connection.drop_if_done(self)

    async def reset(self, status: int = spdy.CANCEL) -> None:
        """End both directions."""
        if not self.is_reset:
            self.on_reset()
            await self._connection.send(Frame(spdy.RST_STREAM, self.number, status=status))
            self._connection.drop_if_done(self)

    def on_data(self, data: bytes, *, is_last: bool) -> None:
        """Take received data."""
        if self.is_reset:
            self._connection.on_consumed(len(data))
            return
        self._waiting += data
        self._is_ended = self._is_ended or is_last
        self._changed.set()

    def on_reset(self) -> None:
        """Mark both directions as ended."""
        self.is_reset = True
        self._connection.on_consumed(len(self._waiting))
        self._waiting.clear()
        self._changed.set()

    @property
    def is_done(self) -> bool:
        """Whether both directions have ended."""
        return self.is_reset or (self._is_ended and self.is_finished)


class Connection:
    """One side of a connection. `run` must be running; when it ends, every stream is reset."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        self._reader, self._writer, self._is_client = reader, writer, is_client
        self._encoder, self._decoder = spdy.Encoder(), spdy.Decoder()
        self._streams: dict[int, Stream] = {}
        self._next = 1 if is_client else 2
        self._new: asyncio.Queue[Stream | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._space = asyncio.Event()
        self._space.set()
        self.is_over = False

    async def run(self) -> None:
        """Process received frames until the other side is gone. Never raises because of the other side."""
        try:
            while data := await self._reader.read(CHUNK_BYTES):
                for frame in self._decoder.feed(data):
                    if not await self._take(frame):
                        return
                await self._space.wait()
        except (ConnectionError, SpdyError, ssl.SSLError, TimeoutError):
            pass
        finally:
            self.is_over = True
            for stream in list(self._streams.values()):
                stream.on_reset()
            self._streams.clear()
            self._new.put_nowait(None)

    async def _take(self, frame: Frame) -> bool:
        stream = self._streams.get(frame.stream)
        match frame.kind:
            case 0 if stream is not None:
                self._waiting_bytes += len(frame.data)
                if self._waiting_bytes > WAITING_BYTES_MAX:
                    self._space.clear()
                stream.on_data(frame.data, is_last=frame.is_last)
                self.drop_if_done(stream)
            case 1:
                await self._open(frame)
            case 2 | 8 if stream is not None and frame.is_last:
                stream.on_data(b"", is_last=True)
                self.drop_if_done(stream)
            case 3 if stream is not None:
                stream.on_reset()
                self.drop_if_done(stream)
            case 6 if frame.number % 2 != int(self._is_client):
                await self.send(frame)
            case 7:
                # The other side opens no more streams; those that are open go on until it closes.
                return bool(self._streams)
        return True

    async def _open(self, frame: Frame) -> None:
        if len(self._streams) >= STREAMS_MAX or frame.stream in self._streams or frame.stream % 2 == self._is_client:
            await self.send(Frame(spdy.RST_STREAM, frame.stream, status=spdy.REFUSED_STREAM))
            return
        stream = self._streams[frame.stream] = Stream(self, frame.stream, frame.headers)
        await self.send(Frame(spdy.SYN_REPLY, frame.stream))
        if frame.is_last:
            stream.on_data(b"", is_last=True)
        self._new.put_nowait(stream)

    async def accept(self) -> AsyncIterator[Stream]:
        """Yield the streams that the other side opens, until it is gone."""
        while (stream := await self._new.get()) is not None:
            yield stream

    async def open(self, headers: Mapping[str, str]) -> Stream:
        """Open a stream. Raises: ConnectionError."""
        if self.is_over:
            raise ConnectionResetError("the connection is closed")
        number, self._next = self._next, self._next + 2
        stream = self._streams[number] = Stream(self, number, {k.lower(): v for k, v in headers.items()})
        await self.send(Frame(spdy.SYN_STREAM, number, headers=headers))
        return stream

    async def send(self, frame: Frame) -> None:
        """Send one frame, once there is space. Raises: ConnectionError."""
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(self._encoder.encode(frame))
        await self._writer.drain()

    def on_consumed(self, count: int) -> None:
        """Count bytes that were consumed and wait no more."""
        self._waiting_bytes -= count
        if self._waiting_bytes <= WAITING_BYTES_MAX:
            self._space.set()

    def drop_if_done(self, stream: Stream) -> None:
        """Forget a stream if both directions have ended."""
        if stream.is_done:
            self._streams.pop(stream.number, None)

    def close(self) -> None:
        """Close the connection."""
        close(self._writer)

    async def ping(self) -> None:
        """Ping the other side repeatedly and ignore its answers. Raises: ConnectionError when it is gone."""
        number = 1 if self._is_client else 2
        while True:
            await asyncio.sleep(PING_S)
            await self.send(Frame(spdy.PING, number=number))


def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection; data that the other side does not accept within 5 s is dropped."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()
        asyncio.get_running_loop().call_later(CLOSE_WITHIN_S, writer.transport.abort)


@dataclass(frozen=True)
class Upgraded:
    """Answer to an upgrade request: with `status` 101 the connection is upgraded; otherwise `body` says why not."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def dial(
    host: str,
    port: int,
    path: str,
    *,
    protocols: Sequence[str],
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 10.0,
    headers: Mapping[str, str] | None = None,
) -> Upgraded:
    """Request an upgrade to SPDY at that path. Raises: OSError, TimeoutError, ConnectionError."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=HEAD_BYTES_MAX)
        writer.transport.set_write_buffer_limits(WRITE_BYTES_MAX)
        try:
            lines = [f"POST {path} HTTP/1.1", f"Host: {host}:{port}", "Connection: Upgrade", f"Upgrade: {UPGRADE}"]
            lines += [f"X-Stream-Protocol-Version: {each}" for each in protocols]
            lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
            writer.write("\r\n".join([*lines, "Content-Length: 0", "", ""]).encode("latin-1"))
            await writer.drain()
            first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            answered = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in rest if line)}
            words = first.split(" ", 2)
            if len(words) < 2 or not words[1].isdigit():
                raise ConnectionError(f"that is no HTTP answer: {first[:80]!r}")
            body = b"" if words[1] == "101" else await reader.read(HEAD_BYTES_MAX)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            writer.close()
            raise ConnectionError("the connection was closed") from error
        except BaseException:
            writer.close()
            raise
    return Upgraded(int(words[1]), answered, body, reader, writer)
