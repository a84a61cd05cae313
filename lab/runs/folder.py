"""The folder of runs: one folder for each run, with its record, its decisions, its page and perhaps its event log.

A record is there whole or not at all: it is written beside and moved to its place. The oldest runs are removed
when there are more than the budget allows; nothing else in the folder is touched. Files are private, as a
mesh's data is.
"""

import gzip
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from lab.runs.record import RunRecord, UnknownRun, id_of, resolve_reference
from lab.scenarios.decisions.decision import Decision
from services.api.errors import UNREADABLE
from services.telemetry.eventlog import Line
from services.telemetry.pieces import MIB, make_private

T = TypeVar("T")
RECORD_FILE: Final = "run.json"
DECISIONS_FILE: Final = "decisions.jsonl.gz"
EVENTS_FILE: Final = "events.jsonl.gz"
COMPARISON_FILE: Final = "comparison.json"
PAGE_FILE: Final = "page.html"
PARTIAL: Final = ".partial-"
STALE_S: Final = 86_400.0
"""Age in seconds from which an unfinished record is removed."""
_PRIVATE: Final = 0o600

if TYPE_CHECKING:
    from lab.experiments.document import Comparison

_record = msgspec.json.Decoder(RunRecord)
_decision = msgspec.json.Decoder(Decision)
_line = msgspec.json.Decoder(Line)


@dataclass(frozen=True)
class Budget:
    """Largest number of runs that are kept, and of bytes they may take together; the newest run always stays."""

    runs: int = 500
    bytes: int = 1024 * MIB


class Unreadable(ValueError):
    """A file of a run cannot be read; the message names it."""


class RunsFolder:
    """Runs below one folder, newest first."""

    def __init__(self, path: Path, budget: Budget = Budget()) -> None:
        self.path, self._budget = path, budget

    def ids(self) -> list[str]:
        """Return the ids of all runs, newest first."""
        entries: list[tuple[int, str]] = []
        with suppress(OSError):
            for entry in os.scandir(self.path):
                with suppress(OSError):
                    if not entry.name.startswith("."):
                        entries.append((os.stat(os.path.join(entry.path, RECORD_FILE)).st_mtime_ns, entry.name))
        return [name for _, name in sorted(entries, reverse=True)]

    def records(self) -> Iterator[RunRecord]:
        """Yield the records that can be read, newest first."""
        for each in self.ids():
            with suppress(Unreadable):
                yield self.read(each)

    def find_by_name(self, reference: str) -> tuple[RunRecord, str, int | None]:
        """Return the run that a reference names, and for a comparison the named arm and seed.

        Raises: UnknownRun, Unreadable.
        """
        target = resolve_reference(reference, self.ids(), str(self.path))
        record = self.read(target.id)
        if target.arm and target.arm not in record.arms:
            arms = ", ".join(record.arms) or "none: it is no comparison"
            raise UnknownRun(f"run {target.id} has no arm {target.arm!r}; its arms are {arms}")
        if target.seed is not None and target.seed not in record.seeds:
            seeds = f"{record.seeds[0]} to {record.seeds[-1]}" if record.seeds else "none"
            raise UnknownRun(f"run {target.id} has no seed {target.seed}; its seeds are {seeds}")
        return record, target.arm, target.seed

    def read(self, run: str) -> RunRecord:
        """Return the record of a run. Raises: Unreadable."""
        return _read(self.file(run, RECORD_FILE), _record)

    def comparison(self, run: str) -> "Comparison":
        """Return the document of a comparison. Raises: Unreadable."""
        # A statistics library is behind it, which lists of runs do without.
        from lab.experiments.document import DocumentError, read_document

        path = self.file(run, COMPARISON_FILE)
        try:
            return read_document(path.read_bytes(), str(path))
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror or error}") from None
        except DocumentError as error:
            raise Unreadable(str(error)) from None

    def decisions(self, run: str) -> list[Decision]:
        """Return the decisions of a run, in order. Raises: Unreadable."""
        path = self.file(run, DECISIONS_FILE)
        return [_decode(path, text, _decision) for text in _texts(path)]

    def events(self, run: str) -> Iterator[Line]:
        """Yield the lines of a run's kept event log. Raises: Unreadable."""
        path = self.file(run, EVENTS_FILE)
        for text in _texts(path):
            yield _decode(path, text, _line)

    def file(self, run: str, name: str) -> Path:
        """Return the path of a file of a run."""
        return self.path / run / name

    def add(self, partial: Path, record: RunRecord) -> str:
        """Move a written run to its place under a new id, and return the id. Raises: OSError."""
        for _ in range(8):
            run = id_of(record, set(self.ids()))
            write_private(partial / RECORD_FILE, msgspec.json.encode(msgspec.structs.replace(record, id=run)))
            try:
                partial.rename(self.path / run)
            except OSError:
                if (self.path / run).exists():
                    continue  # another process was given that id in this moment
                raise
            self._trim(run)
            return run
        raise FileExistsError(f"no free id in {self.path}")

    def begin(self) -> Path:
        """Return a new folder to write a run into. Raises: OSError when it cannot be made."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        number = 0
        while True:
            partial = self.path / f"{PARTIAL}{os.getpid()}-{number}"
            try:
                partial.mkdir(mode=0o700)
            except FileExistsError:
                number += 1
                continue
            make_private(partial)
            return partial

    def _trim(self, newest: str) -> None:
        """Remove the oldest runs until the rest fits, and what was begun and never ended."""
        total = 0
        for number, run in enumerate(self.ids()):
            size = 0
            for name in (RECORD_FILE, DECISIONS_FILE, EVENTS_FILE, COMPARISON_FILE, PAGE_FILE):
                with suppress(OSError):
                    size += self.file(run, name).stat().st_size
            total += size
            if run != newest and (number >= self._budget.runs or total > self._budget.bytes):
                self.remove(run)
        with suppress(OSError):
            now_s = self.file(newest, RECORD_FILE).stat().st_mtime
            for partial in self.path.glob(f"{PARTIAL}*"):
                with suppress(OSError):
                    if now_s - partial.stat().st_mtime > STALE_S:
                        shutil.rmtree(partial, ignore_errors=True)

    def remove(self, run: str) -> None:
        """Remove a run: its record first, so that no reader finds half of it."""
        with suppress(OSError):
            self.file(run, RECORD_FILE).unlink()
        shutil.rmtree(self.path / run, ignore_errors=True)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read. Raises: OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE)
    with open(fd, "wb") as file:
        file.write(data)


def _read(path: Path, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(path.read_bytes())
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from None
    except UNREADABLE as error:
        raise Unreadable(f"{path}: {error}") from None


def _texts(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") as file:
            yield from file
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise Unreadable(f"{path}: {error}") from None


def _decode(path: Path, text: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(text)
    except UNREADABLE as error:
        raise Unreadable(f"{path}: {error}") from None
