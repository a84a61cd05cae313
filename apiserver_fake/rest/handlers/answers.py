"""Answers to calls of resources, in the form that the client asked for: whole, or streamed in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import msgspec
from aiohttp import HttpVersion11, web

from apiserver_fake.extensions.fairness.gate import REQUEST_S
from apiserver_fake.registry.read import with_items
from apiserver_fake.rest import compression, lists, media_types, protobuf, tables
from apiserver_fake.rest.encoding import Encoding
from apiserver_fake.rest.http import (
    GZIP_MIN_BYTES,
    JSON_HEADERS,
    HttpRequest,
    encode_document,
    indent_json,
    is_pretty,
    may_be_compressed,
    trail_of,
    warning_header,
)
from apiserver_fake.rest.media_types import PLAIN, Form
from apiserver_fake.rest.paths import Route
from apiserver_fake.storage.records import Record
from services.api.seams import Clock
from services.api.wire import Response

STREAMED_ABOVE = 500
"""Number of objects above which a list is streamed."""
PROTOBUF_PIECE = 50
"""Number of objects encoded in protobuf at a time; other tasks run in between."""
PART_OBJECTS, PIECES_OF_PART = 500, 10
"""Number of objects, and of pieces of a converted list, that are compressed at a time."""


class Answers:
    """Turns responses into HTTP answers; caches the rows of Tables and the compressed parts of lists."""

    def __init__(self, clock: Clock, encoding: Encoding, next_piece: Callable[[], Awaitable[None]]) -> None:
        """`next_piece` waits for the turn of a long answer's next piece."""
        self._clock, self._encoding, self._next_piece = clock, encoding, next_piece
        self._rows, self._compressed = lists.Rows(), compression.Parts()

    async def complete(
        self, request: web.BaseRequest, response: Response, route: Route, form: Form, include: str
    ) -> web.StreamResponse:
        """Return the answer to a call. `include`: the part of each object that a Table's rows include.

        Raises: NotAcceptable for a kind without protobuf.
        """
        if self._is_streamed(request, response, form, include):
            return await self._stream_list(request, response, route, form, include)
        response = await self._whole(response, route, form, include)
        shown = form
        if response.items is not None:
            response, shown = await self._list(response, route, form, include), PLAIN
        if (trail := trail_of(request)) is not None:
            trail.on_annotations(response.audit)
            if trail.takes_answers:
                trail.on_response_body(response.body)
        answer = self.answer(response, route, shown, include)
        if form.is_pretty and form.media_type == media_types.JSON and isinstance(answer.body, bytes):
            answer.body = indent_json(answer.body)
        if isinstance(request, HttpRequest) and isinstance(answer.body, bytes):
            request.is_compressed = may_be_compressed(request, len(answer.body))
        return answer

    def answer(self, response: Response, route: Route, form: Form, include: str) -> web.Response:
        """Return a response as an HTTP answer in that form, with its warnings."""
        headers = dict(JSON_HEADERS)
        body = response.body
        if response.code >= 400:
            if response.code in (429, 503, 504) and (wait_s := response.error().retry_after_s) is not None:
                headers["Retry-After"] = str(wait_s)
            if form.media_type != media_types.JSON:
                headers["Content-Type"] = form.media_type
                body = encode_document(msgspec.json.decode(body), form)
        elif form.media_type == media_types.PROTOBUF and body.startswith(protobuf.MAGIC):
            headers["Content-Type"] = form.content_type
        elif form is not PLAIN and form != PLAIN:
            headers["Content-Type"] = form.content_type
            body = self._convert(msgspec.json.decode(body), route, form, include)
        answer = web.Response(body=body, status=response.code, headers=headers)
        self._warn(answer, response, route)
        return answer

    def _warn(self, answer: web.StreamResponse, response: Response, route: Route) -> None:
        deprecated = (route.resource.deprecated,) if route.resource.deprecated else ()
        for text in (*deprecated, *response.warnings):
            answer.headers.add("Warning", warning_header(text))

    async def _list(self, response: Response, route: Route, form: Form, include: str) -> Response:
        """Return a list as Table or metadata of the stored objects; other requests are served between two pieces."""
        head, records = msgspec.json.decode(response.body), response.records
        if form.convert == "Table":
            now_s = self._clock.wall()
            parts = self._rows.table(route.resource, head, records, now_s, include=include, version=form.version)
        else:
            parts = self._rows.metadata(head, records, form.version)
        pieces: list[bytes] = []
        for part in parts:
            pieces.append(part)
            await self._next_piece()
        return msgspec.structs.replace(response, body=b"".join(pieces), items=None)

    def _convert(self, document: Any, route: Route, form: Form, include: str) -> bytes:
        if form.convert and document.get("kind") != "Status":
            if form.convert == "Table":
                document = tables.table_of(
                    route.resource, document, self._clock.wall(), include=include, version=form.version
                )
            elif "items" in document:
                document = tables.partial_metadata_list(document, form.version)
            else:
                document = tables.partial_metadata(document, form.version)
        return encode_document(document, form)

    def _is_streamed(self, request: web.BaseRequest, response: Response, form: Form, include: str) -> bool:
        """Whether a list is so long that it is streamed, as by upstream's encoders, and never held as a whole."""
        if response.items is None or len(response.items) <= STREAMED_ABOVE or form.media_type != media_types.JSON:
            return False
        if (trail := trail_of(request)) is not None and trail.takes_answers:
            return False
        is_plain = not form.convert or lists.is_made_of_slices(form, include)
        is_list = request.method in ("GET", "DELETE") and request.version >= HttpVersion11
        return is_list and is_plain and not form.is_pretty and not is_pretty(request)

    async def _stream_list(
        self, request: web.BaseRequest, response: Response, route: Route, form: Form, include: str
    ) -> web.StreamResponse:
        """Stream a long list. A client that has not read it within the time limit of a request is cut off."""
        answer = web.StreamResponse(headers={**JSON_HEADERS, "Content-Type": form.content_type})
        self._warn(answer, response, route)
        answer.enable_chunked_encoding()
        is_compressed = may_be_compressed(request, GZIP_MIN_BYTES)
        if is_compressed:
            answer.headers.update(compression.HEADERS)
        send = self._send_compressed if is_compressed else self._send
        try:
            async with asyncio.timeout(REQUEST_S):
                await answer.prepare(request)
                await send(answer, response, route, form, include)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return answer

    async def _send(
        self, answer: web.StreamResponse, response: Response, route: Route, form: Form, include: str
    ) -> None:
        pieces = self._pieces(response, route, form, include)
        while True:
            await self._next_piece()
            if (piece := next(pieces, None)) is None:
                break
            await answer.write(piece)
        await answer.write_eof(b"\n")

    async def _send_compressed(
        self, answer: web.StreamResponse, response: Response, route: Route, form: Form, include: str
    ) -> None:
        body = compression.GzipBody()
        await answer.write(body.begin())
        for key, pieces in self._parts(response, route, form, include):
            await self._next_piece()
            if (part := self._compressed.find(key)) is None:
                texts: list[bytes] = []
                for piece in pieces:
                    texts.append(piece)
                    await self._next_piece()
                part = await self._compressed.make(key, b"".join(texts))
            await answer.write(body.add(part))
        await answer.write_eof(body.add(await self._compressed.make(None, b"\n")) + body.end())

    def _parts(
        self, response: Response, route: Route, form: Form, include: str
    ) -> Iterator[tuple[Hashable, Iterable[bytes]]]:
        """Yield the parts of a list that are compressed apart, in pieces, each with what its bytes depend on.

        That is None for a part that is never the same again.
        """
        items = response.items or ()
        if form.convert or not _are_stored(items, response.records):
            pieces = self._pieces(response, route, form, include)
            for piece in pieces:
                yield None, chain((piece,), islice(pieces, PIECES_OF_PART - 1))
            return
        yield None, (response.body[:-1] + b',"items":[',)
        for first in range(0, len(items), PART_OBJECTS):
            versions = tuple([(each.uid, each.rv) for each in response.records[first : first + PART_OBJECTS]])
            key = (route.resource.name, route.resource.api_version, first > 0, versions)
            yield key, self._items(items[first : first + PART_OBJECTS], route, b"," if first else b"")
        yield None, (b"]}",)

    def _items(self, items: Sequence[bytes], route: Route, before: bytes) -> Iterator[bytes]:
        """Yield the items of a list behind `before`, with commas in between."""
        version, kind = route.resource.api_version, route.resource.kind
        for piece in [list(items)] if route.is_of_definition else self._encoding.items(items, version, kind):
            if piece:
                yield before + b",".join(piece)
                before = b","

    def _pieces(self, response: Response, route: Route, form: Form, include: str) -> Iterator[bytes]:
        """Yield the pieces of a list in the form that the client asked for."""
        if form.convert:
            head = msgspec.json.decode(response.body)
            if form.convert != "Table":
                yield from self._rows.metadata(head, response.records, form.version)
                return
            yield from self._rows.table(
                route.resource, head, response.records, self._clock.wall(), include=include, version=form.version
            )
            return
        yield from self._items(response.items or (), route, response.body[:-1] + b',"items":[')
        yield b"]}"

    async def _whole(self, response: Response, route: Route, form: Form, include: str) -> Response:
        """Return the response with its items; whole objects also get the zero values that Go's encoder writes."""
        items = response.items
        if items is not None and lists.is_made_of_slices(form, include):
            return response
        if items is not None and form == Form(media_types.PROTOBUF):
            return msgspec.structs.replace(response, body=await self._protobuf_list(response, route), items=None)
        is_shown = not form.convert or (form.convert == "Table" and include == "Object")
        if response.is_ok and is_shown and form.media_type != media_types.PROTOBUF and not route.is_of_definition:
            if items is None:
                return msgspec.structs.replace(response, body=self._encoding.answer(response.body))
            whole: list[bytes] = []
            for piece in self._encoding.items(items, route.resource.api_version, route.resource.kind):
                whole += piece
                await self._next_piece()
            items = tuple(whole)
        if items is None:
            return response
        return msgspec.structs.replace(response, body=with_items(response.body, items), items=None)

    async def _protobuf_list(self, response: Response, route: Route) -> bytes:
        """Return a list in protobuf. Raises: NotAcceptable for a kind without protobuf."""
        version, kind = route.resource.api_version, route.resource.kind
        items: list[bytes] = []
        for body in response.items or ():
            items.append(protobuf.encode_item(version, kind, msgspec.json.decode(body)))
            if len(items) % PROTOBUF_PIECE == 0:
                await self._next_piece()
        return protobuf.encode_list(msgspec.json.decode(response.body), items)


def _are_stored(items: Sequence[bytes], records: Sequence[Record]) -> bool:
    """Whether the items of a list are the stored bytes of these records."""
    return len(items) == len(records) and all(item is each.body for item, each in zip(items, records, strict=True))
