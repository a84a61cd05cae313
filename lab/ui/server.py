"""The page's server: HTTP and one socket below /ui, for one session, on a loopback address.

Every answer carries the page's policy; every error is a Kubernetes Status. The modules beside this one make the
answers; this one only checks access and reads requests.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from lab.recordings.reader import Recording
from lab.ui import documents, static_files
from lab.ui.alarms import Alarms
from lab.ui.commands import CommandLog, perform
from lab.ui.component_queries import Explainers
from lab.ui.jobs import Jobs
from lab.ui.live import Live
from lab.ui.objects import Objects, as_yaml, limit_of, version_of
from lab.ui.runs import Runs
from lab.ui.session import COOKIE, SECURITY_HEADERS, Sessions, policy
from lab.ui.socket import HEARTBEAT_S, MESSAGE_BYTES_MAX, Page, join_frames
from lab.ui.streams import EventStream, SpanFiles
from services.api.errors import (
    UNREADABLE,
    ApiError,
    BadRequest,
    Expired,
    Forbidden,
    NotFound,
    RequestEntityTooLarge,
    TooManyRequests,
    Unavailable,
)
from services.api.texts import encodable
from services.client.discovery import ServedKind

BODY_BYTES_MAX: Final = 4 << 20
PAGES_MAX: Final = 64
"""Largest number of pages and event streams connected at one time: each may have 4 MiB that wait for it."""
BINARY: Final = "application/octet-stream"
V1: Final = "/ui/v1"
REPORT_POLICY: Final = "default-src 'none'; frame-ancestors 'none'; sandbox"
"""Content-Security-Policy of a comparison's page, which is a file to keep."""
OPEN: Final = frozenset((f"{V1}/session",))
"""Paths answered without the cookie. The page's own files are as well; they contain nothing of the mesh."""
_log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Settings:
    """Settings with which the server was started. `version`: that of keplab."""

    version: str
    may_write: bool = False
    may_break: bool = False
    static: Path = field(default_factory=lambda: Path(__file__).parent / "static")


@dataclass
class Parts:
    """Parts that a server answers with; a server without a mesh has only `runs` and `jobs`."""

    runs: Runs
    jobs: Jobs
    objects: Objects | None = None
    explainers: Explainers | None = None
    alarms: Alarms | None = None
    commands: CommandLog | None = None
    traces: SpanFiles | None = None


PARAMETERS: Final[Mapping[str, str]] = {
    "mesh": "run",
    "state": "run rv",
    "objects": "run",
    "objects/{kind}": "run rv ns q limit continue",
    "objects/{kind}/{ns}/{name}": "run rv as dryRun uid",
    "objects/{kind}/{ns}/{name}/versions": "run",
    "apply": "force dryRun",
    "explain/{ns}/{pod}": "run rv",
    "queue": "run rv",
    "history": "run",
    "trace/{ns}/{pod}": "run whole",
    "diff": "a b times",
    "events": "since",
}
"""Query parameters of each address below /ui/v1; the other addresses take none."""


