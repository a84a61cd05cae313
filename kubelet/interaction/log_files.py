"""Log files of this machine, read for `kubectl logs` and `attach`, and followed as they grow.

A file that is replaced or truncated is read again from its beginning. A line that cannot be parsed is sent
unchanged.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final

from kubelet.pod.logs import LogOptions
from services.kwok.log_lines import LogText, read_line

BLOCK_BYTES: Final = 64 << 10
LINE_BYTES_MAX: Final = 1 << 20
LOOK_S: Final = 0.5


class LogFile:
    """A file that is read line by line. Raises: OSError from the constructor."""

    def __init__(self, path: str, tail: int | None = None) -> None:
        """Open the file. `tail`: number of last lines to read; None: all lines."""
        self._path = path
        self._file: BinaryIO = Path(path).open("rb")  # noqa: SIM115 - closed with the reader
        self._rest = b""
        try:
            if tail is not None:
                self._file.seek(_tail(self._file, tail))
        except OSError:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def lines(self, *, is_last: bool = False) -> list[bytes]:
        """Return the next lines, of one block; empty: no more lines now. `is_last`: nothing will follow."""
        block = self._file.read(BLOCK_BYTES)
        *lines, self._rest = (self._rest + block).split(b"\n")
        if self._rest and ((is_last and not block) or len(self._rest) > LINE_BYTES_MAX):
            lines.append(self._rest)
            self._rest = b""
        return lines

    @property
    def is_read(self) -> bool:
        """Whether the file was read to its end."""
        return self._file.tell() >= os.fstat(self._file.fileno()).st_size

    def look(self) -> None:
        """Reopen the file when it was truncated or replaced. Raises: OSError when it cannot be opened."""
        mine = os.fstat(self._file.fileno())
        try:
            now = Path(self._path).stat()
        except FileNotFoundError:
            return  # between two files of a rotation
        if (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino) or now.st_size < self._file.tell():
            self._file.close()
            self._file = Path(self._path).open("rb")  # noqa: SIM115
            self._rest = b""


def _tail(file: BinaryIO, count: int) -> int:
    """Return where the last so many lines begin."""
    end = at = file.seek(0, os.SEEK_END)
    left = count
    while at > 0:
        size = min(BLOCK_BYTES, at)
        at -= size
        file.seek(at)
        block = file.read(size)
        place = len(block)
        while (place := block.rfind(b"\n", 0, place)) >= 0:
            if at + place + 1 == end:
                continue  # the end of the last line
            left -= 1
            if left <= 0:
                return at + place + 1 if count else end
    return 0 if count else end


async def texts(path: str, tail: int | None = None, *, follows: bool) -> AsyncIterator[list[LogText]]:
    """Yield the file's lines in pieces; if it is followed, also new lines, with empty pieces between them.

    Raises: OSError when it cannot be opened.
    """
    file = LogFile(path, tail)
    try:
        while True:
            is_last = not follows and file.is_read
            yield [_read(line) for line in file.lines(is_last=is_last) if line]
            if not file.is_read:
                continue
            if follows:
                await asyncio.sleep(LOOK_S)
                file.look()
            elif is_last:
                return
    finally:
        file.close()


def _read(line: bytes) -> LogText:
    try:
        return read_line(line)
    except ValueError:
        return LogText(0.0, "", 1, line + b"\n")


async def asked_lines(path: str, asked: LogOptions) -> AsyncIterator[bytes]:
    """Yield the part of a log file that a client of `kubectl logs` requested. Raises: OSError."""
    left = asked.limit_bytes
    async for piece in texts(path, asked.tail, follows=asked.follow):
        chunk = bytearray()
        for line in piece:
            if line.stamp and line.at_s < asked.since_s:
                continue
            chunk += (line.stamp.encode() + b" " if asked.stamps and line.stamp else b"") + line.text
        if left is not None:
            chunk = chunk[:left]
            left -= len(chunk)
        yield bytes(chunk)
        if left == 0:
            return
