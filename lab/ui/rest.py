"""The API server over REST: objects and tables, read in the page's own name and changed in the administrator's."""

from collections.abc import Mapping
from typing import Any, Final

from lab.exchange.rest.client import RestClient
from lab.exchange.rest.endpoint import JSON, NO_QUERY, Endpoint
from services.api.errors import BadRequest, NotFound
from services.client.discovery import DISCOVERY, ROOTS, ServedKind, kinds_of

TIMEOUT_S: Final = 30.0
KINDS_KEPT_S: Final = 30.0
MANAGER: Final = "keplab-ui"
"""Field manager of the objects that the page applies."""


class Rest:
    """REST requests to one API server. `reader`: in the page's own name; `writer`: in the administrator's."""

    def __init__(self, reader: Endpoint, writer: Endpoint) -> None:
        self._reader, self._writer = RestClient(reader, TIMEOUT_S), RestClient(writer, TIMEOUT_S)
        self._kinds: list[ServedKind] = []
        self._kinds_at = -KINDS_KEPT_S

    async def close(self) -> None:
        """End all connections."""
        await self._reader.close()
        await self._writer.close()

    async def get(self, path: str, query: Mapping[str, object] = NO_QUERY, accept: str = JSON) -> Any:
        """Return the JSON at a path, in the page's name. Raises: ApiError."""
        return await self._reader.get(path, query, accept)

    async def change(
        self, method: str, path: str, query: Mapping[str, object], body: bytes, content_type: str = JSON
    ) -> Any:
        """Send a change in the administrator's name and return the answer. Raises: ApiError."""
        return await self._writer.change(method, path, query, body, content_type)

    async def kinds(self, now_s: float) -> list[ServedKind]:
        """Return the served kinds; they are cached for half a minute. Raises: ApiError."""
        if now_s - self._kinds_at >= KINDS_KEPT_S:
            kinds: list[ServedKind] = []
            for root in ROOTS:
                for group in (await self.get(root, accept=DISCOVERY))["items"]:
                    kinds += kinds_of(group)
            self._kinds, self._kinds_at = kinds, now_s
        return self._kinds

    async def count(self, path: str) -> int:
        """Return the number of objects at that path. Raises: ApiError."""
        found = await self.get(path, {"limit": 1})
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    async def kind_named(self, name: str, now_s: float) -> ServedKind:
        """Return the kind that a user means, by any of its names. Raises: ApiError, NotFound when there is none."""
        for is_again in (False, True):
            if is_again:
                self._kinds_at = now_s - KINDS_KEPT_S
            served_kind = next((kind for kind in await self.kinds(now_s) if kind.is_called(name)), None)
            if served_kind is not None:
                return served_kind
        raise NotFound(f"the server doesn't have a resource type {name!r}")

    async def kind_of(self, document: Any, now_s: float) -> ServedKind:
        """Return the kind of a document by its apiVersion and kind, in the version it names. Raises: ApiError,
        BadRequest."""
        if not isinstance(document, dict):
            raise BadRequest(f"want an object with apiVersion and kind, not {type(document).__name__}")
        version, kind = document.get("apiVersion"), document.get("kind")
        if not isinstance(version, str) or not isinstance(kind, str):
            raise BadRequest("want an object with apiVersion and kind")
        group = version.rpartition("/")[0]
        for is_again in (False, True):
            if is_again:
                self._kinds_at = now_s - KINDS_KEPT_S
            for served_kind in await self.kinds(now_s):
                if served_kind.kind == kind and served_kind.group == group:
                    path = f"/apis/{version}" if group else f"/api/{version}"
                    return served_kind._replace(path=path)
        raise NotFound(f'no matches for kind "{kind}" in version "{version}"')
