"""Play a recording to one page: send its columns at a version, and then its changes at their pace."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from lab.recordings import frames
from lab.recordings.model import Model
from lab.recordings.reader import Recording
from lab.ui.lines import shown_of
from lab.ui.runs import Run
from services.telemetry.eventlog import encode

BLOCK: Final = 500
"""Number of versions that are shown at once when the player is behind."""
WAIT_MAX_S: Final = 3600.0
SPEED_MAX: Final = 10_000.0


class Player:
    """Player of one recording to one page. `send` takes frames that replace the page's state, `columns` those of
    changed rows, as a listener of the mesh does.
    """

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
        """Show the recording at a version, or at the last end of a group before it; 0: at its beginning."""
        self.stop()
        self.model = await self.run.ask(_model_at, rv)
        self._send(self.model.frames(), self.model)

    def play(self, speed: float, at_s: float = 0.0) -> None:
        """Play on from the current version at `speed` times the recorded pace; 0 stops.

        `at_s`: the time that the page shows, if that is later than the version's.
        """
        self.stop()
        if speed > 0:
            self._playing = asyncio.create_task(self._play(min(speed, SPEED_MAX), max(self.model.time, at_s)))

    def stop(self) -> None:
        """Stop playing."""
        if self._playing is not None:
            self._playing.cancel()
            self._playing = None

    async def _play(self, speed: float, from_t: float) -> None:
        recording, model, begin_rv = self.run.recording, self.model, self.model.rv
        # Applies queue moves as well as versions, each when it is asked for; to find the moves, all lines are read.
        applied = await self.run.ask(Recording.replay, model, begin_rv)
        began_s, unshown, is_stop = time.monotonic(), 0, True
        for version in recording.versions(begin_rv):
            wait_s = (version.t - from_t) / speed - (time.monotonic() - began_s)
            if is_stop and (wait_s > 0 or unshown >= BLOCK):
                self._show()
                unshown = 0
                await asyncio.sleep(min(max(wait_s, 0.0), WAIT_MAX_S))
            next(applied)
            unshown, is_stop = unshown + 1, version.group_end
        self._show()

    def _show(self) -> None:
        self.model.columns("nodes")
        changed: dict[str, Sequence[int]] = {
            "nodes": list(self.model.nodes.changed),
            "pods": list(self.model.pods.changed),
        }
        self._columns(self.model.delta(), changed)


def _model_at(recording: Recording, rv: int) -> Model:
    first, last = recording.rv_range
    return recording.model_at(min(max(rv, first), last))


def recorded_lines(recording: Recording) -> tuple[list[bytes], int]:
    """Return a recording's event lines for a page, as they were written, and how many are left out."""
    lines, missing = shown_of(recording.lines())
    return [encode(line).rstrip(b"\n") for line in lines], missing


def lines_frame(texts: Sequence[bytes], rv: int, at_s: float) -> bytes:
    """Return a frame of event lines as they were written."""
    header: dict[str, Any] = {"lines": [msgspec.Raw(text) for text in texts]}
    return frames.document_frame(frames.LINES, header, rv, at_s)
