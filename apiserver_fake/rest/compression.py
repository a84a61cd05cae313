"""Compression of answers with gzip, outside the event loop.

A long list is compressed in parts that do not depend on each other. The compressed form of a part is kept, so the same
objects at the same versions are compressed once for all clients. The level is that of upstream's API server:
`staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go` (defaultGzipContentEncodingLevel).
"""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

LEVEL: Final = 1
KEPT_BYTES_MAX: Final = 8 << 20
"""Most bytes of compressed parts that are kept."""
AT_ONCE_BYTES: Final = 4 << 10
"""Most bytes that are compressed in the event loop."""
HEADERS: Final = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_END: Final = b"\x03\x00"
"""An empty last block of deflate."""
_RAW: Final = -zlib.MAX_WBITS
_POLYNOMIAL: Final = 0xEDB88320


def gzip_of(body: bytes) -> bytes:
    """Return the compressed form of a whole body."""
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return compressor.compress(body) + compressor.flush()


async def compress(body: bytes) -> bytes:
    """Return the compressed form of a whole body; other requests are served meanwhile."""
    return await asyncio.to_thread(gzip_of, body)


class Part(NamedTuple):
    """A compressed part of a body. `checksum`, `size`: CRC-32 and length of what it was made of.

    `shift` is the factor that a checksum of what precedes is multiplied with.
    """

    deflated: bytes
    checksum: int
    size: int
    shift: int


def part_of(text: bytes) -> Part:
    """Return a part of a body, compressed so that it can follow any other part."""
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, _RAW)
    deflated = compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return Part(deflated, zlib.crc32(text), len(text), _shift(len(text)))


class GzipBody:
    """A gzip body that is made of parts: `begin`, then `add` for each part, then `end`."""

    def __init__(self) -> None:
        self._checksum = self._size = 0

    def begin(self) -> bytes:
        """Return the bytes in front of the first part."""
        return _HEAD

    def add(self, part: Part) -> bytes:
        """Return the bytes of the next part."""
        self._checksum = _product(self._checksum, part.shift) ^ part.checksum
        self._size += part.size
        return part.deflated

    def end(self) -> bytes:
        """Return the bytes behind the last part."""
        size = self._size & 0xFFFFFFFF
        return _END + self._checksum.to_bytes(4, "little") + size.to_bytes(4, "little")


class Parts:
    """A cache of compressed parts within a limit of bytes; those that were used last are kept."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept: OrderedDict[Hashable, Part] = OrderedDict()
        self._kept_bytes, self._kept_bytes_max = 0, kept_bytes_max

    def find(self, key: Hashable) -> Part | None:
        """Return the part that was kept under a key."""
        part = self._kept.get(key)
        if part is not None:
            self._kept.move_to_end(key)
        return part

    async def make(self, key: Hashable, text: bytes) -> Part:
        """Return a part of a body; it is kept unless its key is None.

        Other requests are served while a long part is compressed.
        """
        if len(text) <= AT_ONCE_BYTES:
            part = part_of(text)
        else:
            part = await asyncio.to_thread(part_of, text)
        if key is not None and key not in self._kept:
            self._kept[key] = part
            self._kept_bytes += len(part.deflated)
        while self._kept_bytes > self._kept_bytes_max:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped.deflated)
        return part


def _product(left: int, right: int) -> int:
    """Return the product of two polynomials modulo that of CRC-32; the highest bit is the lowest power."""
    product, bit = 0, 1 << 31
    while left:
        if left & bit:
            product ^= right
            left ^= bit
        right = (right >> 1) ^ _POLYNOMIAL if right & 1 else right >> 1
        bit >>= 1
    return product


def _powers() -> tuple[int, ...]:
    """Return x to the power of 8, 16, 32 and so on, by which a checksum moves over 1, 2, 4 bytes and so on."""
    power = 1 << 23
    powers: list[int] = []
    for _ in range(48):
        powers.append(power)
        power = _product(power, power)
    return tuple(powers)


_POWERS: Final = _powers()


def _shift(size: int) -> int:
    """Return the factor by which a checksum moves over that many bytes."""
    factor, place = 1 << 31, 0
    while size:
        if size & 1:
            factor = _product(_POWERS[place], factor)
        size >>= 1
        place += 1
    return factor
