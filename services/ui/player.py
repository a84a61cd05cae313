"""A recording as it is sent to one page: its columns at a version, and from there on in its own time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from services.recordings import frames
from services.recordings.format import Version
from services.recordings.model import Change, Model
from services.recordings.reader import Recording
from services.telemetry.eventlog import encode
from services.ui.runs import Run

TICK_S: Final = 0.05
BLOCK: Final = 2_000
SPEED_MAX: Final = 10_000.0


class Player:
    """Plays one recording to one page. `send` takes frames that replace what the page has, `columns` those of changed
    rows, as a listener of the mesh does."""

    def __init__(
        self,
        run: Run,
        send: Callable[[Sequence[bytes], Model], None],
        columns: Callable[[Sequence[bytes], dict[str, Sequence[int]]], None],
    ) -> None:
        self.run, self._send, self._columns = run, send, columns
        self.model = Model()
        self._playing: asyncio.Task[None] | None = None

    async def seek(self, rv: int) -> None:
        """Show the recording at a version, or at the last end of a group before it; 0: at its begin."""
        self.stop()
        self.model = await self.run.ask(_model_at, rv)
        self._send(self.model.frames(), self.model)

    def play(self, speed: float) -> None:
        """Go on from where it is, so many times as fast as it was; 0 stops."""
        self.stop()
        if speed > 0:
            self._playing = asyncio.create_task(self._play(min(speed, SPEED_MAX)))

    def stop(self) -> None:
        """Stay where it is."""
        if self._playing is not None:
            self._playing.cancel()
            self._playing = None

    async def _play(self, speed: float) -> None:
        began_s, from_t = time.monotonic(), self.model.time
        while block := await self.run.ask(_changes, self.model.rv):
            place = 0
            while place < len(block):
                until_t = from_t + (time.monotonic() - began_s) * speed
                begin = place
                while place < len(block) and (block[place][0].t <= until_t or not _is_stop(block, place)):
                    version, change = block[place]
                    self.model.apply(version.rv, version.t, version.group_end, (change,))
                    place += 1
                if place > begin:
                    self._show()
                if place < len(block):
                    await asyncio.sleep(min(TICK_S, max(0.0, (block[place][0].t - until_t) / speed)) or TICK_S)
        self._show()

    def _show(self) -> None:
        self.model.columns("nodes")
        changed: dict[str, Sequence[int]] = {
            "nodes": list(self.model.nodes.changed),
            "pods": list(self.model.pods.changed),
        }
        self._columns(self.model.delta(), changed)


def _is_stop(block: Sequence[tuple[Version, Change]], place: int) -> bool:
    """Whether one may stop before that version: what was committed together before it is complete."""
    return place == 0 or block[place - 1][0].group_end


def _model_at(recording: Recording, rv: int) -> Model:
    first, last = recording.rv_range
    return recording.model_at(min(max(rv, first), last))


def _changes(recording: Recording, after_rv: int) -> list[tuple[Version, Change]]:
    """Return the next versions with what they changed; as many as are read at a time, up to the end of a group."""
    found: list[tuple[Version, Change]] = []
    for version in recording.versions(after_rv):
        found.append((version, recording.change(version)))
        if len(found) >= BLOCK and version.group_end:
            break
    return found


def recorded_lines(recording: Recording, most: int) -> tuple[list[bytes], int]:
    """Return the first event lines as they were written, and how many more there are."""
    found: list[bytes] = []
    more = 0
    for line in recording.lines():
        if len(found) < most:
            found.append(encode(line).rstrip(b"\n"))
        else:
            more += 1
    return found, more


def lines_frame(texts: Sequence[bytes], rv: int, at_s: float) -> bytes:
    """Return a frame with event lines as they were written."""
    header: dict[str, Any] = {"lines": [msgspec.Raw(text) for text in texts]}
    return frames.document_frame(frames.LINES, header, rv, at_s)
