"""Parts of HTTP requests and answers other than the objects: credentials, hosts, bodies, warnings."""

import asyncio
import logging
import os
import re
import zlib
from email.utils import formatdate
from functools import partial
from typing import Any, Protocol

import msgspec
import structlog
import yaml
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, PayloadEncodingError

from apiserver_fake.extensions.audit.auditor import Trail
from apiserver_fake.extensions.audit.event import Source
from apiserver_fake.extensions.fairness.queue_set import QueuedRequest
from apiserver_fake.registry.errors import method_not_allowed
from apiserver_fake.rest import protobuf
from apiserver_fake.rest.media_types import (
    APPLY,
    BODY_MAX_BYTES,
    PLAIN,
    PROTOBUF,
    YAML,
    YAML_AT_ONCE_BYTES,
    Form,
    json_from_yaml,
    json_of,
    media_type_of,
)
from apiserver_fake.rest.zpages import Page
from apiserver_fake.storage.memory import end_for_memory
from services.api.errors import ApiError, BadRequest, RequestEntityTooLarge, Timeout, Unauthorized

log = structlog.get_logger()

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


_AUDIT_ID = re.compile(r"[!-~]{1,64}")


def audit_id(asked: str) -> str:
    """Return the id under which a request is audited: the caller's if it is valid, else a new one."""
    return asked if asked and _AUDIT_ID.fullmatch(asked) else _random_uuid()


def _random_uuid() -> str:
    """Return a random UUID (RFC 9562, version 4); a `uuid.UUID` costs three times as much."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def source_of(request: web.BaseRequest) -> Source:
    """Return the source of a request. All addresses but the last are claims of the client and of proxies."""
    said = [part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",") if part.strip()]
    real = request.headers.get("X-Real-Ip", "").strip()
    said += [real] if real and real not in said else []
    said += [request.remote] if request.remote and said[-1:] != [request.remote] else []
    return Source(request.raw_path, tuple(said), request.headers.get("User-Agent", ""))


def trail_of(request: web.BaseRequest) -> Trail | None:
    """Return the audit trail of a request; None if it has none."""
    return request.trail if isinstance(request, HttpRequest) else None


def bearer_of(authorization: str) -> str:
    """Return the token of an Authorization header; "" if there is none.

    Raises: Unauthorized for credentials of another kind.
    """
    scheme, _, value = authorization.partition(" ")
    match scheme.lower():
        case "":
            return ""
        case "bearer":
            return value.strip()
        case _:
            raise Unauthorized("Unauthorized")


def is_encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8; the HTTP library shows other bytes as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_traceparent(text: str) -> bool:
    """Whether a text is a W3C traceparent; other texts are ignored and never stored."""
    return _TRACEPARENT.fullmatch(text) is not None


def warning_header(text: str) -> str:
    """Return the value of a `Warning` header; control characters cannot end it early."""
    printable = "".join(char if char.isprintable() and char.isascii() else " " for char in text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


JSON_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
BODY_S = 30.0
"""Time limit for receiving a body, in seconds."""
DISCARDED_MAX_BYTES = 13 * 1024 * 1024
"""Bytes of an oversized body that are still read and discarded before the connection is closed."""


class BodyTimeout(Timeout):
    """The refusal of a body that does not arrive in time; its connection cannot be used further."""


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the whole body, decompressed.

    Raises: RequestEntityTooLarge above 3 MiB, after decompression too (L-BODY); BadRequest for a body that violates
    its transfer or content coding; BodyTimeout when it does not arrive completely in time (L-REQ).
    """
    if not request.body_exists:
        return b""
    if request.content.is_eof():  # it came with its head
        return await _read(request)
    try:
        async with asyncio.timeout(BODY_S):
            return await _read(request)
    except TimeoutError:
        raise BodyTimeout("Timeout: request did not complete within the allotted timeout", details={}) from None


