"""Encoding and decoding of SPDY/3.1 frames, as Kubernetes' streaming endpoints use them. Pure.

There is no flow control: as in the Go implementation, a WINDOW_UPDATE is ignored and only TCP holds a writer
back. Header blocks of one direction share one zlib stream, so frames must be encoded and decoded in their
order.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

VERSION: Final = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
FIN: Final = 1
PROTOCOL_ERROR, INVALID_STREAM, REFUSED_STREAM, CANCEL = 1, 2, 3, 5
FRAME_BYTES_MAX: Final = 1 << 20
HEADER_BYTES_MAX: Final = 64 << 10

_NAMES = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age "
    "allow authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_PAIRS = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_TAIL = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(len(word).to_bytes(4, "big") + word.encode() for word in (*_NAMES.split(), *_PAIRS)) + _TAIL.encode()
)
"""Compression dictionary of header blocks, shared by both sides (SPDY/3, 2.6.10.1)."""

_HEAD, _U32, _SYN = Struct(">II"), Struct(">I"), Struct(">IIBB")


class SpdyError(Exception):
    """Error: the bytes are no SPDY frame; the connection cannot continue."""


@dataclass(frozen=True)
class Frame:
    """A frame. `kind` 0: data. `status`: of RST_STREAM and GOAWAY. `number`: of PING; for GOAWAY the last stream."""

    kind: int
    stream: int = 0
    flags: int = 0
    data: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 0
    number: int = 0

    @property
    def is_last(self) -> bool:
        """Whether the sender sends nothing after it on this stream."""
        return bool(self.flags & FIN)


class Encoder:
    """Encoder of the frames of one direction."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def encode(self, frame: Frame) -> bytes:
        """Return the bytes of the next frame."""
        if frame.kind == 0:
            return _HEAD.pack(frame.stream, frame.flags << 24 | len(frame.data)) + frame.data
        match frame.kind:
            case 1:
                body = _SYN.pack(frame.stream, 0, 0, 0) + self._block(frame.headers)
            case 2 | 8:
                body = _U32.pack(frame.stream) + self._block(frame.headers)
            case 3:
                body = _HEAD.pack(frame.stream, frame.status)
            case 6:
                body = _U32.pack(frame.number)
            case 7:
                body = _HEAD.pack(frame.number, frame.status)
            case _:
                raise ValueError(f"frame kind {frame.kind} is not sent")
        return _HEAD.pack(1 << 31 | VERSION << 16 | frame.kind, frame.flags << 24 | len(body)) + body

    def _block(self, headers: Mapping[str, str]) -> bytes:
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        plain = _U32.pack(len(pairs)) + b"".join(
            _U32.pack(len(name)) + name + _U32.pack(len(value)) + value for name, value in pairs
        )
        return self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


class Decoder:
    """Decoder of the frames of one direction."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that these bytes complete; frames of unused kinds are left out.

        Raises: SpdyError.
        """
        self._buffer += data
        while len(self._buffer) >= 8:
            head, rest = _HEAD.unpack_from(self._buffer)
            flags, length = rest >> 24, rest & 0xFFFFFF
            if length > FRAME_BYTES_MAX:
                raise SpdyError(f"a frame of {length} bytes, at most {FRAME_BYTES_MAX} are taken")
            if len(self._buffer) < 8 + length:
                return
            body = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            if not head >> 31:
                yield Frame(0, head, flags, body)
            elif (frame := self._control(head & 0x7FFFFFFF, flags, body)) is not None:
                yield frame

    def _control(self, head: int, flags: int, body: bytes) -> Frame | None:
        version, kind = head >> 16, head & 0xFFFF
        if version != VERSION:
            raise SpdyError(f"SPDY version {version}, want {VERSION}")
        shortest = {SYN_STREAM: 10, SYN_REPLY: 4, HEADERS: 4, RST_STREAM: 8, PING: 4, GOAWAY: 8}
        if len(body) < shortest.get(kind, 0):
            raise SpdyError(f"a control frame of kind {kind} with {len(body)} bytes")
        number = int.from_bytes(body[:4], "big") & 0x7FFFFFFF
        match kind:
            case 1 | 2 | 8:
                return Frame(kind, number, flags, headers=self._headers(body[10 if kind == SYN_STREAM else 4 :]))
            case 3:
                return Frame(kind, number, flags, status=int.from_bytes(body[4:8], "big"))
            case 6:
                return Frame(kind, flags=flags, number=int.from_bytes(body[:4], "big"))
            case 7:
                return Frame(kind, flags=flags, number=number, status=int.from_bytes(body[4:8], "big"))
        return None

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._inflate.decompress(block, HEADER_BYTES_MAX)
        except zlib.error as error:
            raise SpdyError(f"header block: {error}") from None
        if self._inflate.unconsumed_tail:
            raise SpdyError(f"a header block of more than {HEADER_BYTES_MAX} bytes")
        texts, at = [], 4
        for _ in range(2 * int.from_bytes(plain[:4], "big")):
            size = int.from_bytes(plain[at : at + 4], "big")
            if at + 4 + size > len(plain):
                raise SpdyError("a header block that ends too early")
            texts.append(plain[at + 4 : at + 4 + size].decode("latin-1"))
            at += 4 + size
        return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}
