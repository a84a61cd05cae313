"""Calls admission webhooks over HTTPS: mutating webhooks one after the other, validating webhooks
concurrently.

A Service is called at its ready endpoints. Its emulated pods listen nowhere, so a callable address is outside
the mesh, or `localhost` as an ExternalName. A simulation has no network: there every call fails, and the
webhook's failure policy decides.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/{mutating,validating}/
dispatcher.go, staging/src/k8s.io/apiserver/pkg/util/webhook/client.go,
staging/src/k8s.io/kube-aggregator/pkg/apiserver/resolvers.go.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import aiohttp
import msgspec

from apiserver_fake.extensions.admission.webhooks import (
    CallError,
    Reply,
    Webhook,
    check_dry_run,
    failure,
    patched_object,
    read,
    rejection,
    review,
)
from apiserver_fake.registry.admission.attributes import Answer, Attributes, Key, Pending
from apiserver_fake.registry.controlplane import service_addresses
from apiserver_fake.storage.store import Store
from services.api.errors import UNREADABLE, ApiError, Timeout
from services.api.meta import Resource
from services.api.seams import Tracer
from services.telemetry.calls import Call, http_call

ANSWER_BYTES_MAX = 16 << 20
_LATE = "request did not complete within requested timeout"


@dataclass(frozen=True)
class Address:
    """The address of a webhook. `url`: as errors show it; `connect`: URL to connect to; `name`: name in its
    certificate.
    """

    url: str
    connect: str
    name: str = ""


class Post(Protocol):
    """Sends a review and returns the body of the answer. Raises: CallError."""

    async def __call__(self, webhook: Webhook, body: bytes, timeout_s: float, traceparent: str, /) -> bytes:
        """Return the body of the answer. `traceparent`: that of the request that waits for the call."""
        ...


class WebhookCalls:
    """Calls the webhooks that a pending write waits for. `new_uid`: returns the uid of a review."""

    def __init__(self, post: Post, now: Callable[[], float], new_uid: Callable[[], str]) -> None:
        self._post, self._now, self._new_uid = post, now, new_uid

    async def close(self) -> None:
        """End all connections."""
        if isinstance(self._post, HttpsPost):
            await self._post.close()

    async def answer(self, pending: Pending, deadline_s: float, traceparent: str) -> Answer:
        """Return the webhooks' answer. Raises: ApiError when one denies the request, or fails with failurePolicy
        Fail.
        """
        return await (self._mutate if pending.is_mutating else self._examine)(pending, deadline_s, traceparent)

    async def _mutate(self, pending: Pending, deadline_s: float, traceparent: str) -> Answer:
        attributes, world = pending.found, pending.world
        warnings: list[str] = []
        audit: dict[str, str] = {}
        again: set[Key] = set()
        due: set[Key] = set()
        for place, webhook in enumerate(pending.webhooks):
            matched = webhook.should_be_called(attributes, world)
            if matched is None or (pending.only is not None and webhook.key not in pending.only):
                continue
            try:
                reply = await self._reply(webhook, attributes, matched, pending, deadline_s, traceparent)
            except ApiError as error:
                error.warnings, error.audit = (*warnings, *error.warnings), {**audit, **error.audit}
                raise
            if reply is not None:
                warnings += reply.warnings
                audit |= _annotations(webhook, reply)
                changed = patched_object(webhook, reply, attributes, matched, world)
                if changed is not None and pending.complete is not None and changed != attributes.object:
                    changed = pending.complete(changed)
                audit |= _mutation(webhook, 0 if pending.only is None else 1, place, changed != attributes.object)
                if changed != attributes.object:
                    due |= again
                attributes = replace(attributes, object=changed)
            if webhook.is_reinvoked:
                again.add(webhook.key)
        return Answer(attributes.object, tuple(warnings), audit, frozenset(again), frozenset(due))

    async def _examine(self, pending: Pending, deadline_s: float, traceparent: str) -> Answer:
        attributes = pending.found

        async def call_webhook(webhook: Webhook) -> tuple[Webhook, Reply | None]:
            matched = webhook.should_be_called(attributes, pending.world)
            assert matched is not None, "only those that match are asked"
            return webhook, await self._reply(webhook, attributes, matched, pending, deadline_s, traceparent)

        replies = await asyncio.gather(*(call_webhook(each) for each in pending.webhooks), return_exceptions=True)
        warnings: list[str] = []
        audit: dict[str, str] = {}
        refused: BaseException | None = None
        for outcome in replies:
            if isinstance(outcome, BaseException):
                refused = refused or outcome
            elif outcome[1] is not None:
                warnings += outcome[1].warnings
                audit |= _annotations(*outcome)
        if isinstance(refused, ApiError):
            refused.warnings, refused.audit = (*warnings, *refused.warnings), {**audit, **refused.audit}
        if refused is not None:
            raise refused
        return Answer(attributes.object, tuple(warnings), audit)

    async def _reply(
        self,
        webhook: Webhook,
        attributes: Attributes,
        matched: Resource,
        pending: Pending,
        deadline_s: float,
        traceparent: str,
    ) -> Reply | None:
        """Return what one webhook says, None when it failed and may. Raises: ApiError."""
        check_dry_run(webhook, attributes)
        uid = self._new_uid()
        try:
            sent = review(webhook, attributes, matched, pending.world, uid)
            timeout_s = min(webhook.timeout_s, deadline_s - self._now())
            if timeout_s <= 0:
                raise Timeout(_LATE)
            body = await self._post(webhook, msgspec.json.encode(sent), timeout_s, traceparent)
            reply = read(body, uid, sent["apiVersion"], is_mutating=pending.is_mutating)
        except CallError as error:
            if not webhook.ignores_errors:
                raise failure(webhook, error) from None
            if self._now() >= deadline_s:
                raise Timeout(_LATE) from None
            return None
        if not reply.is_allowed:
            refused = rejection(webhook, reply)
            refused.warnings, refused.audit = reply.warnings, _annotations(webhook, reply)
            raise refused
        return reply


def _mutation(webhook: Webhook, turn: int, place: int, is_mutated: bool) -> dict[str, str]:
    """Return the audit annotation that says whether a webhook changed the object.

    Source: upstream `staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`.
    """
    said = {"configuration": webhook.configuration, "webhook": webhook.name, "mutated": is_mutated}
    return {f"mutation.webhook.admission.k8s.io/round_{turn}_index_{place}": msgspec.json.encode(said).decode()}


def _annotations(webhook: Webhook, reply: Reply | None) -> dict[str, str]:
    """Return the audit annotations of an answer under the webhook's name."""
    return {f"{webhook.name}/{key}": value for key, value in reply.audit.items()} if reply is not None else {}


