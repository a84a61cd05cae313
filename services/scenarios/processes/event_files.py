"""Event files of one run, read while they grow: merged by `mono_ns`, comparable on one host (guarantees 1.1)."""

from bisect import bisect_left
from pathlib import Path

import msgspec

from services.api.errors import UNREADABLE
from services.telemetry.eventlog import Line


class Incomplete(ValueError):
    """A file of the event log has a gap or an undecodable line: the result is unknown (I27)."""


_decoder = msgspec.json.Decoder(Line)


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.number = 0

    def read(self) -> list[Line]:
        """Return the complete lines added since the last call. Raises: Incomplete."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        # A last line without its newline is still being written, or was torn by SIGKILL.
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        found = []
        for text in whole.splitlines():
            self.number += 1
            try:
                line = _decoder.decode(text)
            except UNREADABLE as error:
                raise Incomplete(f"{self.path.name}:{self.number}: {error}") from None
            if line.seq != self.number:
                raise Incomplete(f"{self.path.name}:{self.number}: seq is {line.seq}")
            found.append(line)
        return found


class Tail:
    """Follows every event file below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, _File] = {}
        self._held: list[Line] = []

    def poll(self, before_ns: int | None) -> list[Line]:
        """Return new lines older than `before_ns` in order; None: all there are. Raises: Incomplete."""
        for path in sorted(self._folder.glob("*.jsonl")):
            self._held += self._files.setdefault(path, _File(path)).read()
        self._held.sort(key=lambda line: (line.mono_ns, line.comp, line.inc, line.seq))
        split = len(self._held)
        if before_ns is not None:
            split = bisect_left(self._held, before_ns, key=lambda line: line.mono_ns)
        ready, self._held = self._held[:split], self._held[split:]
        return ready
