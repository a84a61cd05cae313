"""Event lines of a mesh as they are written, bytes and values, in the order of their time; and which a page is given.

The auditor's reader (`lab.scenarios.processes.event_files`) ends at the first gap; the page shows what there is,
and notes that something is missing.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lab.recordings.format import COMMIT, DELETED, MODIFIED
from lab.recordings.redaction import may_leak, redacted_line, redacted_text
from services.api.errors import UNREADABLE
from services.telemetry.eventlog import Line
from services.telemetry.pieces import files_of

KEPT: Final = 5_000
READ_BYTES_MAX: Final = 1 << 18
"""So much of one file is read at a time: of each file that much is held, decoded, while all are merged."""
LINES_MAX: Final = 20_000
"""So many lines of a recording a page is given."""
NOISE: Final = frozenset(("api.request", "api.response", "watch.open", "watch.close", "ctrl.reconcile", "cache.sync"))
"""Lines that say nothing which a page shows: it is given none of them, whichever way it is come to."""
_HEARTBEATS: Final = "Lease"
_FINAL: Final = frozenset(("Failed", "Succeeded"))
MOMENT: Final = attrgetter("line.mono_ns")
"""Of an entry: when its line was written, by the monotonic clock."""
_decoder = msgspec.json.Decoder(Line)


class Entry(NamedTuple):
    """One line: as bytes that may be shown, and as it is."""

    raw: bytes
    line: Line


class _RingLine(NamedTuple):
    """A line of the ring: its bytes, its time, and the version that it commits."""

    raw: bytes
    wall: str
    commit: int | None

    def entry(self) -> Entry:
        """Return the line, read."""
        return Entry(self.raw, _decoder.decode(self.raw))


def is_noise(line: Line) -> bool:
    """Whether a page is not given a line: one of NOISE, or the commit that renews a lease."""
    if line.ev == COMMIT:
        return line.obj is not None and line.obj["kind"] == _HEARTBEATS and line.data.get("type") == MODIFIED
    return line.ev in NOISE


def shown_of(lines: Iterable[Line], most: int = LINES_MAX, *, only_decisions: bool = False) -> tuple[list[Line], int]:
    """Return the lines of a recording that a page shows, the newest `most`, and how many are left out. Of commits only
    those that end something are shown; where there are more than `most`, decisions, faults and commands alone."""
    every: deque[Line] = deque(maxlen=most)
    decided: deque[Line] = deque(maxlen=most)
    count = 0
    for line in lines:
        if is_noise(line) or (line.ev == COMMIT and not _ends(line)):
            continue
        count += 1
        every.append(line)
        if line.ev.startswith(("sched.", "kubelet.", "proc.", "fault.", "ui.")) or line.ev == COMMIT:
            decided.append(line)
    shown = decided if only_decisions or count > most else every
    return list(shown), count - len(shown)


def _ends(commit: Line) -> bool:
    """Whether a commit deletes an object, or is a pod's last step."""
    return commit.data.get("type") == DELETED or commit.data.get("phase") in _FINAL


class LineFeed:
    """Follows every event file below a folder; new ones from their beginning."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._numbers: dict[str, int] = {}
        self.missing = ""
        """Which lines are missing, "" for none."""
        self.is_behind = False
        """Whether there was more than one call may read."""

    def history(self) -> Iterator[Entry]:
        """Yield what the files have now, in the order of time; `poll` goes on from there."""
        files = [
            self._whole(name, [(path, _size(path)) for path in pieces])
            for name, pieces in files_of(self._folder).items()
        ]
        yield from merge(*files, key=MOMENT)

    def _whole(self, name: str, pieces: Sequence[tuple[Path, int]]) -> Iterator[Entry]:
        """Yield what a file has had when this was begun, however fast it grows."""
        for path, size in pieces:
            while self._offsets.get(path, 0) < size and (some := list(self._added(name, path))):
                yield from some

    def poll(self) -> list[Entry]:
        """Return lines that were added, oldest first."""
        found: list[Entry] = []
        self.is_behind = False
        files = files_of(self._folder)
        if sum(map(len, files.values())) < len(self._offsets):
            there = {path for pieces in files.values() for path in pieces}
            self._offsets = {path: offset for path, offset in self._offsets.items() if path in there}
            self._numbers = {name: number for name, number in self._numbers.items() if name in files}
        for name, pieces in files.items():
            for path in pieces:
                found += self._added(name, path)
        found.sort(key=MOMENT)
        return found

    def _added(self, name: str, path: Path) -> Iterator[Entry]:
        offset = self._offsets.get(path, 0)
        try:
            if path.stat().st_size == offset:
                return
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(READ_BYTES_MAX)
        except OSError:
            return  # removed to make space
        self.is_behind = self.is_behind or len(data) == READ_BYTES_MAX
        # One that is longer than all that is read at once is no line: what follows it is read.
        whole = data[: data.rfind(b"\n") + 1] or (data if len(data) == READ_BYTES_MAX else b"")
        self._offsets[path] = offset + len(whole)
        is_harmless = not may_leak(whole)
        for raw in whole.splitlines():
            entry = entry_of(raw, is_harmless=is_harmless)
            if entry is None:
                self._note_missing(f"{path.name} has a line that cannot be read")
                continue
            expected = self._numbers.get(name, 0) + 1
            self._numbers[name] = entry.line.seq
            if entry.line.seq != expected:
                self._note_missing(f"{path.name}: line {entry.line.seq} follows line {expected - 1}")
            yield entry

    def _note_missing(self, what: str) -> None:
        self.missing = self.missing or what


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # removed to make space


def entry_of(raw: bytes, *, is_harmless: bool = False) -> Entry | None:
    """Return a line as it may be shown; None for what is no line. `is_harmless`: its text has nothing to hide."""
    try:
        line = _decoder.decode(raw)
    except UNREADABLE:
        return None
    shown = redacted_line(line)
    if shown is not line:
        return Entry(redacted_text(msgspec.json.encode(shown)), line)
    return Entry(raw if is_harmless else redacted_text(raw), line)


def add_in_order(held: list[Entry], more: Sequence[Entry]) -> None:
    """Add entries, in the order of their time, to others that are in that order: only the end is sorted again, of which
    they may be a part."""
    if more:
        at = bisect_right(held, MOMENT(more[0]), key=MOMENT)
        held[at:] = sorted((*held[at:], *more), key=MOMENT)


class Ring:
    """The newest lines that a page shows, for one that opens or comes back. They are kept as they are written, and read
    again when they are asked for: a line that is read takes five times as much."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept: deque[_RingLine] = deque(maxlen=kept)

    def add(self, entry: Entry) -> None:
        """Keep one more; the oldest goes."""
        line = entry.line
        self._kept.append(_RingLine(entry.raw, line.wall, line.rv if line.ev == COMMIT else None))

    def after(self, rv: int) -> list[Entry]:
        """Return those that were written after the commit of a version."""
        kept = list(self._kept)
        for place in range(len(kept) - 1, -1, -1):
            commit = kept[place].commit
            if commit is not None and commit <= rv:
                return [each.entry() for each in kept[place + 1 :]]
        return [each.entry() for each in kept]

    def since(self, wall: str) -> list[Entry]:
        """Return those that are newer than a time of the wall's clock as lines have it; "" means all."""
        return [each.entry() for each in self._kept if each.wall > wall]
