"""The log files of a mesh's processes: their list, their last lines, and newly added lines."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from services.api.errors import UNREADABLE

LOGS_FOLDER = "logs"
_ENDING = ".log"
_FIRST = ("timestamp", "level", "comp", "event")


class LogLine(NamedTuple):
    """One line of a process's log. `fields`: its JSON fields, {} for a line that is not JSON, such as a traceback.
    `timestamp`: its time; a line that is not JSON has that of the line before it.
    """

    process: str
    timestamp: str
    text: str
    fields: dict[str, Any]

    def for_people(self) -> str:
        """Return time, level, event and the rest as NAME=VALUE."""
        if not self.fields:
            return self.text
        rest = (f"{name}={_text(value)}" for name, value in self.fields.items() if name not in _FIRST)
        level, event = (str(self.fields.get(name, "")) for name in ("level", "event"))
        return " ".join((self.timestamp, f"{level:<7}", event, *rest)).rstrip()

    def document(self) -> dict[str, Any]:
        """Return the line with the name of its process."""
        return {"process": self.process, **(self.fields or {"timestamp": self.timestamp, "text": self.text})}


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def processes(data: Path) -> dict[str, Path]:
    """Return the log file of each process that has a log, by the name that `keplab status` shows."""
    found = {
        path.name.removesuffix(_ENDING).replace("_", "/"): path for path in (data / LOGS_FOLDER).glob(f"*{_ENDING}")
    }
    return dict(sorted(found.items()))


def lines_of(process: str, path: Path, since: str = "", tail: int = -1) -> list[LogLine]:
    """Return the lines of a log from the time `since` on, or the last `tail` of them; closed pieces are included."""
    pieces = [path, *sorted(path.parent.glob(f"{path.name}.??????"), reverse=True)]
    log_lines: list[LogLine] = []
    for piece in pieces:  # the youngest first
        try:
            text = piece.read_bytes()
        except OSError:
            continue  # removed to make space meanwhile
        lines = [line for line in read(process, text) if line.timestamp >= since]
        log_lines = lines + log_lines
        if (0 <= tail <= len(log_lines)) or (since and not lines):
            break
    return log_lines[len(log_lines) - min(tail, len(log_lines)) :] if tail >= 0 else log_lines


def read(process: str, data: bytes, before: str = "") -> Iterator[LogLine]:
    """Yield the lines of these bytes. `before`: the time of the line before them."""
    for text in data.decode("utf-8", "replace").splitlines():
        fields: dict[str, Any] = {}
        try:
            fields = msgspec.json.decode(text, type=dict[str, Any])
            before = str(fields.get("timestamp", before))
        except UNREADABLE:
            pass
        yield LogLine(process, before, text, fields)


class Tail:
    """Reader of the lines that are added to a log from now on, also when it goes on in a new file."""

    def __init__(self, process: str, path: Path, *, is_new: bool = False) -> None:
        """`is_new`: read the log from its beginning."""
        self._process, self._path = process, path
        self._file: BinaryIO | None = None
        self._rest, self._before = b"", ""
        self._open(is_new=is_new)

    def _open(self, *, is_new: bool) -> None:
        try:
            self._file = self._path.open("rb")
        except OSError:
            self._file = None
        else:
            self._file.seek(0, os.SEEK_SET if is_new else os.SEEK_END)

    def poll(self) -> Sequence[LogLine]:
        """Return the lines completed since the last call."""
        if self._file is None:
            self._open(is_new=True)
            if self._file is None:
                return ()
        is_replaced = self._is_replaced(self._file)
        data = self._rest + self._file.read()
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        lines = list(read(self._process, data[:end], self._before))
        if lines:
            self._before = lines[-1].timestamp
        if is_replaced:
            self._file.close()
            self._open(is_new=True)
        return lines

    def _is_replaced(self, file: BinaryIO) -> bool:
        try:
            return not os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except OSError:
            return False
