"""Event files of one run, read while they grow: merged by `mono_ns`, comparable on one host (guarantees 1.1)."""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import msgspec

from services.api.errors import UNREADABLE
from services.telemetry.eventlog import Line
from services.telemetry.pieces import files_of, is_incomplete


class Incomplete(ValueError):
    """A file of the event log has a gap or an undecodable line: the result is unknown (I27)."""


_decoder = msgspec.json.Decoder(Line)


class _File:
    """The file of one incarnation, in its pieces."""

    def __init__(self) -> None:
        self._offsets: dict[Path, int] = {}
        self._number = 0

    def read(self, pieces: Sequence[Path]) -> list[Line]:
        """Return the complete lines added since the last call. Raises: Incomplete."""
        lines: list[Line] = []
        for path in pieces:
            offset = self._offsets.get(path, 0)
            try:
                with path.open("rb") as file:
                    file.seek(offset)
                    data = file.read()
            except FileNotFoundError:
                continue  # removed to make space; if it was not read to its end, the next piece begins too late
            # A last line without its newline is still being written, or was torn by SIGKILL.
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = offset + len(whole)
            lines += (self._next(path, text) for text in whole.splitlines())
        return lines

    def _next(self, path: Path, text: bytes) -> Line:
        self._number += 1
        try:
            line = _decoder.decode(text)
        except UNREADABLE as error:
            raise Incomplete(f"{path.name}:{self._number}: {error}") from None
        if line.seq != self._number:
            raise Incomplete(f"{path.name}:{self._number}: seq is {line.seq}")
        return line


class Tail:
    """Reader that follows every event file below a folder. Once a file is incomplete, it stays so."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _File] = {}
        self._held: list[Line] = []
        self._missing: Incomplete | None = None

    def poll(self, before_ns: int | None) -> list[Line]:
        """Return new lines older than `before_ns` in order; None: all available lines. Raises: Incomplete."""
        if self._missing is not None:
            raise self._missing
        try:
            for name, pieces in files_of(self._folder).items():
                self._held += self._files.setdefault(name, _File()).read(pieces)
                if before_ns is None and is_incomplete(pieces[-1]):
                    raise Incomplete(f"{pieces[-1].name}: lines are missing at its end, the disk was full")
        except Incomplete as error:
            self._missing = error
            raise
        self._held.sort(key=lambda line: (line.mono_ns, line.comp, line.inc, line.seq))
        split = len(self._held)
        if before_ns is not None:
            split = bisect_left(self._held, before_ns, key=lambda line: line.mono_ns)
        ready, self._held = self._held[:split], self._held[split:]
        return ready
