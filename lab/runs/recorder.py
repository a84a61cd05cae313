"""Record one run while it goes on: the decisions of its event log, and the log itself if it cannot be made again.

If the disk refuses, the record is lost, never the run: `take` raises nothing.
"""

import gzip
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec

from lab.runs.folder import COMPARISON_FILE, DECISIONS_FILE, EVENTS_FILE, RunsFolder, write_private
from lab.runs.record import RunRecord
from lab.scenarios.decisions.decision import Decision
from lab.scenarios.decisions.scores import ScoredDecisions, SimulatedMesh
from services.telemetry.eventlog import Line, encode
from services.telemetry.pieces import MIB

EVENTS_BYTES_MAX: Final = 128 * MIB
"""Largest size of a kept event log, in compressed bytes."""


class Recorder:
    """Writer of the files of one run; `keep` or `discard` ends it."""

    def __init__(self, folder: RunsFolder, *, keeps_events: bool) -> None:
        """Begin a record. Raises: OSError when it cannot be made."""
        self._folder = folder
        self._partial = folder.begin()
        self._decisions = ScoredDecisions()
        self.decision_count = 0
        self._error: OSError | None = None
        self._decision_file = self._open_file(DECISIONS_FILE)
        self._event_file = self._open_file(EVENTS_FILE) if keeps_events else None
        self._encoder = msgspec.json.Encoder(enc_hook=str)

    def _open_file(self, name: str) -> "Compressed":
        return Compressed(self._partial / name)

    def take(self, line: Line) -> None:
        """Record a line of the event log."""
        if self._error is not None:
            return
        try:
            self._write(self._decisions.take(line))
            if self._event_file is not None:
                self._event_file.write(encode(line))
                if self._event_file.size > EVENTS_BYTES_MAX:
                    self._event_file.close()
                    self._event_file = None
                    (self._partial / EVENTS_FILE).unlink()
        except OSError as error:
            self._error = error

    def look_into(self, mesh: SimulatedMesh) -> None:
        """Set the simulated mesh, so that the reasons of its schedulers' choices are recorded as well."""
        self._decisions.look_into(mesh)

    def _write(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self.decision_count += 1
            self._decision_file.write(self._encoder.encode(decision) + b"\n")

    def finish(self) -> None:
        """Record the remaining decisions at the end of the event log."""
        try:
            self._write(self._decisions.rest())
        except OSError as error:
            self._error = self._error or error

    def keep(self, record: RunRecord) -> str:
        """Add the record to the folder; return its id. Raises: OSError, and nothing is kept."""
        has_events = self._event_file is not None
        try:
            self._close()
            if self._error is not None:
                raise self._error
            return self._folder.add(self._partial, msgspec.structs.replace(record, has_events=has_events))
        except OSError:
            self.discard()
            raise

    def discard(self) -> None:
        """Forget the run."""
        self._close()
        shutil.rmtree(self._partial, ignore_errors=True)

    def _close(self) -> None:
        for file in (self._decision_file, self._event_file):
            try:
                if file is not None:
                    file.close()
            except OSError as error:
                self._error = self._error or error


class Compressed:
    """A private file that is compressed while it is written; `size`: bytes written to disk so far."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._raw = os.fdopen(fd, "wb")
        self._file = gzip.GzipFile("", "wb", 6, cast("BinaryIO", self._raw), mtime=0)

    def write(self, data: bytes) -> None:
        """Append whole lines. Raises: OSError."""
        self._file.write(data)

    @property
    def size(self) -> int:
        """Number of bytes written to disk so far."""
        return self._raw.tell()

    def close(self) -> None:
        """Finish the file. Raises: OSError."""
        try:
            self._file.close()
        finally:
            self._raw.close()


def keep_document(folder: RunsFolder, record: RunRecord, document: bytes = b"") -> str:
    """Record a run without an event log of its own: a sweep, or a comparison with its document. Raises: OSError."""
    partial = folder.begin()
    try:
        if document:
            write_private(partial / COMPARISON_FILE, document)
        return folder.add(partial, record)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