async def _read(request: web.BaseRequest) -> bytes:
    chunks: list[bytes] = []
    read = 0
    # A little more than is kept is taken in and dropped, so that the connection stays usable (L-BODY).
    while read <= BODY_MAX_BYTES + DISCARDED_MAX_BYTES:
        try:
            chunk = await request.content.readany()
        except (HttpProcessingError, PayloadEncodingError) as error:
            raise BadRequest(f"the body cannot be read: {' '.join(str(error).split())[:200]}") from None
        if not chunk:
            break
        read += len(chunk)
        if read > BODY_MAX_BYTES:
            chunks.clear()
        else:
            chunks.append(chunk)
    if read > BODY_MAX_BYTES:
        raise RequestEntityTooLarge(f"the body is larger than {BODY_MAX_BYTES} bytes")
    return decompress(b"".join(chunks), request.headers.get("Content-Encoding", ""))


def decompress(body: bytes, coding: str) -> bytes:
    """Return a body without its content coding: gzip or deflate (RFC 9110 8.4.1); other codings are ignored.

    Raises: RequestEntityTooLarge above 3 MiB; BadRequest for a body that is not in that coding, or is truncated.
    """
    match coding.strip().lower():
        case "gzip" | "x-gzip":
            window = 16 + zlib.MAX_WBITS
        case "deflate":
            # Clients send it with zlib's head, as the RFC wants it, or without.
            window = zlib.MAX_WBITS if body[:1] and body[0] & 15 == zlib.DEFLATED else -zlib.MAX_WBITS
        case _:
            return body
    if not body:
        return body
    reader = zlib.decompressobj(window)
    try:
        plain_body = reader.decompress(body, BODY_MAX_BYTES + 1)
    except zlib.error:
        raise BadRequest(f"the body is not encoded as {coding.strip()[:20]}") from None
    if len(plain_body) > BODY_MAX_BYTES:
        raise RequestEntityTooLarge(f"the body is larger than {BODY_MAX_BYTES} bytes when it is decompressed")
    if not reader.eof or reader.unused_data:
        raise BadRequest(
            f"the body is not encoded as {coding.strip()[:20]}: it ends too early or goes on behind its end"
        )
    return plain_body


class ServerLog(logging.LoggerAdapter[logging.Logger]):
    """The logger of the HTTP library. An error of a client is not logged as a server error and has no
    traceback.

    Any client that can connect can send data that is not HTTP; one line each at level debug fills no log.
    """

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        """Log a failure, unless the client's data caused it."""
        if isinstance(exc_info, MemoryError):
            end_for_memory()
        if isinstance(exc_info, HttpProcessingError | PayloadEncodingError | web.RequestPayloadError | ConnectionError):
            log.debug("rest.unreadable_request", why=" ".join(str(exc_info).split())[:200])
        else:
            log.error("rest.connection_failed", exc_info=exc_info)


def json_answer(body: bytes, status: int = 200) -> web.Response:
    """Return an answer with JSON that is encoded already."""
    return web.Response(body=body, status=status, headers=JSON_HEADERS)


class StableDocument(Protocol):
    """A document that clients may keep: its bytes and its ETag, quotes included."""

    @property
    def body(self) -> bytes:
        """The document as it is sent."""
        ...

    @property
    def etag(self) -> str:
        """Made of its content."""
        ...


def only(request: web.BaseRequest, method: str) -> None:
    """Refuse a request of another method. Raises: MethodNotAllowed."""
    if request.method != method:
        raise method_not_allowed()


def cached_answer(
    request: web.BaseRequest,
    answer: StableDocument,
    content_type: str = "application/json",
    *,
    good_until_s: float = 0.0,
) -> web.Response:
    """Return a document that clients may cache, or 304 to a client that has it.

    `good_until_s`: the document never changes at this address, and may be cached until then.
    """
    headers = {"ETag": answer.etag, "Vary": "Accept", "Cache-Control": "public"}
    if good_until_s:
        headers |= {"Cache-Control": "public, immutable", "Expires": formatdate(good_until_s, usegmt=True)}
    if request.headers.get("If-None-Match", "") == answer.etag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=answer.body, headers={**headers, "Content-Type": content_type})


