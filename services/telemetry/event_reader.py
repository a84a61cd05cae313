"""Reader of the event logs in a directory: from any point, despite gaps, and following them while they grow.

The auditor's reader (`lab.scenarios.processes.event_files`) refuses a gap; people read the lines that exist.
Source: guarantees 1.1, and `pieces` for how files are cut.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from heapq import merge
from pathlib import Path

import msgspec

from services.api.errors import UNREADABLE
from services.telemetry.eventlog import Line
from services.telemetry.pieces import files_of

_decoder = msgspec.json.Decoder(Line)


class Filter(msgspec.Struct, frozen=True):
    """Filter of lines; an empty field matches any. `kind` is lower case. `name`, `events`, `components` and `nodes`
    may be patterns; a component's name includes its hosts (`kubelet` for `kubelet/h0`).
    """

    kind: str = ""
    name: str = ""
    namespace: str = ""
    events: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    node: str = ""

    def takes(self, line: Line) -> bool:
        """Whether the filter matches the line."""
        if self.events and not any(fnmatchcase(line.ev, each) for each in self.events):
            return False
        if self.components and not any(_is_of(line.comp, each) for each in self.components):
            return False
        if self.node and not fnmatchcase(line.node or line.data.get("node") or "", self.node):
            return False
        if not (self.kind or self.name or self.namespace):
            return True
        if line.obj is None:
            return False
        is_kind = not self.kind or line.obj["kind"].lower() == self.kind
        is_named = not self.name or fnmatchcase(line.obj["name"], self.name)
        return is_kind and is_named and self.namespace in ("", line.obj["ns"])


def _is_of(component: str, asked: str) -> bool:
    return fnmatchcase(component, asked) or component.startswith(f"{asked}/")


def read_all(folder: Path, since: str = "") -> Iterator[Line]:
    """Yield the lines of all files in the order of their wall-clock time, from `since` on (`2026-01-01T00:00:00…`);
    lines that cannot be decoded are left out.
    """
    files = [_lines(pieces, since) for pieces in files_of(folder).values()]
    yield from merge(*files, key=lambda line: line.wall)


def _lines(pieces: Sequence[Path], since: str) -> Iterator[Line]:
    for path in pieces:
        try:
            with path.open("rb") as file:
                for text in file:
                    if (line := _decode_line(text)) is not None and line.wall >= since:
                        yield line
        except OSError:
            continue  # removed to make space while it was looked at


def _decode_line(text: bytes) -> Line | None:
    try:
        return _decoder.decode(text)
    except UNREADABLE:
        return None


class Follower:
    """New lines in the files of a folder from now on; new files are read from their beginning."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {path: path.stat().st_size for path in folder.glob("*.jsonl")}

    def poll(self) -> list[Line]:
        """Return the new lines in the order of their time."""
        found: list[Line] = []
        for pieces in files_of(self._folder).values():
            for path in pieces:
                found += self._new_lines(path)
        return sorted(found, key=lambda line: line.wall)

    def _new_lines(self, path: Path) -> Iterator[Line]:
        try:
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = self._offsets.get(path, 0) + len(whole)
        yield from filter(None, map(_decode_line, whole.splitlines()))


def last(lines: Iterator[Line], count: int) -> Iterator[Line]:
    """Return the last `count` lines; a negative number means all."""
    return lines if count < 0 else iter(deque(lines, maxlen=count))


def object_asked_for(text: str) -> Mapping[str, str]:
    """Parse `KIND/NAME` or `NAME` into kind and name, as fields of a Filter."""
    kind, slash, name = text.rpartition("/")
    return {"kind": kind.lower(), "name": name} if slash else {"name": name}
