"""The record of a comparison: a header, then a line for each finished run. A comparison resumes from its
record.

A run is reused from a record only where all of its inputs are the same: the arms with their switches, the
text of the scenario and of the files that it reads, the mode, and keplab's own code.
"""

import fcntl
import os
from pathlib import Path
from typing import Final, Self

import msgspec

from lab.experiments.document import ArmRun

SCHEMA: Final = "keplab.comparison-record"
VERSION: Final = 1


class RecordError(ValueError):
    """A record that cannot be used; the message names the file and the two conflicting values."""


class Header(msgspec.Struct, frozen=True):
    """First line of a record: what all of its runs have in common.

    `arms`: in the syntax of `--arm`; `set`: the switches of all arms; `inputs`: SHA-256 of the scenario's
    file and of those it reads, by name.
    """

    scenario: str
    inputs: dict[str, str]
    arms: list[str]
    set: list[str]
    mode: str
    revision: str
    mesh: str = ""
    """The mesh that already ran, with its own switches; empty: each run had its own."""
    schema: str = SCHEMA
    version: int = VERSION

    def disagreement(self, other: Self) -> str:
        """Return the first difference between the record `self` and the command `other`; empty if there is none."""
        if (self.schema, self.version) != (other.schema, other.version):
            return f"it has {self.schema} {self.version}, this keplab writes {other.schema} {other.version}"
        for what, mine, yours in (
            ("arms", self.arms, other.arms),
            ("switches of all arms", self.set, other.set),
            ("mode", [self.mode], [other.mode]),
            ("mesh", self.mesh.split(), other.mesh.split()),
            ("scenario", [self.scenario], [other.scenario]),
        ):
            if mine != yours:
                return f"it has {what} {_words_text(mine)}, this command has {_words_text(yours)}"
        for name in {**self.inputs, **other.inputs}:
            mine_sha, yours_sha = self.inputs.get(name, ""), other.inputs.get(name, "")
            if mine_sha != yours_sha:
                return f"it was made when {name} had SHA-256 {_short(mine_sha)}, now it has {_short(yours_sha)}"
        if self.revision != other.revision:
            return f"it was made by revision {self.revision}, this is {other.revision}"
        return ""


def _words_text(words: list[str]) -> str:
    return " ".join(words) or "(none)"


def _short(digest: str) -> str:
    return digest[:12] or "(none: it is not read)"


class Record:
    """An open record. `known`: its runs by arm and seed."""

    def __init__(self, path: Path, header: Header) -> None:
        """Open the file, or create it with the header. Raises: RecordError, OSError."""
        self.known: dict[tuple[str, int], ArmRun] = {}
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise RecordError(f"{path}: another keplab compare is writing to it") from None
        try:
            self._read(header)
        except BaseException:
            self.close()
            raise

    def _read(self, header: Header) -> None:
        content = self._path.read_bytes()
        if not content:
            os.write(self._file, msgspec.json.encode(header) + b"\n")
            return
        first, *lines = content.splitlines()
        try:
            known = msgspec.json.decode(first, type=Header)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise RecordError(f"{self._path}: no record of a comparison; name another file") from None
        if problem := known.disagreement(header):
            raise RecordError(f"{self._path} is the record of another comparison: {problem}; name another file")
        if not content.endswith(b"\n"):
            os.write(self._file, b"\n")  # a torn line must not swallow the next one
        for line in lines:
            try:
                arm_run = msgspec.json.decode(line, type=ArmRun)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            self.known[arm_run.arm, arm_run.run.seed] = arm_run

    def add(self, made: ArmRun) -> None:
        """Append a finished run; an unfinished one is skipped, so that it runs again. Raises: OSError."""
        if not made.run.error:
            os.write(self._file, msgspec.json.encode(made) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
