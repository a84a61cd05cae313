"""A kind in another version than the one it is stored in: what goes out is converted before it is sent.

What comes in is converted where it is written (`registry.writes.bodies`): there the object that is patched is the
newest one, and rules of the caller's version judge what is new by what is there.
"""

import re
from collections.abc import AsyncIterator

import msgspec

from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.served_version import ServedVersion
from services.api.errors import BadRequest
from services.api.meta import Document
from services.api.wire import Api, Request, Response, WatchEvent, WatchRequest

_OWN_FORM = ("", "status")
"""Subresources whose documents are the whole object."""


class VersionedApi:
    """An `Api` for callers that use a kind in that version."""

    def __init__(self, api: Api, served: ServedVersion, from_stored: Conversion) -> None:
        self._api, self._served, self._from_stored = api, served, from_stored

    async def call(self, request: Request) -> Response:
        """Answer one request in the caller's version."""
        request = msgspec.structs.replace(
            request,
            api_version=self._served.resource.api_version,
            is_split=False,
            field_selector=self._stored_labels(request.field_selector),
        )
        if request.subresource not in _OWN_FORM:
            return await self._api.call(request)
        return await self._answer(await self._api.call(request))

    def _stored_labels(self, selector: str) -> str:
        """Return a field selector with the labels of the stored version. Raises: BadRequest for a label that only
        the stored version has."""
        labels = self._served.field_labels
        if not labels or not selector:
            return selector
        terms = []
        for term in selector.split(","):
            label = re.split("!?=", term, maxsplit=1)[0]
            if label in labels.values():
                raise BadRequest(f"field label not supported: {label}")
            terms.append(labels.get(label, label) + term[len(label) :])
        return ",".join(terms)

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


def versioned_api(api: Api, served: ServedVersion) -> Api:
    """Return the API for a caller of that version."""
    if served.from_stored is None:
        return api
    return VersionedApi(api, served, served.from_stored)
