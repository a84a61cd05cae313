"""One page's connection: what it asked to see, and the frames it is sent."""

import asyncio
import contextlib
import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import WSMsgType, web

from services.api.errors import UNREADABLE
from services.recordings import frames
from services.ui.lines import Entry
from services.ui.live import Live, chunks
from services.ui.outbox import Outbox

HEARTBEAT_S: Final = 20.0
MESSAGE_BYTES_MAX: Final = 64 * 1024
RATE_MAX: Final = 20
_LINES_HEAD, _LINES_END = b'{"lines":[', b"]}"
_PREFIX = struct.Struct("<I")


class Asked(msgspec.Struct, frozen=True):
    """A message of the page. `t`: sub, seek, play, pong. `since`: lines newer than that time of the wall are sent."""

    t: str
    run: str = "live"
    view: str = ""
    rate: int = RATE_MAX
    rv: int = 0
    speed: float = 1.0
    since: str = ""
    has_lines: bool = True


def lines_frame(entries: Sequence[Entry], rv: int, time: float) -> bytes:
    """Return a frame with event lines as they were written."""
    text = b"".join((_LINES_HEAD, b",".join(entry.raw for entry in entries), _LINES_END))
    text += b" " * (-(frames.HEAD.size + _PREFIX.size + len(text)) % frames.ALIGNED)
    head = frames.HEAD.pack(frames.LINES, frames.FRAME_VERSION, 0, len(entries), float(rv), time)
    return b"".join((head, _PREFIX.pack(len(text)), text))


def joined(made: Sequence[bytes]) -> bytes:
    """Return frames as one stream of bytes, the length of each before it as u32."""
    return b"".join(part for frame in made for part in (_PREFIX.pack(len(frame)), frame))


class Page:
    """One page that is connected. It is a `Listener` of the mesh while it shows that."""

    def __init__(self, live: Live | None, socket: web.WebSocketResponse, recordings: Any) -> None:
        self._live, self._socket, self._recordings = live, socket, recordings
        self.outbox = Outbox()
        self._wake = asyncio.Event()
        self._asked = Asked("sub")
        self._player: Any = None

    async def serve(self) -> None:
        """Answer until the page is gone."""
        sender = asyncio.create_task(self._send())
        try:
            async for message in self._socket:
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    continue
                try:
                    asked = msgspec.json.decode(message.data, type=Asked)
                except UNREADABLE as error:
                    self._say_error(f"that is no message: {error}")
                    continue
                self._on_message(asked)
                if sender.done():
                    break
        finally:
            self._leave()
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await sender

    def _on_message(self, asked: Asked) -> None:
        match asked.t:
            case "sub":
                self._subscribe(asked)
            case "seek" | "play":
                self._play(asked)
            case "pong":
                pass
            case _:
                self._say_error(f"t: want sub, seek, play or pong, not {asked.t!r}")

    def _subscribe(self, asked: Asked) -> None:
        self._leave()
        self._asked = asked
        if asked.run != "live":
            self._play(asked)
            return
        if self._live is None:
            self._say_error("there is no mesh; run: want one of the recordings of /ui/v1/meta")
            return
        live = self._live
        self.outbox.reset(live.whole(), len(live.model.strings))
        live.listeners[self] = None
        if asked.has_lines:
            self.lines(live.ring.since(asked.since))
        self.document(
            frames.RATES, frames.document_frame(frames.RATES, live.mesh_document(), live.model.rv, live.now_s)
        )
        self._wake.set()

    def _play(self, asked: Asked) -> None:
        self._say_error(f"run {asked.run!r}: there is no such recording")

    def _leave(self) -> None:
        if self._live is not None:
            self._live.listeners.pop(self, None)
        if self._player is not None:
            self._player.cancel()
            self._player = None

    def _say_error(self, message: str) -> None:
        self.outbox.put(frames.ALARM, frames.document_frame(frames.ALARM, {"error": message}, 0, 0.0))
        self._wake.set()

    # -- Listener ----------------------------------------------------------------------------------------

    def columns(self, made: Sequence[bytes], changed: dict[str, Sequence[int]]) -> None:
        """Send what changed."""
        assert self._live is not None
        model = self._live.model
        self.outbox.put_columns(made, changed, len(model.strings), model.rv)
        self._wake.set()

    def lines(self, entries: Sequence[Entry]) -> None:
        """Send event lines."""
        assert self._live is not None
        if not self._asked.has_lines:
            return
        for some in chunks(entries):
            rv = self._live.model.rv
            self.outbox.put_lines(lines_frame(some, rv, self._live.now_s), len(some), rv)
        self._wake.set()

    def document(self, kind: int, frame: bytes) -> None:
        """Send rates, counts, progress or an alarm."""
        self.outbox.put(kind, frame)
        self._wake.set()

    async def _send(self) -> None:
        while True:
            model = self._live.model if self._live is not None and self in self._live.listeners else None
            frame = self.outbox.take(model)
            if frame is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._socket.send_bytes(frame)
