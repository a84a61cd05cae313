"""A kind in another version than the one it is stored in: what comes is converted before it reaches the registry, and
what goes out before it is sent.

A patch is one of the version its caller knows; so the object is read, converted, patched and written back under the
version it was read at, and read again when another client wrote in between. The same holds for an update when the
version has rules of its own (`check`): what is new is judged by what was there.
"""

import re
from collections.abc import AsyncIterator, Callable

import msgspec

from apiserver_fake.catalogue import Conversion, ServedVersion
from apiserver_fake.decode import decode, decode_object
from apiserver_fake.errors import wrong_type
from apiserver_fake.patch.patch import apply_patch
from apiserver_fake.schema.schemas import conform, report_fields
from services.api.errors import BadRequest, invalid
from services.api.meta import Document, metadata_of
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest

TRIES_MAX = 5
"""How often a patch starts over because another client wrote in between."""
_OWN_FORM = ("", "status")
"""Subresources whose documents are the whole object."""


class VersionedApi:
    """An `Api` for callers who know a kind in that version."""

    def __init__(self, api: Api, served: ServedVersion, to_stored: Conversion | None, from_stored: Conversion) -> None:
        """Without `to_stored` what is written is in the stored version already."""
        self._api, self._served = api, served
        self._to_stored, self._from_stored = to_stored, from_stored

    async def call(self, request: Request) -> Response:
        """Answer one request in the caller's version."""
        kind = self._served.resource.kind
        request = msgspec.structs.replace(
            request,
            api_version=self._served.resource.api_version,
            is_split=False,
            field_selector=self._stored_labels(request.field_selector),
        )
        if request.subresource not in _OWN_FORM:
            return await self._api.call(request)
        if self._to_stored is not None and request.patch_type != "apply":
            if request.verb == "patch":
                patch = decode(request.body)
                return await self._rewrite(
                    request, lambda old: apply_patch(old, patch, request.patch_type, self._served.shape, kind)
                )
            if request.verb == "update" and self._served.check is not None:
                body = decode_object(request.body, f"a {kind}")
                return await self._rewrite(request, lambda old: body)
            if request.verb in ("create", "update"):
                body = decode_object(request.body, f"a {kind}")
                return await self._write(request, body, None)
        return await self._answer(await self._api.call(request))

    def _stored_labels(self, selector: str) -> str:
        """Return a field selector with the labels of the stored version. Raises: BadRequest for a label that only
        the stored version has."""
        labels = self._served.field_labels
        if not labels or not selector:
            return selector
        found = []
        for term in selector.split(","):
            label = re.split("!?=", term, maxsplit=1)[0]
            if label in labels.values():
                raise BadRequest(f"field label not supported: {label}")
            found.append(labels.get(label, label) + term[len(label) :])
        return ",".join(found)

    async def _write(self, request: Request, document: Document, old: Document | None) -> Response:
        """Write a document of the caller's version. Raises: Invalid, BadRequest when that version refuses it."""
        assert self._to_stored is not None, "only what is converted is written here"
        warnings: list[str] = []
        if self._served.check is not None:
            document, warnings = self._checked(request, document, old)
        else:
            document, warnings = self._typed(request, document)
        [stored] = await self._to_stored([document])
        written = await self._api.call(msgspec.structs.replace(request, body=msgspec.json.encode(stored)))
        if warnings:
            written = msgspec.structs.replace(written, warnings=(*warnings, *written.warnings))
        return await self._answer(written)

    def _typed(self, request: Request, document: Document) -> tuple[Document, list[str]]:
        """Return a document of a built-in version as its type reads it. Raises: BadRequest where it is not of it."""
        resource, unknown = self._served.resource, list[str]()
        shape, version, kind = self._served.shape, resource.api_version, resource.kind
        document = conform(shape, version, kind, document, unknown=unknown)
        return document, report_fields(unknown, version, kind, request.field_validation)

    def _checked(self, request: Request, document: Document, old: Document | None) -> tuple[Document, list[str]]:
        assert self._served.check is not None, "only versions with rules of their own are checked"
        resource = self._served.resource
        kind, version = document.get("kind") or resource.kind, document.get("apiVersion") or resource.api_version
        if (kind, version) != (resource.kind, resource.api_version):
            raise wrong_type(resource, version, kind, is_served=False, is_defined=True)
        document = {"apiVersion": version, "kind": kind, **document}
        read, dropped, causes = self._served.check(document, old, request.subresource)
        warnings = report_fields(dropped, version, kind, request.field_validation)
        if causes:
            name = request.name or str(metadata_of(document).get("name") or "")
            raise invalid(resource.qualified_kind, name, causes)
        return read, warnings

    async def _rewrite(self, request: Request, change: Callable[[Document], Document]) -> Response:
        """Read the object, change it and write it back on the version that was read; again if another client did so."""
        response = Response(code=409)
        asked = msgspec.structs.replace(request, verb="get", body=b"", patch_type="")
        for _ in range(TRIES_MAX):
            read = await self._answer(await self._api.call(asked))
            if not read.is_ok:
                return read
            before: Document = msgspec.json.decode(read.body)
            after = change(before)
            named = metadata_of(after).get("resourceVersion") != before["metadata"]["resourceVersion"]
            write = msgspec.structs.replace(request, verb="update", patch_type="")
            response = await self._write(write, after, before)
            if response.is_ok or named or request.resource_version or response.code != 409:
                return response
        return response

    async def _answer(self, response: Response) -> Response:
        if not response.is_ok:
            return response
        document: Document = msgspec.json.decode(response.body)
        if document.get("kind") == "Status":
            return response
        if "items" in document and document.get("kind") == self._served.resource.list_kind:
            resource = self._served.resource
            head = {"kind": resource.list_kind, "apiVersion": resource.api_version}
            document = {**document, **head, "items": await self._from_stored(document["items"])}
        else:
            [document] = await self._from_stored([document])
        return msgspec.structs.replace(response, body=msgspec.json.encode(document))

    async def watch(self, request: WatchRequest) -> AsyncIterator[list[WatchEvent]]:
        """Yield batches of events whose objects are in the caller's version."""
        request = msgspec.structs.replace(request, field_selector=self._stored_labels(request.field_selector))
        async for batch in self._api.watch(request):
            yield [await self._event(event) for event in batch]

    async def _event(self, event: WatchEvent) -> WatchEvent:
        if event.type == "ERROR":
            return event
        document = msgspec.json.decode(event.body)
        if event.type == "BOOKMARK":
            converted = {**document, "apiVersion": self._served.resource.api_version}
        else:
            [converted] = await self._from_stored([document])
        return msgspec.structs.replace(event, body=msgspec.json.encode(converted))


def versioned(api: Api, served: ServedVersion) -> Api:
    """Return the API as a caller of that version sees it."""
    if served.from_stored is None:
        return api
    return VersionedApi(api, served, served.to_stored, served.from_stored)
