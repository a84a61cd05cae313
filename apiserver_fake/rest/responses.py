"""Bodies of HTTP requests, and the plain forms of answers to them."""

from __future__ import annotations

import msgspec
from aiohttp import web

from apiserver_fake.rest import discovery
from apiserver_fake.rest.media_types import BODY_MAX_BYTES
from services.api.errors import ApiError, RequestEntityTooLarge
from services.api.meta import Document
from services.api.wire import Response

JSON_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
DISCARDED_MAX_BYTES = 13 * 1024 * 1024
"""How much of a body that is too large is read on before the connection is given up."""


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the whole body. Raises: RequestEntityTooLarge above 3 MiB, after decompression too (L-BODY)."""
    if not request.body_exists:
        return b""
    chunks: list[bytes] = []
    read = 0
    # A little more than is kept is taken in and dropped, so that the connection stays usable (L-BODY).
    while read <= BODY_MAX_BYTES + DISCARDED_MAX_BYTES:
        chunk = await request.content.readany()
        if not chunk:
            break
        read += len(chunk)
        if read > BODY_MAX_BYTES:
            chunks.clear()
        else:
            chunks.append(chunk)
    if read <= BODY_MAX_BYTES:
        return b"".join(chunks)
    raise RequestEntityTooLarge(f"the body is larger than {BODY_MAX_BYTES} bytes")


def decoded(body: bytes) -> Document:
    """Return the JSON object of a body. Raises: ApiError (400)."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ApiError(f"the body is not JSON: {error}", reason="BadRequest", code=400) from error
    if not isinstance(document, dict):
        raise ApiError("the body is not an object", reason="BadRequest", code=400)
    return document


def json_answer(body: bytes, status: int = 200) -> web.Response:
    """Return an answer of JSON that is encoded already."""
    return web.Response(body=body, status=status, headers=JSON_HEADERS)


def cached_answer(
    request: web.BaseRequest, found: discovery.Answer, content_type: str = "application/json"
) -> web.Response:
    """Return a document that clients may keep, or 304 to one who has it."""
    headers = {"ETag": found.etag, "Vary": "Accept", "Cache-Control": "public"}
    if request.headers.get("If-None-Match", "") == found.etag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.body, headers={**headers, "Content-Type": content_type})


def page_not_found() -> web.Response:
    """Return the answer to a path that is not served."""
    return web.Response(text="404 page not found\n", status=404)


def refusal_answer(error: ApiError) -> web.Response:
    """Return a document that clients may keep, or 304 to one who has it."""
    """Return a refusal as the Status that clients read."""
    headers = dict(JSON_HEADERS)
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    return web.Response(body=msgspec.json.encode(error.status()), status=error.code, headers=headers)


def retry_after(response: Response) -> str:
    """Return the whole seconds a refused client should wait, as the header has them; "" when it is not said."""
    seconds = response.error().retry_after_s
    return "" if seconds is None else str(seconds)
