"""kube-scheduler-simulator's API over HTTP: its paths, its status codes, and its access control.

Source: simulator 3; kubernetes-sigs/kube-scheduler-simulator, `simulator/server/server.go`,
`simulator/server/handler`.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from lab.exchange.stream import Refused
from lab.simulator import watching
from lab.simulator.config import SimulatorApiConfig
from lab.simulator.extender_proxy import ExtenderProxy, NoSuchExtender
from lab.simulator.resources import Failed, Resources
from lab.simulator.schedulerconfig import Invalid, NotRestarted, SchedulerConfiguration
from scheduler.preemption.candidates import ExtenderError
from services.api.errors import UNREADABLE, ApiError, UnknownOutcome
from services.api.wire import Api
from services.runtime.config import StartError
from services.runtime.web import LOOPBACK_NAMES, is_allowed_host

BODY_MAX: Final = 256 << 20
EXTERNAL: Final = "When using an external scheduler, you cannot see and edit the scheduler configuration."
VERBS: Final = ("filter", "prioritize", "preempt", "bind")
METHODS: Final = "GET,HEAD,PUT,PATCH,POST,DELETE"
log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def token_in(path: Path) -> str:
    """Return the token from a process's file. Raises: StartError."""
    try:
        return next(iter(msgspec.json.decode(path.read_bytes(), type=dict[str, str]).values()))
    except (OSError, StopIteration, *UNREADABLE) as error:
        raise StartError(f"--token-file {path}: {error}") from None


