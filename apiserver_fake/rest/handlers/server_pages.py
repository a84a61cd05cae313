"""Pages about the server itself: health, version, metrics, status, flags, profiles, signing keys, fairness queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
from aiohttp import web

from apiserver_fake.extensions.fairness.gate import FairDispatch
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.errors import no_such_path
from apiserver_fake.rest import discovery, health, zpages
from apiserver_fake.rest.handlers.path_rights import PathRights
from apiserver_fake.rest.http import TEXT_HEADERS, only, page_answer, page_not_found, raw_json
from apiserver_fake.storage.writer import Writer
from services.api.errors import Forbidden
from services.api.identity import MASTERS_GROUP, Identity
from services.api.release import RELEASES
from services.api.seams import Clock
from services.runtime.health import join_pieces
from services.telemetry.exposition import Exposition
from services.telemetry.metrics import Samples


class MonitoredServer(Protocol):
    """The part of `ApiServer` that pages about the server use."""

    access: Access
    fairness: FairDispatch | None
    is_ready: bool
    release: str
    writer: Writer

    async def etcd_failure(self) -> str:
        """Return why etcd does not answer; empty if it does, or if there is no etcd."""
        ...

    def metrics(self) -> Samples:
        """Return counters, gauges and histograms by Prometheus name."""
        ...


class ServerPages:
    """Answers requests of monitors and operators."""

    def __init__(
        self, server: MonitoredServer, catalogue: Catalogue, clock: Clock, rights: PathRights, flags: Mapping[str, str]
    ) -> None:
        """`flags`: the flags of the process."""
        self._server, self._catalogue, self._clock = server, catalogue, clock
        self._rights, self._flags = rights, flags
        self._began_s = clock.wall()
        self._exposition = Exposition()

    async def health(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response:
        """Answer `healthz`, `livez` or `readyz`, or one of its checks."""
        endpoint, *rest = parts
        check, query, is_ready = "/".join(rest), request.rel_url.query, self._server.is_ready
        if check and check not in health.checks_of(endpoint):
            return page_not_found()
        if not check and "verbose" in query:
            self._rights.only_monitors(request, identity)
        excluded = query.getall("exclude", [])
        is_asked = {check} if check else set(health.checks_of(endpoint)) - set(excluded)
        failure = await self._server.etcd_failure() if is_ready and is_asked & health.OF_ETCD else ""
        failing = health.OF_ETCD if failure else ()
        if check:
            is_passing = health.is_passing(endpoint, check, is_ready=is_ready, failing=failing)
            report = (200, "ok") if is_passing else (500, f"internal server error: {failure or 'not ready'}\n")
        else:
            report = health.report(
                endpoint,
                is_ready=is_ready,
                is_verbose="verbose" in query,
                excluded=excluded,
                read_only=self._server.writer.read_only,
                failing=failing,
            )
        return web.Response(text=report[1], status=report[0], headers=TEXT_HEADERS)

    async def version(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response | None:
        """Answer `/version`; None for a path below."""
        if len(parts) > 1:
            return None
        only(request, "GET")
        return raw_json(discovery.version(self._server.release))

    async def below_version(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response:
        """Refuse a path below `/version`. Raises: NotFound."""
        raise no_such_path()

    async def metrics(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response | None:
        """Answer `/metrics`; None for a path below."""
        if len(parts) > 1:
            return None
        self._rights.only_monitors(request, identity)
        content_type, pieces = self._exposition.pieces(self._server.metrics(), request.headers.get("Accept", ""))
        return web.Response(body=await join_pieces(pieces), headers={"Content-Type": content_type})

    async def status(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response | None:
        """Answer `/statusz`; None for a path below."""
        if len(parts) > 1:
            return None
        self._rights.only_monitors(request, identity)
        return page_answer(zpages.status_page(request.headers.get("Accept", ""), self._status()))

    async def flags(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response | None:
        """Answer `/flagz`; None for a path below."""
        if len(parts) > 1:
            return None
        self._rights.only_monitors(request, identity)
        return page_answer(zpages.flags_page(request.headers.get("Accept", ""), self._flags))

    async def debug(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response | None:
        """Answer a path below `/debug`; None for one that is not served."""
        match parts[1:]:
            case ["pprof", *rest]:
                self._rights.only_monitors(request, identity)
                return page_answer(zpages.profiles_page(rest, request.rel_url.raw_path))
            case ["api_priority_and_fairness", what]:
                return self._fairness_dump(request, identity, what)
        return None

    async def issuer(self, request: web.BaseRequest, identity: Identity, parts: list[str]) -> web.Response | None:
        """Answer the two paths of the token issuer; None for other paths."""
        if parts not in ([".well-known", "openid-configuration"], ["openid", "v1", "jwks"]):
            return None
        only(request, "GET")
        return self._issuer(parts[0] == "openid")

    def _status(self) -> zpages.Status:
        release, version_info = self._server.release, discovery.version(self._server.release)
        paths = discovery.served_paths(self._catalogue)
        return zpages.Status(
            began_s=self._began_s,
            now_s=self._clock.wall(),
            runtime=version_info["goVersion"],
            release=RELEASES[release].removeprefix("v"),
            paths=zpages.debugging_paths(path for path in paths if path != "/statusz"),
        )

    def _issuer(self, is_key_set: bool) -> web.Response:
        """Answer with the token issuer's configuration (RFC 8414) or its key set (RFC 7517)."""
        tokens = self._server.access.accounts.tokens
        if tokens is None:
            return page_not_found()
        document, form = tokens.key_set(), "application/jwk-set+json"
        if not is_key_set:
            document, form = tokens.configuration(), "application/json"
        headers = {"Cache-Control": "public, max-age=3600"}
        return web.Response(body=msgspec.json.encode(document), content_type=form, headers=headers)

    def _fairness_dump(self, request: web.BaseRequest, identity: Identity, what: str) -> web.Response:
        """Answer upstream's debug endpoints of priority and fairness."""
        if not self._server.access.is_rbac and MASTERS_GROUP not in identity.groups:
            raise Forbidden(f'forbidden: User "{identity.user}" cannot get path "{request.path}"')
        fairness, has_details = self._server.fairness, bool(request.rel_url.query.get("includeRequestDetails"))
        text = fairness.dump(what, has_details=has_details) if fairness is not None else None
        return page_not_found() if text is None else web.Response(text=text, headers=TEXT_HEADERS)
