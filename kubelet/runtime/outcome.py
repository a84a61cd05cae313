"""The outcome of a command of an emulated container: its end and its output."""

from __future__ import annotations

from typing import Final, NamedTuple

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STDOUT: Final = 1


class Interrupted(Exception):
    """Exception: SIGINT, thrown into a process."""


class OutputPiece(NamedTuple):
    """A piece of output, so many seconds after the start; `stream`: 1 or 2."""

    after_s: float
    stream: int
    data: bytes


class Outcome(NamedTuple):
    """The outcome of a command: its exit code (None: it goes on), its duration in seconds, and its output.

    `unknown`: programs that it named and that do not exist here.
    """

    exit_code: int | None
    seconds: float
    written: tuple[OutputPiece, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def output(self) -> bytes:
        """The command's bytes on standard output."""
        return b"".join(each.data for each in self.written if each.stream == STDOUT)

    @property
    def errors(self) -> bytes:
        """The command's bytes on standard error."""
        return b"".join(each.data for each in self.written if each.stream != STDOUT)
