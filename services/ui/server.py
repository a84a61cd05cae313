"""The page's server: HTTP and one socket below /ui, for one session, on a loopback address.

Every answer carries the page's policy; every error is a Kubernetes Status. What is answered is made in the modules
beside this one; here stands only who may ask what, and how it is spelled.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from services.api.errors import (
    UNREADABLE,
    ApiError,
    BadRequest,
    Forbidden,
    NotFound,
    RequestEntityTooLarge,
    Unavailable,
)
from services.ui import documents, static_files
from services.ui.asking import Explainers
from services.ui.live import Live
from services.ui.objects import Objects, as_yaml, limit_of, version_of
from services.ui.session import COOKIE, SECURITY_HEADERS, Sessions, policy
from services.ui.socket import HEARTBEAT_S, MESSAGE_BYTES_MAX, Page, joined

BODY_BYTES_MAX: Final = 4 << 20
BINARY: Final = "application/octet-stream"
V1: Final = "/ui/v1"
OPEN: Final = frozenset((f"{V1}/session",))
"""Answered without the cookie; so is what the page is made of, which says nothing of the mesh."""
_log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Settings:
    """What the server was started with. `version`: of keplab."""

    version: str
    may_write: bool = False
    may_break: bool = False
    static: Path = field(default_factory=lambda: Path(__file__).parent / "static")


class Server:
    """Answers for one mesh, or none, and for recordings."""

    def __init__(
        self,
        sessions: Sessions,
        settings: Settings,
        live: Live | None = None,
        objects: Objects | None = None,
        explainers: Explainers | None = None,
    ) -> None:
        self._sessions, self._settings = sessions, settings
        self._live, self._objects, self._explainers = live, objects, explainers
        self._static = static_files.StaticFiles(settings.static)
        self.sockets: set[web.WebSocketResponse] = set()

    def application(self) -> web.Application:
        """Return what aiohttp serves."""
        app = web.Application(middlewares=[self._answer], client_max_size=BODY_BYTES_MAX)
        get, post, put, delete = app.router.add_get, app.router.add_post, app.router.add_put, app.router.add_delete
        get("/", self._root, allow_head=True)
        get("/ui", self._root)
        post(f"{V1}/session", self._session)
        get(f"{V1}/meta", self._meta)
        get(f"{V1}/mesh", self._mesh)
        get(f"{V1}/state", self._state)
        get(f"{V1}/objects", self._kinds)
        get(f"{V1}/objects/{{kind}}", self._rows)
        get(f"{V1}/objects/{{kind}}/{{ns}}/{{name}}/versions", self._versions)
        get(f"{V1}/objects/{{kind}}/{{ns}}/{{name}}", self._one)
        put(f"{V1}/objects/{{kind}}/{{ns}}/{{name}}", self._update)
        delete(f"{V1}/objects/{{kind}}/{{ns}}/{{name}}", self._delete)
        post(f"{V1}/apply", self._apply)
        get(f"{V1}/explain/{{ns}}/{{pod}}", self._explain)
        get(f"{V1}/queue", self._queue)
        get(f"{V1}/socket", self._socket)
        get("/ui/{path:.*}", self._file)
        return app

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check who asks, answer, and have every error be a Status."""
        try:
            self._sessions.check_host(request.headers.get("Host", ""))
            path = request.path
            if path in OPEN:
                self._sessions.check_origin(request.headers)
            elif path.startswith(f"{V1}/"):
                cookie = request.cookies.get(COOKIE, "")
                self._sessions.check(request.method, request.headers, cookie, is_socket=path == f"{V1}/socket")
            answer = await handler(request)
        except ApiError as error:
            answer = status_answer(error)
        except web.HTTPRequestEntityTooLarge:
            answer = status_answer(RequestEntityTooLarge(f"the body is longer than {BODY_BYTES_MAX} bytes"))
        except web.HTTPException as error:
            answer = status_answer(ApiError(error.reason, code=error.status, reason=error.reason.replace(" ", "")))
        except Exception as error:
            _log.error("ui.request_failed", path=request.path, error=repr(error), exc_info=error)
            answer = status_answer(Unavailable(f"{type(error).__name__}: see the log of keplab ui"))
        if not answer.prepared:
            answer.headers.update(SECURITY_HEADERS)
            answer.headers["Content-Security-Policy"] = policy(self._static.import_map_hashes)
        return answer

    # -- the page itself ---------------------------------------------------------------------------------

    async def _root(self, request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/ui/"})

    async def _file(self, request: web.Request) -> web.Response:
        body, content_type = self._static.find(request.match_info["path"] or "index.html")
        return web.Response(body=body, content_type=content_type, charset=static_files.charset(content_type))

    async def _session(self, request: web.Request) -> web.Response:
        answer = web.Response(status=204)
        cookie = self._sessions.trade(await request.read())
        answer.set_cookie(COOKIE, cookie, path="/ui", httponly=True, samesite="Strict")
        return answer

    # -- the mesh ----------------------------------------------------------------------------------------

    @property
    def _mesh_live(self) -> Live:
        if self._live is None:
            raise NotFound("there is no mesh: this server shows recordings")
        return self._live

    @property
    def _mesh_objects(self) -> Objects:
        if self._objects is None:
            raise NotFound("there is no mesh: this server shows recordings")
        return self._objects

    async def _meta(self, _: web.Request) -> web.Response:
        return answered(
            {
                "version": self._settings.version,
                "flags": {"write": self._settings.may_write, "break": self._settings.may_break},
                "csrf": self._sessions.csrf,
                "runs": self._runs(),
                "switches": documents.switch_documents(),
                "pages": list(documents.PAGES),
                "palette": documents.PALETTE,
            }
        )

    def _runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = []
        if (live := self._live) is not None:
            runs.append(
                {
                    "id": "live",
                    "title": "live",
                    "arm": "",
                    "seed": 0,
                    "from_rv": 0,
                    "to_rv": live.model.rv,
                    "t0": 0.0,
                    "t1": round(live.now_s, 3),
                    "kind": "live",
                    "switches": list(live.place.access.switches),
                    "clock": {"zero_s": live.zero_s, "wall_s": live.wall_s, "is_virtual": False},
                }
            )
        return runs

    async def _mesh(self, _: web.Request) -> web.Response:
        live = self._mesh_live
        await live.look(is_asked=True)
        return answered(live.mesh_document())

    async def _state(self, request: web.Request) -> web.Response:
        live = self._mesh_live
        if version_of(request.query.get("rv", "")):
            raise NotFound("rv: only the newest version is here")
        return web.Response(body=joined(live.whole()), content_type=BINARY)

    # -- objects -----------------------------------------------------------------------------------------

    async def _kinds(self, _: web.Request) -> web.Response:
        return answered({"kinds": await self._mesh_objects.kinds()})

    async def _rows(self, request: web.Request) -> web.Response:
        objects, query = self._mesh_objects, request.query
        kind = await objects.kind(request.match_info["kind"])
        found = await objects.rows(
            kind,
            query.get("ns", ""),
            query.get("q", ""),
            version_of(query.get("rv", "")),
            limit_of(query.get("limit", "")),
            query.get("continue", ""),
        )
        return answered(found)

    async def _named(self, request: web.Request) -> tuple[Any, str, str]:
        """Return kind, namespace and name of a path; `-` is the namespace of what has none."""
        kind = await self._mesh_objects.kind(request.match_info["kind"])
        namespace = request.match_info["ns"]
        return kind, "" if namespace == "-" else namespace, request.match_info["name"]

    async def _one(self, request: web.Request) -> web.Response:
        kind, namespace, name = await self._named(request)
        form = request.query.get("as", "json")
        if form not in ("json", "yaml"):
            raise BadRequest(f"as: want json or yaml, not {form[:40]!r}")
        found = await self._mesh_objects.one(kind, namespace, name, version_of(request.query.get("rv", "")))
        if form == "yaml":
            return web.Response(text=as_yaml(found), content_type="application/yaml")
        return answered(found)

    async def _versions(self, request: web.Request) -> web.Response:
        return answered(await self._mesh_objects.versions(*await self._named(request)))

    async def _update(self, request: web.Request) -> web.Response:
        self._check_write()
        named = await self._named(request)
        found = await self._mesh_objects.update(*named, await request.read(), dry_run=is_dry(request))
        return answered(found)

    async def _delete(self, request: web.Request) -> web.Response:
        self._check_write()
        named = await self._named(request)
        uid = request.query.get("uid", "")
        return answered(await self._mesh_objects.delete(*named, dry_run=is_dry(request), uid=uid))

    async def _apply(self, request: web.Request) -> web.Response:
        self._check_write()
        force = request.query.get("force", "") in ("true", "1")
        found = await self._mesh_objects.apply(await request.read(), force=force, dry_run=is_dry(request))
        return answered(found)

    def _check_write(self) -> None:
        if not self._settings.may_write:
            raise Forbidden("this page only reads; start it with `keplab ui --allow-write` to change objects")

    # -- why ---------------------------------------------------------------------------------------------

    async def _explain(self, request: web.Request) -> web.Response:
        live, names = self._mesh_live, request.match_info
        assert self._explainers is not None
        return answered(await self._explainers.pod(live.status["processes"], names["ns"], names["pod"]))

    async def _queue(self, _: web.Request) -> web.Response:
        live = self._mesh_live
        assert self._explainers is not None
        return answered(await self._explainers.queue(live.status["processes"]))

    # -- the socket --------------------------------------------------------------------------------------

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MESSAGE_BYTES_MAX, compress=False)
        socket.headers.update(SECURITY_HEADERS)
        await socket.prepare(request)
        self.sockets.add(socket)
        try:
            await Page(self._live, socket, None).serve()
        finally:
            self.sockets.discard(socket)
        return socket


def is_dry(request: web.Request) -> bool:
    """Return whether nothing shall be stored. Raises: BadRequest."""
    text = request.query.get("dryRun", "")
    if text not in ("", "All"):
        raise BadRequest(f"dryRun: want All, not {text[:40]!r}")
    return bool(text)


def answered(document: Any, code: int = 200) -> web.Response:
    """Return a JSON answer."""
    return web.Response(body=msgspec.json.encode(document), status=code, content_type="application/json")


def status_answer(error: ApiError) -> web.Response:
    """Return a refusal."""
    return answered(error.status(), error.code)


def read_json(body: bytes, form: type[Any]) -> Any:
    """Return a request's body. Raises: BadRequest naming the field."""
    try:
        return msgspec.json.decode(body, type=form)
    except UNREADABLE as error:
        raise BadRequest(f"body: {error}") from None
