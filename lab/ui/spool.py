"""Bodies of objects kept on disk until they may be recorded, in the order in which they came."""

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SIZES: Final = struct.Struct("<HI")


class Spool:
    """Pairs of a kind's wire name and a body, in a file without a name, which disappears with the process.

    Raises: OSError, as its methods do.
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  it is closed when all was read
        self.count = self.size = 0

    def add(self, resource: str, body: bytes) -> None:
        """Add a body."""
        name = resource.encode()
        record = b"".join((SIZES.pack(len(name), len(body)), name, body))
        self._file.write(record)
        self.size += len(record)
        self.count += 1

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yield all bodies with their kinds, oldest first; nothing may be added meanwhile."""
        self._file.seek(0)
        for _ in range(self.count):
            name_size, body_size = SIZES.unpack(self._file.read(SIZES.size))
            yield self._file.read(name_size).decode(), self._file.read(body_size)

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
