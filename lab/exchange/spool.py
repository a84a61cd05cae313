"""Spool of checked objects until they are loaded: in memory while it is small, else in a nameless file."""

import tempfile
from collections.abc import Iterable
from types import TracebackType

import msgspec

from lab.exchange.stream import Placed
from services.api.wire import encode

MEMORY_MAX = 64 << 20
"""Largest number of bytes held in memory."""

_DECODER = msgspec.json.Decoder(Placed)


class Spool:
    """Objects by number, in the order in which they were added. Close it, or use it in a `with`."""

    def __init__(self, memory_max: int = MEMORY_MAX) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=memory_max, prefix="keplab-spool-")  # noqa: SIM115 (closed below)
        self._offsets = [0]

    def put(self, placed: Placed) -> int:
        """Keep an object and return its number. Raises: OSError, if the disk is full."""
        text = encode(placed)
        self._file.seek(self._offsets[-1])
        self._file.write(text)
        self._offsets.append(self._offsets[-1] + len(text))
        return len(self._offsets) - 2

    def put_all(self, objects: Iterable[Placed]) -> None:
        """Keep all objects."""
        for each in objects:
            self.put(each)

    def get(self, number: int) -> Placed:
        """Return the object with that number."""
        first, end = self._offsets[number : number + 2]
        self._file.seek(first)
        return _DECODER.decode(self._file.read(end - first))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def close(self) -> None:
        """Free the memory or disk space."""
        self._file.close()

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
