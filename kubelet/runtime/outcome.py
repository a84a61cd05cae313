"""How a command of an emulated container ends, and what it wrote."""

from __future__ import annotations

from typing import Final, NamedTuple

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STDOUT: Final = 1


class Interrupted(Exception):
    """SIGINT: thrown into a process."""


class OutputPiece(NamedTuple):
    """Output so many seconds after the start; `stream`: 1 or 2."""

    after_s: float
    stream: int
    data: bytes


class Outcome(NamedTuple):
    """How a command ends: its exit code (None: it goes on), after how many seconds, and what it wrote when.

    `unknown`: programs that it named and that do not exist here.
    """

    exit_code: int | None
    seconds: float
    written: tuple[OutputPiece, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def output(self) -> bytes:
        """What it wrote to standard output."""
        return b"".join(each.data for each in self.written if each.stream == STDOUT)

    @property
    def errors(self) -> bytes:
        """What it wrote to standard error."""
        return b"".join(each.data for each in self.written if each.stream != STDOUT)
