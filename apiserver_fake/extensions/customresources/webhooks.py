"""Conversion webhooks: sends a ConversionReview over HTTPS to a definition's webhook, and checks the
answer.

A write waits for the answer outside of the commit: nothing is awaited while a write is evaluated (decision
0088). The address of a service comes from a resolver that is passed in. Source: upstream
`staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`.
"""

import asyncio
import base64
import ssl
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

from apiserver_fake.extensions.customresources.kinds import Converter
from services.api.errors import UNREADABLE, ApiError
from services.api.meta import Document
from services.api.seams import Tracer
from services.telemetry.calls import Call, http_call, serving

TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 64 << 20
REVIEWS = ("v1", "v1beta1")
_IMMUTABLE = ("name", "namespace", "uid")
_CHANGEABLE = ("labels", "annotations")

Address = Callable[[str, str, int], tuple[str, int]]
"""Resolver: returns the host and port of a service for `(namespace, service, port)`. Raises: LookupError
with the reason.
"""


class _Failed(Exception):
    """The webhook gave no usable answer; the message says why."""


class WebhookConverter:
    """Converts the objects of one definition with its webhook."""

    def __init__(self, definition: Document, address: Address, tracer: Tracer) -> None:
        webhook = definition["spec"]["conversion"]["webhook"]
        self._config: Document = webhook.get("clientConfig") or {}
        self._reviews: list[str] = list(webhook.get("conversionReviewVersions") or ())
        self._kind = f"{definition['spec']['group']}/{{version}}, Kind={definition['spec']['names']['kind']}"
        self._address, self._tracer = address, tracer

    async def __call__(self, documents: list[Document], api_version: str) -> list[Document]:
        """Return the documents in that version, in their order; documents already in that version are not sent.

        Raises: ApiError (500) in upstream's words if the webhook cannot be reached, refuses, or its answer is
        malformed.
        """
        sent = [each for each in documents if each.get("apiVersion") != api_version]
        if not sent:
            return documents
        version = str(sent[0].get("apiVersion")).rpartition("/")[2]
        about = f"conversion webhook for {self._kind.format(version=version)}"
        try:
            converted = iter(_with_old_metadata(sent, await self._review(sent, api_version), api_version))
        except _Failed as error:
            raise ApiError(f"{about} {error}") from None
        return [each if each.get("apiVersion") == api_version else next(converted) for each in documents]

    async def _review(self, documents: list[Document], api_version: str) -> list[Any]:
        review = next((each for each in self._reviews if each in REVIEWS), None)
        if review is None:
            raise _Failed("failed: no supported conversion review versions")
        uid = str(uuid.uuid4())
        question = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{review}",
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": documents},
        }
        answer = await self._post(question)
        if review == "v1" and (answer.get("apiVersion"), answer.get("kind")) != (
            "apiextensions.k8s.io/v1",
            "ConversionReview",
        ):
            actual = f"{answer.get('apiVersion') or ''}, Kind={answer.get('kind') or ''}"
            wanted = "apiextensions.k8s.io/v1, Kind=ConversionReview"
            raise _Failed(f"failed: expected webhook response of {wanted}, got {actual}")
        response = answer.get("response")
        if not isinstance(response, dict):
            raise _Failed("failed: no response provided")
        if review == "v1" and response.get("uid") != uid:
            raise _Failed(f'failed: expected response.uid="{uid}", got "{response.get("uid") or ""}"')
        result = response.get("result") or {}
        if result.get("status") != "Success":
            status = result.get("status") or ""
            why = result.get("message") or f"response.result.status was '{status}', not 'Success'"
            raise _Failed(f"failed: {why}")
        converted = response.get("convertedObjects") or []
        if len(converted) != len(documents):
            raise _Failed(f"returned {len(converted)} objects, expected {len(documents)}")
        return list(converted)

    async def _post(self, question: Document) -> Document:
        url, host, port, name = self._target()
        with http_call(self._tracer, "POST", url, serving.get()) as call:
            body = await self._send(question, url, host, port, name, call)
        try:
            answer = msgspec.json.decode(body)
        except UNREADABLE as error:
            raise _Failed(f"failed: the answer is not JSON: {error}") from None
        if not isinstance(answer, dict):
            raise _Failed("failed: the answer is not an object")
        return answer

    async def _send(self, question: Document, url: str, host: str, port: int, name: str | None, call: Call) -> bytes:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            context = ssl.create_default_context(cadata=self._authority() or None)
            headers = {**_JSON, **call.headers}
            connector = aiohttp.TCPConnector(ssl=context, resolver=_Fixed(host, port) if host else None)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.post(url, data=msgspec.json.encode(question), headers=headers, server_hostname=name) as answer,
            ):
                call.on_answered(answer.status)
                body = await _whole(answer)
                if answer.status != 200:
                    raise _Failed(f"failed: the server responded with the status code {answer.status}")
        except TimeoutError:
            raise _Failed(f'failed: Post "{url}?timeout={TIMEOUT_S:g}s": context deadline exceeded') from None
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            raise _Failed(f'failed: Post "{url}?timeout={TIMEOUT_S:g}s": {error}') from None
        return body

    def _authority(self) -> str:
        bundle = self._config.get("caBundle")
        return base64.b64decode(bundle).decode() if bundle else ""

    def _target(self) -> tuple[str, str, int, str | None]:
        """Return the URL, the address it is to be reached at ("" is the URL's own), and the name the server proves."""
        service = self._config.get("service")
        if not service:
            return str(self._config.get("url") or ""), "", 0, None
        name = f"{service['name']}.{service['namespace']}.svc"
        port = int(service.get("port") or 443)
        path = quote(str(service.get("path") or "/"), safe="/")
        url = f"https://{name}:{port}{path}"
        try:
            host, at = self._address(service["namespace"], service["name"], port)
        except LookupError as error:
            raise _Failed(f'failed: Post "{url}?timeout={TIMEOUT_S:g}s": {error.args[0]}') from None
        return f"https://{name}:{at}{path}", host, at, name


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer, however many pieces it comes in; what is beyond the limit is left out."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > ANSWER_BYTES_MAX:
            break
    return bytes(body[:ANSWER_BYTES_MAX])


