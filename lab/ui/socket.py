"""Connection of one page: its requests, and the frames sent to it."""

import asyncio
import contextlib
import struct
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import WSMsgType, web

from lab.recordings import frames
from lab.recordings.model import Model
from lab.ui.lines import Entry
from lab.ui.live import LINES_A_FRAME, Live, chunks
from lab.ui.objects import VERSION_MAX
from lab.ui.outbox import Outbox
from lab.ui.player import Player, lines_frame, recorded_lines
from lab.ui.runs import Runs
from services.api.errors import UNREADABLE, ApiError

HEARTBEAT_S: Final = 20.0
MESSAGE_BYTES_MAX: Final = 64 * 1024
_PREFIX = struct.Struct("<I")
_TEXT: Final = b"{"


class PageMessage(msgspec.Struct, frozen=True):
    """A message of the page. `t`: sub, seek, play, pong. `rv`: the version to seek, or the one that the page already
    has; `since`: lines newer than that wall time are sent; `time`: the time shown when playing begins; `rate` and
    `view` are for the page's own use.
    """

    t: str
    run: str = "live"
    view: str = ""
    rate: float = 20
    rv: Annotated[int, msgspec.Meta(ge=0, le=VERSION_MAX)] | None = None
    speed: float = 1.0
    time: float = float("-inf")
    since: str = ""
    lines: bool = True


def join_frames(made: Sequence[bytes]) -> bytes:
    """Return frames as one stream of bytes, each preceded by its length as u32."""
    return b"".join(part for frame in made for part in (_PREFIX.pack(len(frame)), frame))


class Page:
    """One connected page. It is a `Listener` of the mesh while it shows the mesh."""

    def __init__(self, socket: web.WebSocketResponse, runs: Runs) -> None:
        self._socket, self._runs = socket, runs
        self.outbox = Outbox()
        self._wake = asyncio.Event()
        self._asked = PageMessage("sub")
        self._live: Live | None = None
        """The mesh, while the page shows it."""
        self._player: Player | None = None

    @property
    def _model(self) -> Model | None:
        if self._live is not None:
            return self._live.model
        return self._player.model if self._player is not None else None

    async def serve(self) -> None:
        """Answer the page's messages until it disconnects."""
        sender = asyncio.create_task(self._send())
        try:
            async for message in self._socket:
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY) or sender.done():
                    break
                try:
                    await self._on_message(msgspec.json.decode(message.data, type=PageMessage))
                except UNREADABLE as error:
                    self._refuse(f"that is no message: {error}")
                except ApiError as error:
                    self._refuse(error.message)
        finally:
            self._leave()
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError, RuntimeError):
                await sender

    async def _on_message(self, asked: PageMessage) -> None:
        match asked.t:
            case "sub":
                await self._subscribe(asked)
            case "seek":
                await self._seek(asked.run, asked.rv or 0)
            case "play":
                if self._player is None or self._player.run.name != asked.run:
                    await self._seek(asked.run, 0)
                assert self._player is not None
                self._player.play(asked.speed, asked.time)
            case "pong":
                pass
            case _:
                self._refuse(f"t: want sub, seek, play or pong, not {asked.t[:40]!r}")

    async def _subscribe(self, asked: PageMessage) -> None:
        self._leave()
        self._asked = asked
        if asked.run != "live" or self._runs.live is None:
            await self._seek(asked.run, asked.rv or 0)
            if asked.lines:
                await self._send_recorded_lines()
            return
        live = self._live = self._runs.live
        self.outbox.reset(live.whole(), len(live.model.strings))
        live.listeners[self] = None
        if asked.lines:
            self.lines(live.ring.since(asked.since) if asked.since or not asked.rv else live.ring.after(asked.rv))
        now_s = live.now_s
        self.document(frames.RATES, frames.document_frame(frames.RATES, live.mesh_document(), live.model.rv, now_s))

    async def _seek(self, name: str, rv: int) -> None:
        run = await self._runs.of(name, rv)
        if self._player is None or self._player.run is not run:
            self._leave()
            self._player = Player(run, self._replace, self.columns)
        await self._player.seek(rv)

    def _replace(self, whole: Sequence[bytes], model: Model) -> None:
        self.outbox.reset(whole, len(model.strings))
        self._wake.set()

    async def _send_recorded_lines(self) -> None:
        assert self._player is not None
        player = self._player
        texts, more = await player.run.ask(recorded_lines)
        if self._player is not player:
            return  # the page went on to something else
        begins = range(0, len(texts), LINES_A_FRAME)
        # Made when they are sent: of what is shown then.
        self.outbox.put_rest(
            lines_frame(texts[begin : begin + LINES_A_FRAME], player.model.rv, player.model.time) for begin in begins
        )
        if more:
            self.outbox.note_missing(more, player.model.rv)
        self._wake.set()

    def _leave(self) -> None:
        if self._live is not None:
            self._live.listeners.pop(self, None)
            self._live = None
        if self._player is not None:
            self._player.stop()
            self._player = None
            self.outbox.put_rest(iter(()))

    def _refuse(self, message: str) -> None:
        self.outbox.put(0, msgspec.json.encode({"t": "error", "message": message}))
        self._wake.set()

    # -- Listener ----------------------------------------------------------------------------------------

    def whole(self, made: Sequence[bytes]) -> None:
        """Send all columns anew, in place of those waiting."""
        assert self._live is not None
        self.outbox.replace(made, len(self._live.model.strings))
        self._wake.set()

    def columns(self, made: Sequence[bytes], changed: dict[str, Sequence[int]]) -> None:
        """Send frames of strings and changed rows."""
        model = self._model
        assert model is not None
        self.outbox.put_columns(made, changed, len(model.strings), model.rv)
        self._wake.set()

    def lines(self, entries: Sequence[Entry]) -> None:
        """Send event lines."""
        if not self._asked.lines or self._live is None:
            return
        rv, now_s = self._live.model.rv, self._live.now_s
        for some in chunks(entries):
            self.outbox.put_lines(lines_frame([entry.raw for entry in some], rv, now_s), len(some), rv)
        self._wake.set()

    def document(self, kind: int, frame: bytes, about: str = "") -> None:
        """Send rates, counts, progress or an alarm."""
        model = self._model
        self.outbox.put(kind, frame, about, model.rv if model is not None else 0)
        self._wake.set()

    async def _send(self) -> None:
        while True:
            frame = self.outbox.take(self._model)
            if frame is None:
                self._wake.clear()
                await self._wake.wait()
            elif frame.startswith(_TEXT):
                await self._socket.send_str(frame.decode())
            else:
                await self._socket.send_bytes(frame)