def shown_timeout(timeout_s: float) -> str:
    """Return a timeout in whole seconds, rounded up, as Go writes it."""
    return f"{int(-(-timeout_s // 1))}s"


def address_of(webhook: Webhook, store: Store) -> Address:
    """Return the address of a webhook. Raises: CallError for a Service that cannot be resolved."""
    client = webhook.client
    if client.get("url"):
        return Address(client["url"], client["url"])
    service = client["service"]
    name, namespace, port = service["name"], service["namespace"], service.get("port") or 443
    path = "/" + (service.get("path") or "").removeprefix("/")
    host = f"{name}.{namespace}.svc"
    url = f"https://{host}:{port}{path}"
    try:
        where, target = service_addresses.address_of(store, namespace, name, port)
    except LookupError as error:
        shown = f"{url}?timeout={shown_timeout(webhook.timeout_s)}"
        raise CallError(f'failed to call webhook: Post "{shown}": {error.args[0]}') from None
    return Address(url, f"https://{f'[{where}]' if ':' in where else where}:{target}{path}", host)


async def unreachable(webhook: Webhook, body: bytes, timeout_s: float, traceparent: str, /) -> bytes:
    """Refuse every call: a simulation has no network. Raises: CallError."""
    service = webhook.client.get("service") or {}
    where = webhook.client.get("url") or f"https://{service.get('name')}.{service.get('namespace')}.svc"
    raise CallError(f'failed to call webhook: Post "{where}": a simulation has no network to call webhooks over')


