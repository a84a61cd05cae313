"""A watch over HTTP: one JSON object per line, chunked, for as long as the server's watch lasts.

Events are sent as the bytes that were committed; only a client that asked for Tables or metadata needs a
conversion. A client that reads nothing for ten seconds is cut; no event is ever left out (W14, W15).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Final

import msgspec
from aiohttp import web

from apiserver_fake.rest import protobuf, tables
from apiserver_fake.rest.encoding import Encoding, type_of
from apiserver_fake.rest.media_types import PROTOBUF, Form
from apiserver_fake.rest.paths import Route
from apiserver_fake.storage.backlog import Events
from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import Document
from services.api.wire import WatchEvent

FIRST_BATCH_WAIT_S = 0.05
"""Seconds for which the status line waits for a refusal; an idle watch must not keep its client without headers."""
KEPT_BYTES_MAX: Final = 4 << 20
KEPT_LINES_MAX: Final = 256


def line(kind: str, body: bytes) -> bytes:
    """Return one line of the stream."""
    return b"".join((b'{"type":"', kind.encode(), b'","object":', body, b"}\n"))


def _chunk_of(content: bytes) -> bytes:
    """Return content as a chunk (RFC 9112 7.1)."""
    return b"%x\r\n%b\r\n" % (len(content), content)


def _transport_of(request: web.BaseRequest) -> asyncio.Transport:
    """Return the open connection of a request. Raises: ConnectionResetError if its client has gone."""
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client has gone")
    return transport


class SharedLines:
    """The last live events, encoded once for all watches that receive them in the same form."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept: dict[tuple[int, Hashable], tuple[WatchEvent, bytes]] = {}
        self._kept_bytes, self._kept_bytes_max = 0, kept_bytes_max

    def line(self, event: WatchEvent, form: Hashable, encode: Callable[[WatchEvent], bytes]) -> bytes:
        """Return an event as it is sent. An entry holds its event, so the id of another one is never the same."""
        key = id(event), form
        known = self._kept.get(key)
        if known is None:
            known = self._kept[key] = event, encode(event)
            self._kept_bytes += len(known[1])
            while self._kept_bytes > self._kept_bytes_max or len(self._kept) > KEPT_LINES_MAX:
                self._kept_bytes -= len(self._kept.pop(next(iter(self._kept)))[1])
        return known[1]


class EventEncoder:
    """Turns events into lines in the form the client accepted; the first Table alone carries the columns."""

    def __init__(
        self, route: Route, form: Form, include: str, wall: Callable[[], float], encoding: Encoding, lines: SharedLines
    ) -> None:
        """`lines`: shared by all watches of the server."""
        resource = route.resource
        self._encoding, self._of, self._lines = encoding, "", lines
        if not route.is_of_definition:
            self._of = type_of(resource.api_version, resource.kind)
        self._route, self._form, self._include, self._wall = route, form, include, wall
        self._has_sent_columns = False
        # The cells of a Table show ages, and its first rows have the columns.
        self._shared_form = None if form.convert == "Table" else (self._of, form, resource.api_version)

    @property
    def content_type(self) -> str:
        """The Content-Type of the stream."""
        return f"{PROTOBUF};stream=watch" if self._form.media_type == PROTOBUF else "application/json"

    def encode_all(self, batch: list[WatchEvent]) -> bytes:
        """Return the lines of a batch; lines that other clients receive in the same form are encoded once."""
        if isinstance(batch, Events) and not self._form.convert:
            return batch.encoded_bytes((self._encoding, self._of, self._form.media_type), self.encode)
        return b"".join(map(self.encode, batch))

    def chunk(self, batch: list[WatchEvent]) -> bytes:
        """Return the lines of a batch as chunks of the body, to be sent in one write; empty if there is none.

        The chunk of a live event is made once for all watches of the form.
        """
        if self._shared_form is None or isinstance(batch, Events):
            lines = self.encode_all(batch)
            return _chunk_of(lines) if lines else b""
        if len(batch) == 1:
            return self._lines.line(batch[0], self._shared_form, self._encode_chunk)
        return b"".join([self._lines.line(event, self._shared_form, self._encode_chunk) for event in batch])

    def _encode_chunk(self, event: WatchEvent) -> bytes:
        return _chunk_of(self.encode(event))

    def encode(self, event: WatchEvent) -> bytes:
        """Return the event's line."""
        is_converted = self._form.convert and event.type != "ERROR"
        if not is_converted and self._form.media_type != PROTOBUF:
            is_whole = not self._of or event.type == "ERROR"
            return line(event.type, event.body if is_whole else self._encoding.object(event.body, self._of))
        document = msgspec.json.decode(event.body)
        if is_converted:
            document = self._convert(document)
        if self._form.media_type == PROTOBUF:
            return protobuf.frame(event.type, document)
        return line(event.type, msgspec.json.encode(document))

    def _convert(self, document: Document) -> Document:
        version = self._form.version
        if self._form.convert == "PartialObjectMetadata":
            return tables.partial_metadata(document, version)
        with_columns, self._has_sent_columns = not self._has_sent_columns, True
        return tables.table(
            self._route.resource,
            [document],
            {"resourceVersion": document.get("metadata", {}).get("resourceVersion", "")},
            self._wall(),
            include=self._include,
            version=version,
            with_columns=with_columns,
        )


async def stream(
    request: web.BaseRequest,
    batches: AsyncIterator[list[WatchEvent]],
    encoder: EventEncoder,
    *,
    send_blocked_max_s: float,
) -> web.StreamResponse:
    """Send the watch until it ends, the client leaves, or a send blocks too long. Raises: ApiError if it is refused."""
    response = web.StreamResponse(headers={"Content-Type": encoder.content_type, "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    first: asyncio.Future[list[WatchEvent]] = asyncio.ensure_future(anext(batches))
    try:
        await asyncio.wait((first,), timeout=FIRST_BATCH_WAIT_S)
        refusal = first.exception() if first.done() else None
        if isinstance(refusal, ApiError | UnknownOutcome):
            raise refusal
        await response.prepare(request)
        try:
            batch = await first
            protocol = request.protocol
            while True:
                # The chunk is written past the library, whose part costs more than a chunk that all watches share; and
                # a time limit costs more than a write that does not wait.
                if chunk := encoder.chunk(batch):
                    _transport_of(request).write(chunk)
                if protocol.writing_paused:
                    async with asyncio.timeout(send_blocked_max_s):
                        await request.writer.drain()
                batch = await anext(batches)
        except StopAsyncIteration:
            await response.write_eof()
        except ApiError as error:
            await response.write(encoder.encode(WatchEvent(type="ERROR", body=msgspec.json.encode(error.status()))))
            await response.write_eof()
        except (TimeoutError, UnknownOutcome, ConnectionError):
            # Too slow, or the end is not a clean one: the client must see a broken stream and resume (W14, C3).
            if request.transport is not None:
                request.transport.abort()
    finally:
        if not first.done():
            first.cancel()
            # A generator cannot be closed while it is still being advanced.
            await asyncio.wait((first,))
        closing = getattr(batches, "aclose", None)
        if closing is not None:
            await closing()
    return response