GZIP_MIN_BYTES = 128 << 10
"""Size from which answers are compressed.

Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go`.
"""


def may_be_compressed(request: web.BaseRequest, size: int) -> bool:
    """Whether an answer of that many bytes is compressed: it answers a read, and the client accepts gzip."""
    if size < GZIP_MIN_BYTES or request.method != "GET":
        return False
    codings = (part.partition(";")[0].strip() for part in request.headers.get("Accept-Encoding", "").split(","))
    return "gzip" in codings


TEXT_HEADERS = {"Cache-Control": "no-cache, private", "X-Content-Type-Options": "nosniff"}


def page_not_found() -> web.Response:
    """Return the answer to a path that is not served."""
    return web.Response(text="404 page not found\n", status=404, headers=TEXT_HEADERS)


def page_answer(page: Page) -> web.Response:
    """Return a page about the server as an answer."""
    headers = {**TEXT_HEADERS, "Content-Type": page.content_type, **page.headers}
    return web.Response(body=page.body.encode(), status=page.code, headers=headers)


def refusal_answer(error: ApiError, form: Form = PLAIN) -> web.Response:
    """Return a refusal as a Status, in a form that the client accepts."""
    headers = dict(JSON_HEADERS)
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    headers["Content-Type"] = form.media_type
    answer = web.Response(body=encode_document(error.status(), form), status=error.code, headers=headers)
    for text in error.warnings:
        answer.headers.add("Warning", warning_header(text))
    return answer


def encode_document(document: Any, form: Form) -> bytes:
    """Return a document in the media type of that form. Raises: NotAcceptable if it cannot be encoded in protobuf."""
    if form.media_type == PROTOBUF:
        return protobuf.encode(document)
    if form.media_type == YAML:
        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()
    return msgspec.json.encode(document)


_BROWSERS = ("curl", "Wget", "Mozilla/5.0")


def is_pretty(request: web.BaseRequest) -> bool:
    """Whether JSON is indented: for clients that ask for it, and for clients whose output people read.

    Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/negotiation/negotiate.go`.
    """
    if asked := request.rel_url.query.get("pretty", ""):
        return asked in ("1", "t", "T", "true", "TRUE", "True")
    return request.headers.get("User-Agent", "").startswith(_BROWSERS)


def indent_json(body: bytes) -> bytes:
    """Return JSON indented by two spaces per level."""
    return msgspec.json.format(body, indent=2)


def raw_json(document: Any) -> web.Response:
    """Return an answer that is indented for every client."""
    return web.Response(body=indent_json(msgspec.json.encode(document)), headers=JSON_HEADERS)


class HttpRequest(web.BaseRequest):
    """A request, with its additional answer headers, its turn in a priority level, and its audit trail."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.answer_headers: dict[str, str] = {}
        self.turn: QueuedRequest | None = None
        """Its turn in its priority level."""
        self.trail: Trail | None = None
        """What the audit log has of it, if anything."""
        self.is_compressed = False
        """Whether its answer, as a whole, is to be compressed."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        # The library's own name is no part of an answer of an API server.
        response.headers.pop("Server", None)
        response.headers.update(self.answer_headers)
        if self.trail is not None:
            self.trail.on_response_started(response.status)


async def json_from(body: bytes, content_type: str) -> bytes:
    """Return the result of `json_of`; long YAML is parsed outside the event loop, which it would block for seconds."""
    is_yaml = media_type_of(content_type) in (YAML, APPLY) and not body.lstrip().startswith(b"{")
    read = json_from_yaml if media_type_of(content_type) == APPLY else partial(json_of, content_type=content_type)
    return await asyncio.to_thread(read, body) if is_yaml and len(body) > YAML_AT_ONCE_BYTES else read(body)
