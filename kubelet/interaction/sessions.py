"""The streams of one `kubectl exec` or `attach`: its input, its output, its final status.

Source: upstream `staging/src/k8s.io/cri-streaming/pkg/streaming/remotecommand`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from kubelet.interaction.keyboard import Input
from kubelet.runtime.terminal import Terminal, terminal_output
from services.api.errors import UNREADABLE
from services.runtime.health import HttpRequest
from services.runtime.spdy.connection import Connection, Stream

STREAMS_WITHIN_S = 30.0
"""Seconds within which a client has to open its streams."""
REMOTE_COMMAND: Final = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
)
_STRUCTURED = REMOTE_COMMAND[:2]


class _Size(msgspec.Struct):
    columns: int = msgspec.field(name="Width", default=0)
    rows: int = msgspec.field(name="Height", default=0)


class Session:
    """The streams of one exec or attach."""

    def __init__(self, streams: dict[str, Stream], protocol: str, *, is_terminal: bool) -> None:
        self._streams, self._protocol, self.is_terminal = streams, protocol, is_terminal
        self.stdin = streams.get("stdin")
        self._terminal = Terminal()

    @classmethod
    async def begin(cls, request: HttpRequest, connection: Connection, protocol: str) -> "Session":
        """Return the session once all its streams are open. Raises: ConnectionError when they are not in time."""
        asked = {name: request.query.get(name) in ("1", "true") for name in ("input", "output", "error", "tty")}
        wanted = {"error"} | ({"stdin"} if asked["input"] else set())
        wanted |= {"stdout"} if asked["output"] else set()
        wanted |= {"stderr"} if asked["error"] and not asked["tty"] else set()
        wanted |= {"resize"} if asked["tty"] and protocol not in REMOTE_COMMAND[3:] else set()
        streams: dict[str, Stream] = {}
        try:
            async with asyncio.timeout(STREAMS_WITHIN_S):
                while wanted - streams.keys():
                    stream = await anext(aiter(connection.accept()))
                    streams[stream.kind] = stream
        except (TimeoutError, StopAsyncIteration):
            raise ConnectionResetError("timed out waiting for client to create streams") from None
        return cls(streams, protocol, is_terminal=asked["tty"])

    async def show(self, number: int, data: bytes) -> None:
        """Send output; a client that did not request the stream misses it. Raises: ConnectionError."""
        stream = self._streams.get("stderr" if number == 2 and not self.is_terminal else "stdout")
        if stream is not None:
            await stream.write(terminal_output(data) if self.is_terminal else data)

    async def type(self, keyboard: Input, *, ends: bool = True) -> None:
        """Pass the typed input to a process until the client ends it; `ends`: then end the process's input."""
        resizing = asyncio.create_task(self.discard("resize"))
        try:
            if self.stdin is None:
                return
            while data := await self.stdin.read():
                if not self.is_terminal:
                    await keyboard.put(data)
                    continue
                typed = self._terminal.type(data)
                if typed.is_interrupted:
                    keyboard.interrupt()
                if typed.shown:
                    await self._streams["stdout"].write(typed.shown)
                for line in typed.input:
                    await keyboard.put(line)
        except ConnectionError:
            pass
        finally:
            resizing.cancel()
        if ends:
            await keyboard.put(b"")

    async def copy_input(self, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Pass the typed input to a process unchanged, b"" at its end."""
        with contextlib.suppress(ConnectionError):
            while self.stdin is not None and (data := await self.stdin.read()):
                await take(data)
        await take(b"")

    async def show_as_it_is(self, data: bytes) -> None:
        """Send the output of a terminal unchanged. Raises: ConnectionError."""
        if (stream := self._streams.get("stdout")) is not None:
            await stream.write(data)

    async def sizes(self) -> AsyncIterator[tuple[int, int]]:
        """Yield the columns and rows of the client's terminal, each time they change."""
        stream, decoder = self._streams.get("resize"), msgspec.json.Decoder(_Size)
        with contextlib.suppress(ConnectionError):
            while stream is not None and (data := await stream.read()):
                for line in data.splitlines():
                    with contextlib.suppress(*UNREADABLE):
                        size = decoder.decode(line)
                        yield size.columns, size.rows

    async def discard(self, name: str = "stdin") -> None:
        """Read and drop a stream that is not used: sizes of terminals, input of a container without standard input."""
        stream = self._streams.get(name)
        with contextlib.suppress(ConnectionError):
            while stream is not None and await stream.read():
                pass

    async def end(self, code: int, words: list[str] | tuple[str, ...]) -> None:
        """Send the final status, and close the streams. Raises: ConnectionError."""
        text = _status(code, words) if self._protocol in _STRUCTURED else _plain_status(code, words)
        if text:
            await self._streams["error"].write(text)
        for stream in self._streams.values():
            await stream.finish()


def _exit_text(code: int, words: list[str] | tuple[str, ...]) -> str:
    return f"command terminated with non-zero exit code: error executing command [{' '.join(words)}], exit code {code}"


def _plain_status(code: int, words: list[str] | tuple[str, ...]) -> bytes:
    return b"" if code == 0 else _exit_text(code, words).encode()


def _status(code: int, words: list[str] | tuple[str, ...]) -> bytes:
    if code == 0:
        return msgspec.json.encode({"metadata": {}, "status": "Success"})
    return msgspec.json.encode(
        {
            "metadata": {},
            "status": "Failure",
            "message": _exit_text(code, words),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    )