class Server:
    """The page's server for one mesh, or none, and for recordings."""

    def __init__(self, sessions: Sessions, settings: Settings, parts: Parts) -> None:
        self._sessions, self._settings, self._parts = sessions, settings, parts
        self._live, self._runs = parts.runs.live, parts.runs
        self._static = static_files.StaticFiles(settings.static)
        self.sockets: set[web.WebSocketResponse] = set()
        self.streams: set[EventStream] = set()

    def _check_space(self) -> None:
        """Return if one more may connect. Raises: TooManyRequests."""
        if len(self.sockets) + len(self.streams) >= PAGES_MAX:
            raise TooManyRequests(f"{PAGES_MAX} pages are connected already: close one")

    async def close(self) -> None:
        """End all event streams and sockets, which would not end by themselves."""
        for stream in list(self.streams):
            stream.end()
        for socket in list(self.sockets):
            await socket.close(code=1001, message=b"the server ends")

    def application(self) -> web.Application:
        """Return the application for aiohttp."""
        app = web.Application(middlewares=[self._answer], client_max_size=BODY_BYTES_MAX)
        get, post, put, delete = app.router.add_get, app.router.add_post, app.router.add_put, app.router.add_delete
        get("/", self._root, allow_head=True)
        get("/ui", self._root)
        get("/readyz", self._ready)
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
        get(f"{V1}/history", self._history)
        get(f"{V1}/trace/{{ns}}/{{pod}}", self._trace)
        get(f"{V1}/diff", self._diff)
        post(f"{V1}/break", self._break)
        get(f"{V1}/scenarios", self._scenarios)
        get(f"{V1}/jobs", self._jobs)
        post(f"{V1}/jobs", self._start_job)
        get(f"{V1}/jobs/{{id}}", self._job)
        get(f"{V1}/jobs/{{id}}/report", self._report)
        get(f"{V1}/jobs/{{id}}/result", self._result)
        delete(f"{V1}/jobs/{{id}}", self._cancel_job)
        get(f"{V1}/events", self._events)
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
                check_parameters(request)
            check_heads(request.headers)
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
            answer.headers.setdefault("Content-Security-Policy", policy(self._static.import_map_hashes))
        return answer

    # -- the page itself ---------------------------------------------------------------------------------

    async def _root(self, request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/ui/"})

    async def _ready(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

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
        if self._parts.objects is None:
            raise NotFound("there is no mesh: this server shows recordings")
        return self._parts.objects

    def _recording_name(self, request: web.Request) -> str:
        """Return the recording that is asked about; "" for the mesh."""
        name = request.query.get("run", "")
        return "" if name in ("", "live") and self._live is not None else name

    async def _meta(self, _: web.Request) -> web.Response:
        return json_response(
            {
                "version": self._settings.version,
                "flags": {"write": self._settings.may_write, "break": self._settings.may_break},
                "csrf": self._sessions.csrf,
                "runs": self._run_documents(),
                "switches": documents.switch_documents(),
                "pages": list(documents.PAGES),
                "palette": documents.palette(),
            }
        )

    def _run_documents(self) -> list[dict[str, Any]]:
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
                    "wall_s": live.wall_s,
                    "kind": "live",
                    "switches": list(live.place.access.switches),
                    "clock": {"zero_s": live.zero_s, "wall_s": live.wall_s, "is_virtual": False},
                    "recording_error": self._runs.failure,
                }
            )
        return [*runs, *self._runs.documents()]

    async def _mesh(self, request: web.Request) -> web.Response:
        if name := self._recording_name(request):
            run = await self._runs.of(name)
            return json_response(await run.ask(lambda recording: documents.mesh(recording.lines())))
        live = self._mesh_live
        await live.look(is_asked=True)
        alarms = self._parts.alarms
        return json_response({**live.mesh_document(), "alarms": alarms.document() if alarms is not None else None})

    async def _state(self, request: web.Request) -> web.Response:
        rv, name = version_of(request.query.get("rv", "")), self._recording_name(request)
        if not name and not rv:
            return web.Response(body=join_frames(self._mesh_live.whole()), content_type=BINARY)
        run = await self._runs.of(name, rv)
        head = self._mesh_live.model.rv if not name else 0

        def make_frames(recording: Recording) -> list[bytes]:
            newest = max(recording.rv_range[1], head)
            if rv > newest:
                raise BadRequest(f"rv: {rv} is newer than the newest version, {newest}")
            return list(recording.model_at(rv or newest).frames())

        return web.Response(body=join_frames(await run.ask(make_frames)), content_type=BINARY)

    # -- objects -----------------------------------------------------------------------------------------

    async def _kinds(self, request: web.Request) -> web.Response:
        if name := self._recording_name(request):
            run = await self._runs.of(name)
            return json_response({"kinds": await run.ask(documents.recorded_kinds)})
        return json_response({"kinds": await self._mesh_objects.kinds()})

    async def _rows(self, request: web.Request) -> web.Response:
        query = request.query
        namespace, words, after = query.get("ns", ""), query.get("q", ""), query.get("continue", "")
        rv, limit = version_of(query.get("rv", "")), limit_of(query.get("limit", ""))
        name, kind_name = self._recording_name(request), request.match_info["kind"]
        if not name:
            objects = self._mesh_objects
            kind = await objects.kind(kind_name)
            try:
                return json_response(await objects.rows(kind, namespace, words, rv, limit, after))
            except Expired:
                if not rv:
                    raise
        run = await self._runs.of(name, rv)
        return json_response(await run.ask(documents.rows, kind_name, namespace, words, rv, limit, after))

    async def _requested_object(self, request: web.Request) -> tuple[ServedKind, str, str]:
        """Return kind, namespace and name of a path; `-` is the namespace of what has none."""
        kind = await self._mesh_objects.kind(request.match_info["kind"])
        return kind, *where(request)

    async def _one(self, request: web.Request) -> web.Response:
        form, rv = request.query.get("as", "json"), version_of(request.query.get("rv", ""))
        if form not in ("json", "yaml"):
            raise BadRequest(f"as: want json or yaml, not {form[:40]!r}")
        document = await self._document(request, rv)
        if form == "yaml":
            return web.Response(text=as_yaml(document), content_type="application/yaml")
        return json_response(document)

    async def _document(self, request: web.Request, rv: int) -> dict[str, Any]:
        name = self._recording_name(request)
        if not name:
            try:
                return await self._mesh_objects.one(*await self._requested_object(request), rv)
            except Expired:
                if not rv:
                    raise
        run = await self._runs.of(name, rv)
        return await run.ask(documents.one, request.match_info["kind"], *where(request), rv)

    async def _versions(self, request: web.Request) -> web.Response:
        name = self._recording_name(request)
        if name:
            run = await self._runs.of(name)
            return json_response(await run.ask(documents.versions, request.match_info["kind"], *where(request)))
        kind_here, namespace, object_name = await self._requested_object(request)
        document = await self._mesh_objects.versions(kind_here, namespace, object_name)
        # What is older than the window the recording has, and before that the event log, without bodies.
        with contextlib.suppress(NotFound):
            run = await self._runs.of("")
            older = await run.ask(documents.versions, kind_here.title, namespace, object_name)
            known = {each["rv"] for each in document["items"]}
            document["items"] = sorted(
                (*document["items"], *(each for each in older["items"] if each["rv"] not in known)),
                key=lambda each: int(each["rv"]),
            )
        if not document["items"]:
            raise NotFound(f'{kind_here.title} "{object_name}" not found')
        return json_response(document)

    async def _update(self, request: web.Request) -> web.Response:
        self._check_write()
        kind, namespace, name = await self._requested_object(request)
        body, dry_run = await request.read(), is_dry(request)
        self._note("update", dry_run, kind=kind.title, namespace=namespace, name=name)
        return json_response(await self._mesh_objects.update(kind, namespace, name, body, dry_run=dry_run))

    async def _delete(self, request: web.Request) -> web.Response:
        self._check_write()
        kind, namespace, name = await self._requested_object(request)
        uid, dry_run = request.query.get("uid", ""), is_dry(request)
        self._note("delete", dry_run, kind=kind.title, namespace=namespace, name=name)
        return json_response(await self._mesh_objects.delete(kind, namespace, name, dry_run=dry_run, uid=uid))

    async def _apply(self, request: web.Request) -> web.Response:
        self._check_write()
        asked = read_apply(await request.read(), request.query.get("force", "") in ("true", "1"), is_dry(request))
        self._note("apply", asked.dry_run, bytes=len(asked.yaml), force=asked.force)
        found = await self._mesh_objects.apply(asked.yaml.encode(), force=asked.force, dry_run=asked.dry_run)
        return json_response(found)

    def _note(self, command: str, dry_run: bool = False, **data: Any) -> None:
        """Have a change be a line of the event log; one that is only tried is none."""
        if self._parts.commands is not None and not dry_run:
            self._parts.commands.write(command, **data)

    def _check_write(self) -> None:
        if not self._settings.may_write:
            raise Forbidden("this page only reads; start it with `keplab ui --allow-write` to change objects")

    # -- why ---------------------------------------------------------------------------------------------

    async def _explain(self, request: web.Request) -> web.Response:
        name, namespace, pod = self._recording_name(request), request.match_info["ns"], request.match_info["pod"]
        rv = version_of(request.query.get("rv", ""))
        if name or rv:
            run = await self._runs.of(name, rv)
            return json_response(await run.ask(documents.explain, namespace, pod, rv))
        live, explainers = self._mesh_live, self._parts.explainers
        assert explainers is not None
        return json_response(await explainers.pod(live.status["processes"], namespace, pod))

    async def _queue(self, request: web.Request) -> web.Response:
        name, rv = self._recording_name(request), version_of(request.query.get("rv", ""))
        if name or rv:
            run = await self._runs.of(name, rv)
            return json_response(await run.ask(documents.queue, rv))
        live, explainers = self._mesh_live, self._parts.explainers
        assert explainers is not None
        return json_response(await explainers.queue(live.status["processes"]))

    async def _history(self, request: web.Request) -> web.Response:
        if name := self._recording_name(request):
            run = await self._runs.of(name)
            return json_response(await run.ask(documents.history))
        recorder = self._runs.recorder
        return json_response(recorder.times.document() if recorder is not None else {"t": [], "rv": []})

    async def _trace(self, request: web.Request) -> web.Response:
        name, namespace, pod = self._recording_name(request), request.match_info["ns"], request.match_info["pod"]
        is_whole = request.query.get("whole", "") in ("true", "1")
        if name:
            run = await self._runs.of(name)
            document = await run.ask(
                lambda recording: documents.trace(recording.spans(), namespace, pod, whole=is_whole)
            )
        else:
            live, traces = self._mesh_live, self._parts.traces
            if traces is None or live.place.access.spans is None:
                raise NotFound("the spans of this mesh are not to be seen from here")
            document = await traces.trace(namespace, pod, whole=is_whole)
        otlp = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
        return json_response({**document, "otlp_endpoint": otlp})

    async def _diff(self, request: web.Request) -> web.Response:
        names = [request.query.get(side, "") for side in ("a", "b")]
        if not all(names):
            raise BadRequest("a, b: want the names of two runs")
        first, second = [await self._runs.of(name) for name in names]
        with_times = request.query.get("times", "") in ("true", "1")
        one, other = await first.decisions(), await second.decisions()
        document = await asyncio.to_thread(documents.difference, one, other, with_times=with_times)
        return json_response({"a": first.document(), "b": second.document(), **document})

    # -- faults and runs ---------------------------------------------------------------------------------

    async def _break(self, request: web.Request) -> web.Response:
        if not self._settings.may_break:
            raise Forbidden("this page breaks nothing; start it with `keplab ui --allow-break`")
        live = self._mesh_live
        body = await request.read()
        wanted, done = await perform(live.place, body)
        self._note(wanted.action, target=wanted.target, for_s=wanted.for_s, way=wanted.way)
        if wanted.action != "heal" and self._parts.alarms is not None:
            self._parts.alarms.follow_fault(wanted)
        await live.look()
        return json_response({"done": done, "at": round(live.now_s, 3), "faults": live.status.get("faults", [])})

    async def _scenarios(self, _: web.Request) -> web.Response:
        return json_response({"scenarios": await asyncio.to_thread(self._parts.jobs.scenarios)})

    async def _jobs(self, _: web.Request) -> web.Response:
        return json_response({"jobs": [job.document() for job in self._parts.jobs.jobs.values()]})

    async def _start_job(self, request: web.Request) -> web.Response:
        job = self._parts.jobs.start(await request.read())
        self._note("run", scenario=str(job.scenario))
        return json_response(job.document(), 201)

    async def _job(self, request: web.Request) -> web.Response:
        return json_response(self._parts.jobs.of(request.match_info["id"]).document())

    async def _cancel_job(self, request: web.Request) -> web.Response:
        return json_response(self._parts.jobs.cancel(request.match_info["id"]).document())

    async def _report(self, request: web.Request) -> web.Response:
        """Send the page of a comparison as a file to keep: it has scripts of its own, which do not run here."""
        job = self._parts.jobs.of(request.match_info["id"])
        try:
            body = job.report.read_bytes()
        except OSError:
            raise NotFound(f"{job.id} has no report yet") from None
        headers = {
            "Content-Security-Policy": REPORT_POLICY,
            "Content-Disposition": f'attachment; filename="{job.id}.html"',
        }
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)

    async def _result(self, request: web.Request) -> web.Response:
        job = self._parts.jobs.of(request.match_info["id"])
        body = job.result.read_bytes() if job.exit_code is not None and job.result.exists() else b""
        if not body:
            raise NotFound(f"{job.id} has no result{'' if job.exit_code is not None else ' yet'}")
        return json_response(await asyncio.to_thread(documents.comparison, body, job.id))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send event lines as server-sent events: those since a time of the wall, and then those that come."""
        live = self._mesh_live
        self._check_space()
        answer = web.StreamResponse(headers={**SECURITY_HEADERS, "Content-Type": "text/event-stream"})
        answer.headers["Content-Security-Policy"] = policy()
        await answer.prepare(request)
        since = request.headers.get("Last-Event-ID", "") or request.query.get("since", "")
        follower = EventStream()
        live.listeners[follower] = None
        self.streams.add(follower)
        try:
            follower.lines(live.ring.since(since))
            while (text := await follower.next()) is not None:
                await answer.write(text)
        except ConnectionError:
            pass
        finally:
            live.listeners.pop(follower, None)
            self.streams.discard(follower)
        return answer

    # -- the socket --------------------------------------------------------------------------------------

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        self._check_space()
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MESSAGE_BYTES_MAX, compress=False)
        socket.headers.update(SECURITY_HEADERS)
        await socket.prepare(request)
        self.sockets.add(socket)
        try:
            await Page(socket, self._runs).serve()
        finally:
            self.sockets.discard(socket)
        return socket


def where(request: web.Request) -> tuple[str, str]:
    """Return namespace and name in a path; `-` stands for no namespace."""
    namespace = request.match_info["ns"]
    return "" if namespace == "-" else namespace, request.match_info["name"]


def check_heads(headers: Mapping[str, str]) -> None:
    """Check that every header is UTF-8, so that it could be shown in an answer. Raises: BadRequest."""
    for name, value in headers.items():
        if encodable(value) != value:
            raise BadRequest(f"the header {name} is not UTF-8")


class ServerLog(logging.LoggerAdapter[logging.Logger]):
    """Log of the HTTP library. A request that is not HTTP is its client's fault and gets no traceback."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        """Log a failure, unless the client's request caused it."""
        if not isinstance(exc_info, HttpProcessingError | ConnectionError):
            _log.error("ui.connection_failed", exc_info=exc_info)


def check_parameters(request: web.Request) -> None:
    """Check that each parameter of a request is known and given once. Raises: BadRequest."""
    resource = request.match_info.route.resource
    if resource is None:
        return  # there is no such path
    known = PARAMETERS.get(resource.canonical.removeprefix(f"{V1}/"), "").split()
    for name in dict.fromkeys(request.query):
        if name not in known:
            raise BadRequest(f"{name[:40]}: is no parameter of this address; want {', '.join(known) or 'none'}")
        if len(request.query.getall(name)) > 1:
            raise BadRequest(f"{name}: is given {len(request.query.getall(name))} times, want once")


def is_dry(request: web.Request) -> bool:
    """Return whether the request is a dry run, which stores nothing. Raises: BadRequest."""
    text = request.query.get("dryRun", "")
    if text not in ("", "All"):
        raise BadRequest(f"dryRun: want All, not {text[:40]!r}")
    return bool(text)


def json_response(document: Any, code: int = 200) -> web.Response:
    """Return a document as a JSON response."""
    return web.Response(body=msgspec.json.encode(document), status=code, content_type="application/json")


def status_answer(error: ApiError) -> web.Response:
    """Return an error as a response with a Kubernetes Status."""
    return json_response(error.status(), error.code)


class ApplyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request of the page to apply objects."""

    yaml: str
    dry_run: bool = False
    force: bool = False


def read_apply(body: bytes, force: bool, dry_run: bool) -> ApplyRequest:
    """Return the apply request in a body: JSON of an `ApplyRequest`, or the YAML text itself. Raises: BadRequest."""
    try:
        return msgspec.json.decode(body, type=ApplyRequest)
    except UNREADABLE:
        pass
    try:
        return ApplyRequest(body.decode(), dry_run, force)
    except UnicodeDecodeError as error:
        raise BadRequest(f"body: {error}") from None
