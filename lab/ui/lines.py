"""Event lines of a mesh as they are written, as bytes and values, in order of time; and selection for a page.

The auditor's reader (`lab.scenarios.processes.event_files`) ends at the first gap; the page shows what there
is, and notes that something is missing.
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
"""Bytes read of one file at a time; while all files are merged, that much of each is held, decoded."""
LINES_MAX: Final = 20_000
"""Largest number of a recording's lines that a page gets."""
NOISE: Final = frozenset(("api.request", "api.response", "watch.open", "watch.close", "ctrl.reconcile", "cache.sync"))
"""Events that a page never gets, live or recorded, because it shows nothing of them."""
_HEARTBEATS: Final = "Lease"
_FINAL: Final = frozenset(("Failed", "Succeeded"))
MOMENT: Final = attrgetter("line.mono_ns")
"""Key function of an entry: its line's time by the monotonic clock."""
_decoder = msgspec.json.Decoder(Line)


class Entry(NamedTuple):
    """One line: redacted bytes that may be shown, and the decoded line."""

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
    """Return whether a line is withheld from pages: an event of NOISE, or a commit that renews a lease."""
    if line.ev == COMMIT:
        return line.obj is not None and line.obj["kind"] == _HEARTBEATS and line.data.get("type") == MODIFIED
    return line.ev in NOISE


def shown_of(lines: Iterable[Line], most: int = LINES_MAX, *, only_decisions: bool = False) -> tuple[list[Line], int]:
    """Return a recording's lines for a page, the newest `most`, and how many are left out.

    Of commits only those that delete an object or end a pod are shown. If there are more than `most` lines, only
    decisions, faults, commands and these commits are.
    """
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
    """Reader that follows every event file below a folder; new files from their beginning."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._numbers: dict[str, int] = {}
        self.missing = ""
        """Which lines are missing, "" for none."""
        self.is_behind = False
        """Whether there was more than one call may read."""

    def history(self) -> Iterator[Entry]:
        """Yield the lines that the files have now, in order of time; `poll` continues after them."""
        files = [
            self._whole(name, [(path, _size(path)) for path in pieces])
            for name, pieces in files_of(self._folder).items()
        ]
        yield from merge(*files, key=MOMENT)

    def _whole(self, name: str, pieces: Sequence[tuple[Path, int]]) -> Iterator[Entry]:
        """Yield what a file has had when this was begun, however fast it grows."""
        for path, size in pieces:
            while self._offsets.get(path, 0) < size and (some := list(self._new_entries(name, path))):
                yield from some

    def poll(self) -> list[Entry]:
        """Return the lines added since the last call, oldest first."""
        entries: list[Entry] = []
        self.is_behind = False
        files = files_of(self._folder)
        if sum(map(len, files.values())) < len(self._offsets):
            there = {path for pieces in files.values() for path in pieces}
            self._offsets = {path: offset for path, offset in self._offsets.items() if path in there}
            self._numbers = {name: number for name, number in self._numbers.items() if name in files}
        for name, pieces in files.items():
            for path in pieces:
                entries += self._new_entries(name, path)
        entries.sort(key=MOMENT)
        return entries

    def _new_entries(self, name: str, path: Path) -> Iterator[Entry]:
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
    """Return an entry for a line; None if the bytes are no line. `is_harmless`: its text has nothing to hide."""
    try:
        line = _decoder.decode(raw)
    except UNREADABLE:
        return None
    shown = redacted_line(line)
    if shown is not line:
        return Entry(redacted_text(msgspec.json.encode(shown)), line)
    return Entry(raw if is_harmless else redacted_text(raw), line)


def add_in_order(held: list[Entry], more: Sequence[Entry]) -> None:
    """Insert entries into a list that is sorted by time. Only its end is sorted again, where they may overlap."""
    if more:
        at = bisect_right(held, MOMENT(more[0]), key=MOMENT)
        held[at:] = sorted((*held[at:], *more), key=MOMENT)


class Ring:
    """The newest lines for pages, for one that opens or reconnects.

    They are kept as bytes and decoded on request: a decoded line takes five times as much memory.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept: deque[_RingLine] = deque(maxlen=kept)

    def add(self, entry: Entry) -> None:
        """Add a line; the oldest one is dropped."""
        line = entry.line
        self._kept.append(_RingLine(entry.raw, line.wall, line.rv if line.ev == COMMIT else None))

    def after(self, rv: int) -> list[Entry]:
        """Return the lines written after the commit of a version."""
        kept = list(self._kept)
        for place in range(len(kept) - 1, -1, -1):
            commit = kept[place].commit
            if commit is not None and commit <= rv:
                return [each.entry() for each in kept[place + 1 :]]
        return [each.entry() for each in kept]

    def since(self, wall: str) -> list[Entry]:
        """Return the lines newer than a wall time, in the lines' own format; "" returns all."""
        return [each.entry() for each in self._kept if each.wall > wall]
