"""Discovery documents, OpenAPI documents, and the list of served paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.errors import no_such_path
from apiserver_fake.rest import discovery, media_types, openapi
from apiserver_fake.rest.http import cached_answer, only, page_not_found, raw_json
from services.api.identity import Identity
from services.api.seams import Clock

YEAR_S = 365 * 86400.0


class DiscoveryPages:
    """Answers requests for discovery and OpenAPI documents."""

    def __init__(self, catalogue: Catalogue, clock: Clock, next_piece: Callable[[], Awaitable[None]]) -> None:
        """`next_piece` waits for the turn of a long answer's next piece."""
        self._catalogue, self._clock, self._next_piece = catalogue, clock, next_piece

    async def index(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response | None:
        """Answer `/` and `/index.html`; None for a path below."""
        return raw_json({"paths": discovery.served_paths(self._catalogue)}) if len(parts) == 1 else None

    async def openapi(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response | None:
        """Answer a path below `/openapi`; None for one that is not served."""
        match parts[1:]:
            case ["v2"]:
                return await self._second(request)
            case ["v3"]:
                await self._compose_openapi()
                return cached_answer(request, openapi.index(self._catalogue))
            case ["v3", "api", version]:
                return self._openapi(request, "", version)
            case ["v3", "apis", group, version]:
                return self._openapi(request, group, version)
        return None

    async def _second(self, request: web.BaseRequest) -> web.Response:
        content_type = openapi.second_type(request.headers.get("Accept", ""))
        if not content_type:
            return web.Response(status=406, headers={"Vary": "Accept"})
        await self._compose_openapi()
        found = openapi.second(self._catalogue, is_protobuf=content_type != media_types.JSON)
        return cached_answer(request, found, content_type)

    def _openapi(self, request: web.BaseRequest, group: str, version: str) -> web.Response:
        answer = openapi.group_version_answer(self._catalogue, group, version)
        if answer is None:
            # For a group version that is not served the answer is empty.
            return web.Response(headers={"Vary": "Accept", "Cache-Control": "no-cache, private"})
        hashed = request.rel_url.query.get("hash", "")
        if hashed and hashed != answer.etag.strip('"'):
            target = openapi.url_of(group, version, answer.etag)
            return web.Response(status=301, headers={"Location": target, "Vary": "Accept", "ETag": answer.etag})
        return cached_answer(request, answer, good_until_s=self._clock.wall() + YEAR_S if hashed else 0.0)

    async def _compose_openapi(self) -> None:
        """Compose the OpenAPI document of every group version; other requests are served after each."""
        for group, versions in discovery.groups(self._catalogue).items():
            for version in versions:
                openapi.group_version_answer(self._catalogue, group, version)
                await self._next_piece()

    def document(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        """Answer a discovery path, or a path that is not served. Raises: NotFound below a built-in group."""
        path = "/".join(parts)
        is_root = path in ("api", "apis")
        plain = discovery.document_at(self._catalogue, path)
        if plain is None:
            # A path below a built-in group is answered by that group.
            is_below = parts[0] == "api" or (
                parts[0] == "apis" and len(parts) > 1 and discovery.is_built_in(self._catalogue, parts[1])
            )
            if is_below:
                raise no_such_path()
            return page_not_found()
        only(request, "GET")
        form = media_types.negotiate(request.headers.get("Accept", ""), ("APIGroupDiscoveryList",) if is_root else ())
        answer = discovery.document_at(self._catalogue, path, form.version) if form.convert else plain
        assert answer is not None, "the aggregated form exists where the plain one does"
        return cached_answer(request, answer, content_type=form.content_type if form.convert else "application/json")