class SimulatorApi:
    """The component. `token`: the token that callers must present, empty for none. `beside`: tasks that run
    while it serves.
    """

    def __init__(
        self,
        config: SimulatorApiConfig,
        api: Api,
        configuration: SchedulerConfiguration | None,
        resources: Resources,
        proxy: ExtenderProxy,
        token: str,
        beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self._config, self._api, self._configuration = config, api, configuration
        self._resources, self._proxy, self._token, self._beside = resources, proxy, token, beside
        self._changing = asyncio.Lock()
        self._port = 0
        self._asked = 0

    @property
    def is_ready(self) -> bool:
        """Whether the server listens."""
        return self._port > 0

    def ports(self) -> dict[str, int]:
        """Return the port on which the server listens, as `http`."""
        return {"http": self._port}

    def metrics(self) -> Mapping[str, float]:
        """Return the number of requests."""
        return {"keplab_simulator_requests_total": float(self._asked)}

    def app(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_MAX)
        base = "/api/v1"
        app.router.add_get(f"{base}/schedulerconfiguration", self._get_configuration)
        app.router.add_post(f"{base}/schedulerconfiguration", self._post_configuration)
        app.router.add_put(f"{base}/reset", self._reset)
        app.router.add_get(f"{base}/export", self._export)
        app.router.add_post(f"{base}/import", self._import)
        app.router.add_get(f"{base}/listwatchresources", self._watch)
        app.router.add_post(f"{base}/extender/{{verb}}/{{id}}", self._extender)
        return app

    async def run(self) -> None:
        """Serve until cancelled. Raises: StartError: the port is taken."""
        while True:
            try:
                await self._resources.remember_start()
                break
            except (ApiError, UnknownOutcome) as error:
                log.warning("start.not_remembered", reason=str(error))
                await asyncio.sleep(1.0)
        runner = web.AppRunner(self.app(), access_log=None, handle_signals=False)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._config.host, self._config.port)
            try:
                await site.start()
            except OSError as error:
                where = f"{self._config.host}:{self._config.port}"
                raise StartError(f"simulator API: {where}: {error.strerror or error}") from None
            self._port = runner.addresses[0][1]
            async with asyncio.TaskGroup() as group:
                for work in self._beside:
                    group.create_task(work())
                await asyncio.Event().wait()
        finally:
            await runner.cleanup()
            await self._proxy.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in whom it is for, and answer what goes wrong in one line."""
        self._asked += 1
        headers = self._cors(request)
        local = (request.transport.get_extra_info("sockname") or ("",))[0] if request.transport is not None else ""
        if not is_allowed_host(request.host, (*LOOPBACK_NAMES, *self._config.allowed_hosts), local):
            return _problem(403, f"host {request.host} is not this server's", {})
        origin = request.headers.get("Origin", "")
        if request.method == "OPTIONS" and headers:
            asked = request.headers.get("Access-Control-Request-Headers", "")
            return web.Response(
                status=204,
                headers={
                    **headers,
                    "Access-Control-Allow-Methods": METHODS,
                    **({"Access-Control-Allow-Headers": asked} if asked else {}),
                },
            )
        if origin and not headers and request.method not in ("GET", "HEAD"):
            return _problem(403, f"origin {origin} is none of corsAllowedOriginList", {})
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        is_bearer = scheme.lower() == "bearer"
        if self._token and not (is_bearer and hmac.compare_digest(given.strip().encode(), self._token.encode())):
            text = "want the bearer token of the mesh's kubeconfig, or `keplab up --simulator-open`"
            return _problem(401, text, {**headers, "WWW-Authenticate": "Bearer"})
        if request.method == "POST" and request.content_type != "application/json":
            return _problem(415, f"Content-Type {request.content_type}: want application/json", headers)
        request["headers"] = headers
        try:
            answer = await handler(request)
        except web.HTTPException as error:
            allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return _problem(error.status, error.reason, {**headers, **allowed})
        except (Refused, Invalid, NoSuchExtender, ValueError) as error:
            return _problem(404 if isinstance(error, NoSuchExtender) else 400, str(error), headers)
        except (Failed, NotRestarted, ApiError, ExtenderError) as error:
            return _problem(500, getattr(error, "message", "") or str(error), headers)
        except UnknownOutcome as error:
            return _problem(500, f"the API server does not answer: {error}", headers)
        if not answer.prepared:
            answer.headers.update(headers)
        return answer

    def _cors(self, request: web.Request) -> dict[str, str]:
        origin = request.headers.get("Origin", "")
        if not origin or not {origin, "*"} & set(self._config.cors_origin):
            return {}
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Credentials": "true", "Vary": "Origin"}

    async def _get_configuration(self, request: web.Request) -> web.Response:
        if self._configuration is None:
            return _json(EXTERNAL, 400)
        return _json(self._configuration.in_force())

    async def _post_configuration(self, request: web.Request) -> web.Response:
        if self._configuration is None:
            return _json(EXTERNAL, 400)
        posted = await _body(request)
        async with self._changing, self._configuration.lock:
            await self._configuration.apply(posted)
        return web.Response(status=202)

    async def _reset(self, request: web.Request) -> web.Response:
        async with self._changing:
            await self._resources.reset()
        return web.Response(status=202)

    async def _export(self, request: web.Request) -> web.Response:
        all_kinds = request.query.get("allKinds", "") in ("1", "true")
        return web.Response(body=await self._resources.export(all_kinds=all_kinds), content_type="application/json")

    async def _import(self, request: web.Request) -> web.Response:
        body = await request.read()
        async with self._changing:
            await self._resources.load(body)
        return web.Response(status=200)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = watching.versions(request.query)
        answer = web.StreamResponse(headers={"Content-Type": "application/json", **request["headers"]})
        await answer.prepare(request)
        try:
            await watching.relay(self._api, since, answer.write)
        except* ConnectionError:
            log.debug("watch.ended")  # the reader has gone
        return answer

    async def _extender(self, request: web.Request) -> web.Response:
        verb, number = request.match_info["verb"], request.match_info["id"]
        if verb not in VERBS:
            raise web.HTTPNotFound
        if not (number.isascii() and number.isdigit()):
            raise ValueError(f"extender {number!r}: want its number in the configuration")
        traceparent = request.headers.get("traceparent", "")
        answer = await self._proxy.ask(verb, int(number), await request.read(), traceparent)
        return web.Response(body=answer, content_type="application/json")


async def _body(request: web.Request) -> Any:
    try:
        return msgspec.json.decode(await request.read())
    except UNREADABLE as error:
        raise ValueError(f"the document is no JSON: {error}") from None


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json")


def _problem(status: int, message: str, headers: dict[str, str]) -> web.Response:
    body = msgspec.json.encode({"message": message}) + b"\n"
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