class HttpsPost:
    """Sends reviews over HTTPS, each as a CLIENT span; connections are kept per authority. `close` ends them."""

    def __init__(self, store: Store, tracer: Tracer) -> None:
        self._store, self._tracer = store, tracer
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __call__(self, webhook: Webhook, body: bytes, timeout_s: float, traceparent: str, /) -> bytes:
        """Send a review. Raises: CallError with Go's text for the error."""
        address = address_of(webhook, self._store)
        with http_call(self._tracer, "POST", address.url, traceparent) as call:
            return await self._send(webhook, address, body, timeout_s, call)

    async def _send(self, webhook: Webhook, address: Address, body: bytes, timeout_s: float, call: Call) -> bytes:
        shown = f"{address.url}?timeout={shown_timeout(timeout_s)}"
        context = self._context(webhook.client.get("caBundle") or "")
        headers = {"Content-Type": "application/json", "Accept": "application/json, */*", **call.headers}
        if address.name:
            headers["Host"] = address.name
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        try:
            async with asyncio.timeout(timeout_s):
                async with self._session.post(
                    address.connect,
                    params={"timeout": shown_timeout(timeout_s)},
                    data=body,
                    headers=headers,
                    ssl=context,
                    server_hostname=address.name or None,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as response:
                    content = await response.content.read(ANSWER_BYTES_MAX)
                    while not response.content.at_eof() and len(content) < ANSWER_BYTES_MAX:
                        content += await response.content.read(ANSWER_BYTES_MAX - len(content))
                    status = response.status
                    call.on_answered(status)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise CallError(f'failed to call webhook: Post "{shown}": {_in_go(error)}') from None
        if not 200 <= status < 300:
            raise CallError(f"failed to call webhook: {_said_by(status, content)}")
        return content

    def _context(self, bundle: str) -> ssl.SSLContext:
        """Return how a webhook's certificate is verified. Raises: CallError for a bundle that cannot be read."""
        known = self._contexts.get(bundle)
        if known is None:
            try:
                known = ssl.create_default_context(
                    cadata=base64.b64decode(bundle, validate=True).decode("ascii") if bundle else None
                )
            except (ssl.SSLError, binascii.Error, UnicodeDecodeError, ValueError):
                why = "unable to load root certificates: unable to parse bytes as PEM block"
                raise CallError(f"could not get REST client: {why}") from None
            self._contexts[bundle] = known
        return known


def _in_go(error: Exception) -> str:
    """Return what went wrong with a connection in Go's words."""
    match error:
        case TimeoutError():
            return "context deadline exceeded"
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            cause: Any = getattr(error, "certificate_error", error)
            return f"tls: failed to verify certificate: x509: {_x509(cause)}"
        case aiohttp.ClientConnectorDNSError():
            return f"dial tcp: lookup {error.host}: no such host"
        case aiohttp.ClientConnectorSSLError():
            return f"tls: {error}"
        case aiohttp.ClientConnectorError() if error.os_error.errno == errno.ECONNREFUSED:
            return f"dial tcp {error.host}:{error.port}: connect: connection refused"
        case aiohttp.ClientConnectorError():
            return f"dial tcp {error.host}:{error.port}: connect: {error.os_error.strerror or error}".lower()
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return "EOF"
        case ConnectionResetError() | BrokenPipeError():
            return "read: connection reset by peer"
    return f"malformed HTTP response: {error}" if isinstance(error, aiohttp.ClientError) else str(error)


def _x509(error: Any) -> str:
    text = str(getattr(error, "verify_message", "") or error)
    if "expired" in text or "not yet valid" in text:
        return f"certificate has expired or is not yet valid: {text}"
    if "ismatch" in text:
        return f"certificate is not valid for the name that was called: {text}"
    return "certificate signed by unknown authority"


_GENERIC = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "forbidden",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    503: "the server is currently unable to handle the request",
}


def _said_by(status: int, content: bytes) -> str:
    """Return what client-go makes of an answer that is none."""
    try:
        document = msgspec.json.decode(content)
    except UNREADABLE:
        document = None
    if isinstance(document, dict) and document.get("kind") == "Status" and document.get("message"):
        return str(document["message"])
    if status in _GENERIC:
        return _GENERIC[status]
    text = content.decode(errors="replace").strip() or "unknown"
    return f'an error on the server ("{text[:2048]}") has prevented the request from succeeding'