_JSON = {"Content-Type": "application/json", "Accept": "application/json"}


class _Fixed(aiohttp.abc.AbstractResolver):
    """Resolves every name to one address."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[Any]:
        """Return the address, whatever is asked for."""
        found = await asyncio.get_running_loop().getaddrinfo(self._host, self._port)
        return [
            {"hostname": host, "host": address[0], "port": self._port, "family": kind, "proto": 0, "flags": 0}
            for kind, _, _, _, address in found[:1]
        ]

    async def close(self) -> None:
        """Release nothing."""


def _with_old_metadata(sent: list[Document], answered: list[Any], api_version: str) -> list[Document]:
    """Return the converted objects with the metadata they had, labels and annotations excepted. Raises: _Failed."""
    objects: list[Document] = []
    for place, (before, after) in enumerate(zip(sent, answered, strict=True)):
        about = f"returned invalid converted object at index {place}"
        if not isinstance(after, dict):
            raise _Failed(f"{about}: not an object")
        if after.get("apiVersion") != api_version:
            got = after.get("apiVersion") or ""
            raise _Failed(f"{about}: invalid groupVersion (expected {api_version}, received {got})")
        if after.get("kind") != before.get("kind"):
            got, wanted = after.get("kind") or "", before.get("kind")
            raise _Failed(f"{about}: invalid kind (expected {wanted}, received {got})")
        old, new = before.get("metadata") or {}, after.get("metadata")
        if not isinstance(new, dict):
            raise _Failed(f"returned invalid metadata in object at index {place}: missing metadata in converted object")
        for name in _IMMUTABLE:
            if (old.get(name) or "") != (new.get(name) or ""):
                shown = "UID" if name == "uid" else name
                raise _Failed(f"{about}: must have the same {shown}: {old.get(name) or ''} != {new.get(name) or ''}")
        meta = {name: value for name, value in old.items() if name not in _CHANGEABLE}
        meta.update({name: new[name] for name in _CHANGEABLE if name in new})
        objects.append({**after, "metadata": meta})
    return objects


def make_webhooks(address: Address, tracer: Tracer) -> Callable[[Document], Converter]:
    """Return a function that makes the converter of a definition."""
    return lambda definition: WebhookConverter(definition, address, tracer)
