"""`kubectl exec`, `attach` and `port-forward` on the kubelet's endpoint: SPDY streams to processes.

Only the API server may ask; it authenticates by its certificate. A request is answered as upstream's
container runtimes answer it. The program that runs is one of `runtime/commands`, and the listener is one of
`runtime/pages`. Source: upstream `staging/src/k8s.io/cri-streaming/pkg/streaming/remotecommand`,
`staging/src/k8s.io/cri-streaming/pkg/streaming/portforward`, `pkg/kubelet/server/server.go`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

import msgspec
import structlog

from kubelet.agent.host import Host
from kubelet.interaction import host_commands
from kubelet.interaction.keyboard import Input
from kubelet.interaction.kwok_streams import KwokStreams, forward, show_file
from kubelet.interaction.page_server import serve_pages
from kubelet.interaction.sessions import REMOTE_COMMAND, Session
from kubelet.node.definition import NodeDefinition
from kubelet.pod.container import Container
from kubelet.pod.logs import Run as LogRun
from kubelet.pod.pod import Pod
from kubelet.runtime import pages, projections
from kubelet.runtime.outcome import PATH
from kubelet.runtime.service_variables import MASTER_NAMESPACE, linked_services, service_variables
from kubelet.runtime.shell import image
from kubelet.runtime.shell.files import Directory, FileSystem
from kubelet.runtime.shell.interpreter import Context, Stdin, start
from kubelet.runtime.shell.programs import PROGRAMS
from kubelet.runtime.shell.running import Show, drive
from kubelet.runtime.shell.surroundings import surround
from kubelet.view import KubeletContainer, KubeletPod
from services.api.errors import ApiError, UnknownOutcome
from services.api.kinds.pod import RUN
from services.api.meta import Document, Key
from services.api.times import seconds_of
from services.api.wire import Request, Response
from services.client.client import Client
from services.runtime.health import HttpRequest, Takeover
from services.runtime.spdy.connection import UPGRADE, WRITE_BYTES_MAX, Connection, Stream

log = structlog.get_logger()

SESSIONS_MAX = 256
"""Connections of exec, attach and port-forward that one process serves at once."""
IDLE_S = 4 * 3600.0
"""Seconds that a session may last without a byte in either direction.

Source: upstream `streamingConnectionIdleTimeout`.
"""
CLOSE_WITHIN_S = 5.0
LOOK_S = 0.5
"""Seconds between two checks whether the container still runs."""
KILLED = 137
PORT_FORWARD: Final = ("portforward.k8s.io",)


@dataclass(eq=False)
class Console:
    """The main process of a container that reads standard input, and the clients attached to it."""

    input: Input = field(default_factory=Input)
    shows: list[Show] = field(default_factory=list)
    task: "asyncio.Task[int] | None" = None

    async def show(self, stream: int, data: bytes) -> None:
        """Send output to all attached clients; a client that is gone misses it."""
        for show in list(self.shows):
            try:
                await show(stream, data)
            except ConnectionError:
                with contextlib.suppress(ValueError):
                    self.shows.remove(show)


class StreamedNode(Protocol):
    """A node of this process, as its streams need it."""

    name: str
    is_off: bool
    host: Host
    definition: NodeDefinition

    @property
    def client(self) -> Client:
        """The node's client of the API server."""

    async def call(self, request: Request) -> Response | None:
        """Return the answer, or None when the outcome is unknown."""

    def machines(self) -> Iterable[Pod]:
        """Return the pods that are here."""

    def staged_pod(self, key: Key) -> KubeletPod | None:
        """Return the pod of that name if stages drive it, and None otherwise."""

    def run_of(self, namespace: str, name: str, container: str, *, previous: bool) -> LogRun | str | None:
        """Return the container run whose log is requested, or why there is none, or None when the pod is not here."""

    def process_ended(self, pod: Pod, container: str, code: int) -> None:
        """End a container because the process that clients were attached to has ended."""


class Run(NamedTuple):
    """One run of a container: the pod's uid, the container's name, and the number of restarts before it."""

    uid: str
    name: str
    restart: int


@dataclass
class Target:
    """A running container of a pod on a node."""

    agent: StreamedNode
    pod: Pod
    container: Container
    spec: KubeletContainer

    @property
    def run(self) -> Run:
        """The run of the container."""
        return Run(self.pod.key.uid, self.container.name, self.container.restarts)


@dataclass
class StagedTarget:
    """A container of a pod that stages drive; its only processes are those that clients run in it."""

    agent: StreamedNode
    pod: KubeletPod
    spec: KubeletContainer


class _Refused(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Streams:
    """The streams that one process's endpoint serves besides logs.

    `agents` returns the present nodes; `kwok`: the documents of KWOK's kinds about their pods.
    """

    def __init__(self, agents: Callable[[], Sequence[StreamedNode]], kwok: KwokStreams | None = None) -> None:
        self._agents = agents
        self._kwok = kwok or KwokStreams()
        self._sessions: set[asyncio.Task[None]] = set()
        self._files: dict[Run, FileSystem] = {}
        self._shared: dict[str, dict[str, Directory]] = {}
        self._consoles: dict[Run, Console] = {}

    def upgrades(self) -> list[tuple[str, Takeover]]:
        """Return the paths that are served by an upgraded connection, with their handlers."""
        routes: list[tuple[str, Callable[[HttpRequest, Connection, str], Awaitable[None]], tuple[str, ...]]] = [
            ("/exec/{namespace}/{pod}/{container}", self._exec, REMOTE_COMMAND),
            ("/attach/{namespace}/{pod}/{container}", self._attach, REMOTE_COMMAND),
            ("/portForward/{namespace}/{pod}", self._port_forward, PORT_FORWARD),
        ]
        return [(path, self._takeover(serve, protocols)) for path, serve, protocols in routes]

    @property
    def count(self) -> int:
        """The number of present sessions."""
        return len(self._sessions)

    def stop(self) -> None:
        """End all sessions and processes."""
        for task in (*self._sessions, *(c.task for c in self._consoles.values() if c.task is not None)):
            task.cancel()

    # --- the way in ---

    def _takeover(
        self, serve: Callable[[HttpRequest, Connection, str], Awaitable[None]], protocols: tuple[str, ...]
    ) -> Takeover:
        async def take(request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            asked = [each.strip() for each in request.headers.get("x-stream-protocol-version", "").split(",")]
            chosen = next((each for each in asked if each in protocols), None)
            if request.headers.get("upgrade", "").lower() != UPGRADE.lower():
                _answer(writer, 400, "unable to upgrade: want the protocol SPDY/3.1\n")
            elif chosen is None:
                accepted = "".join(f"X-Accepted-Stream-Protocol-Versions: {each}\r\n" for each in protocols)
                both = f"client supports [{' '.join(asked)}], server accepts [{' '.join(protocols)}]"
                _answer(writer, 403, f"unable to upgrade: unable to negotiate protocol: {both}\n", accepted)
            elif len(self._sessions) >= SESSIONS_MAX:
                _answer(writer, 429, f"{SESSIONS_MAX} streaming connections are open already\n")
            else:
                self._sessions.add(task)
                try:
                    await self._session(request, reader, writer, serve, chosen)
                finally:
                    self._sessions.discard(task)

        return take

    async def _session(
        self,
        request: HttpRequest,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        serve: Callable[[HttpRequest, Connection, str], Awaitable[None]],
        protocol: str,
    ) -> None:
        try:
            self._check(request)
        except _Refused as refused:
            _answer(writer, refused.code, refused.text)
            return
        writer.write(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n"
            f"X-Stream-Protocol-Version: {protocol}\r\n\r\n".encode()
        )
        writer.transport.set_write_buffer_limits(WRITE_BYTES_MAX)
        connection = Connection(reader, writer, is_client=False)
        reading = asyncio.create_task(connection.run())
        serving = asyncio.ensure_future(serve(request, connection, protocol))
        pinging = asyncio.create_task(connection.ping())
        try:
            async with asyncio.timeout(IDLE_S):
                # A client that is gone ends what it asked for.
                await asyncio.wait((reading, serving, pinging), return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    serving.result()
                    await asyncio.wait((reading,), timeout=CLOSE_WITHIN_S)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            connection.close()
            for task in (serving, reading, pinging):
                task.cancel()
            await asyncio.gather(serving, reading, pinging, return_exceptions=True)

    def _find(self, namespace: str, name: str) -> tuple[StreamedNode, Pod]:
        key = Key(namespace, name)
        for agent in self._agents():
            for pod in agent.machines():
                if pod.pod.metadata.key == key and not agent.is_off:
                    return agent, pod
        raise _Refused(404, f'pod "{name}" does not exist')

    def _check(self, request: HttpRequest) -> None:
        if (staged := self._find_staged_pod(request)) is not None:
            key = staged[1].metadata.key
            if "container" in request.params:
                self._staged_target(request, *staged)
            elif not self._kwok.forwards(key):
                text = "stages move the pod, and no PortForward is for it"
                raise _Refused(500, f"unable to do port forwarding: {text}")
            return
        agent, pod = self._find(request.params["namespace"], request.params["pod"])
        if "container" in request.params:
            self._target(request)
            flags = request.query
            if all(flags.get(name) not in ("1", "true") for name in ("input", "output", "error")):
                raise _Refused(400, "you must specify at least 1 of stdin, stdout, stderr")
        elif not any(c.is_running for c in pod.containers):
            raise _Refused(500, f"unable to do port forwarding: pod is not running, it is on node {agent.name}")

    def _find_staged_pod(self, request: HttpRequest) -> tuple[StreamedNode, KubeletPod] | None:
        """Return the pod that is asked for, and its node, if stages move it."""
        key = Key(request.params["namespace"], request.params["pod"])
        for agent in self._agents():
            if not agent.is_off and (pod := agent.staged_pod(key)) is not None:
                return agent, pod
        return None

    def _staged_target(self, request: HttpRequest, agent: StreamedNode, pod: KubeletPod) -> StagedTarget:
        name = request.params["container"]
        spec = next((c for c in (*pod.spec.containers, *pod.spec.init_containers) if c.name == name), None)
        if spec is None:
            raise _Refused(500, f'container not found ("{name}")')
        key, is_exec = pod.metadata.key, request.path.startswith("/exec/")
        if (self._kwok.exec_of(key, name) if is_exec else self._kwok.attached_file(key, name)) is None:
            what = "Exec" if is_exec else "Attach"
            raise _Refused(500, f'container not found ("{name}"): stages move the pod, and no {what} is for it')
        return StagedTarget(agent, pod, spec)

    def _any_target(self, request: HttpRequest) -> Target | StagedTarget:
        staged = self._find_staged_pod(request)
        return self._target(request) if staged is None else self._staged_target(request, *staged)

    def _target(self, request: HttpRequest) -> Target:
        agent, pod = self._find(request.params["namespace"], request.params["pod"])
        name = request.params["container"]
        container = next((c for c in pod.containers if c.name == name and c.is_running), None)
        spec = pod.pod.spec
        shown = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
        spec_container = next((c for c in shown if c.name == name), None)
        if container is None or spec_container is None:
            raise _Refused(500, f'container not found ("{name}")')
        return Target(agent, pod, container, spec_container)

    # --- exec and attach ---

    async def _exec(self, request: HttpRequest, connection: Connection, protocol: str) -> None:
        target = self._any_target(request)
        words = [value for name, value in request.words if name == "command"]
        entry = self._kwok.exec_of(Key(request.params["namespace"], request.params["pod"]), target.spec.name)
        session = await Session.begin(request, connection, protocol)
        if entry is not None and entry.local is not None and self._kwok.runs_on_host(entry):
            running = asyncio.create_task(host_commands.run(words, entry.local, session))
            try:
                code = await _while_running(target, running)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            await session.end(code, words)
            return
        context = await self._context_of(target, is_interactive=session.is_terminal)
        surround(context, entry.local if entry is not None else None)
        context.stdin = Stdin() if session.stdin is not None else Stdin(b"")
        keyboard = Input()
        typing = asyncio.create_task(session.type(keyboard))
        running = asyncio.create_task(drive(start(context, words), keyboard, session.show))
        try:
            code = await _while_running(target, running)
        finally:
            for task in (typing, running):
                task.cancel()
            await asyncio.gather(typing, running, return_exceptions=True)
        await session.end(code, words)

    async def _attach(self, request: HttpRequest, connection: Connection, protocol: str) -> None:
        target = self._any_target(request)
        path = self._kwok.attached_file(Key(request.params["namespace"], request.params["pod"]), target.spec.name)
        session = await Session.begin(request, connection, protocol)
        if path is not None or isinstance(target, StagedTarget):
            showing = asyncio.create_task(show_file(path or "", session))
            try:
                code = await _while_running(target, showing)
            finally:
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
            await session.end(code if code != KILLED else 0, ("attach",))
            return
        if target.spec.stdin and not _is_annotated(target):
            await self._attach_to_process(target, session)
        else:
            await self._attach_to_log(target, session)
        await session.end(0, ())

    async def _attach_to_process(self, target: Target, session: "Session") -> None:
        console = await self._console(target)
        assert console.task is not None
        console.shows.append(session.show)
        typing = asyncio.create_task(session.type(console.input, ends=target.spec.stdin_once))
        try:
            await asyncio.wait((console.task,))
        finally:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)
            if session.show in console.shows:
                console.shows.remove(session.show)
            if target.spec.stdin_once and not console.shows:
                console.input.end()

    async def _console(self, target: Target) -> Console:
        """Return the container's main process, started with the first attachment."""
        if (known := self._consoles.get(target.run)) is not None:
            return known
        console = self._consoles[target.run] = Console()
        context = await self._context(target, is_interactive=target.spec.tty)
        context.stdin = Stdin()
        words = list(target.spec.command + target.spec.args) or ["sh"]
        console.task = asyncio.create_task(self._main(target, console, context, words))
        return console

    async def _main(self, target: Target, console: Console, context: Context, words: list[str]) -> int:
        """Run a main process; the container ends with it."""
        running = asyncio.create_task(drive(start(context, words), console.input, console.show))
        try:
            code = await _while_running(target, running)
            if target.container.is_running:
                target.agent.process_ended(target.pod, target.container.name, code)
            return code
        finally:
            running.cancel()
            self._consoles.pop(target.run, None)

    async def _attach_to_log(self, target: Target, session: "Session") -> None:
        key = target.pod.pod.metadata.key
        restart, seen = target.container.restarts, None
        discarding = asyncio.create_task(session.discard())
        try:
            while True:
                run = target.agent.run_of(key.namespace, key.name, target.container.name, previous=False)
                if run is None or isinstance(run, str) or run.restart != restart:
                    return
                if seen is not None:
                    for line in run.lines:
                        if line.place > seen:
                            await session.show(1, line.text.encode() + b"\n")
                seen = max((line.place for line in run.lines), default=-1 if seen is None else seen)
                if run.is_over:
                    return
                await asyncio.sleep(LOOK_S)
        finally:
            discarding.cancel()

    # --- what a process sees ---

    async def _context_of(self, target: Target | StagedTarget, *, is_interactive: bool) -> Context:
        """Return what a process of a container sees; one of a pod that stages move sees little."""
        if isinstance(target, Target):
            return await self._context(target, is_interactive=is_interactive)
        name = target.pod.metadata.name
        environment = {"PATH": PATH, "HOME": "/root", "HOSTNAME": name}
        wall = target.agent.host.clock.wall
        return Context(environment, image.image(), PROGRAMS, wall, hostname=name, is_interactive=is_interactive)

    async def _context(self, target: Target, *, is_interactive: bool) -> Context:
        agent = target.agent
        pod, container, objects = await self._read(target)
        allocatable = {name: str(value) for name, value in agent.definition.allocatable().items()}
        files = self._file_system(target)
        wall_s = agent.host.clock.wall()
        shared = self._shared.setdefault(target.pod.key.uid, {})
        image.fill(files, pod, container, objects, allocatable, shared, wall_s)
        security = {
            **((pod.get("spec") or {}).get("securityContext") or {}),
            **(container.get("securityContext") or {}),
        }
        cwd = str(container.get("workingDir") or "/")
        if not files.exists(cwd):
            files.make_directory(cwd, with_parents=True)
        services = service_variables(await self._services(target, pod))
        environment = projections.environment(pod, container, objects, allocatable, services)
        return Context(
            environment,
            files,
            PROGRAMS,
            agent.host.clock.wall,
            cwd=cwd,
            hostname=environment["HOSTNAME"],
            user=(int(security.get("runAsUser") or 0), int(security.get("runAsGroup") or 0)),
            is_interactive=is_interactive,
        )

    def _file_system(self, target: Target) -> FileSystem:
        """Return the container's files; those of runs that are over are forgotten."""
        pods = [pod for agent in self._agents() for pod in agent.machines()]
        live = {Run(pod.key.uid, c.name, c.restarts) for pod in pods for c in pod.containers if c.is_running}
        for run in [run for run in self._files if run not in live]:
            del self._files[run]
        for uid in self._shared.keys() - {pod.key.uid for pod in pods}:
            del self._shared[uid]
        if (known := self._files.get(target.run)) is None:
            known = self._files[target.run] = image.image()
            others = [files for run, files in self._files.items() if run.uid == target.run.uid]
            known.quota = others[0].quota
        return known

    async def _read(self, target: Target) -> tuple[Document, Document, projections.Objects]:
        """Return the pod and the container as written, and the objects that they name."""
        agent, key = target.agent, target.pod.pod.metadata.key
        pod: Document = {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": {}}
        with contextlib.suppress(ApiError, UnknownOutcome, AssertionError):
            pod = await agent.client.get("pods", key)
        spec = pod.get("spec") or {}
        kinds = ("containers", "initContainers", "ephemeralContainers")
        container: Document = next(
            (c for kind in kinds for c in spec.get(kind) or () if c.get("name") == target.container.name), {}
        )
        objects: dict[tuple[str, str], Document] = {}
        for resource, name in projections.references(pod, container):
            with contextlib.suppress(ApiError, UnknownOutcome, AssertionError):
                if resource == projections.TOKENS:
                    objects[resource, name] = await _token(agent, pod, name)
                else:
                    objects[resource, name] = await agent.client.get(resource, Key(key.namespace, name))
        return pod, container, objects

    async def _services(self, target: Target, pod: Document) -> list[Document]:
        """Return the services that there were when the container started, of those it learns of."""
        agent, namespace = target.agent, target.pod.pod.metadata.key.namespace
        has_links = (pod.get("spec") or {}).get("enableServiceLinks") is not False
        services: list[Document] = []
        for service_namespace in dict.fromkeys((MASTER_NAMESPACE, *([namespace] if has_links else []))):
            with contextlib.suppress(ApiError, UnknownOutcome, AssertionError):
                services += (await agent.client.list("services", namespace=service_namespace))[0]
        clock = agent.host.clock
        started_s = clock.wall() - (clock.now() - target.container.started_s)
        known = [each for each in services if seconds_of(each["metadata"].get("creationTimestamp")) <= started_s]
        return linked_services(known, namespace, has_links=has_links)

    # --- port-forward ---

    async def _port_forward(self, request: HttpRequest, connection: Connection, _: str) -> None:
        halves: dict[str, dict[str, Stream]] = {}
        async with asyncio.TaskGroup() as group:
            async for stream in connection.accept():
                number = stream.headers.get("requestid", str(stream.number - 2 * (stream.kind == "data")))
                pair = halves.setdefault(number, {})
                pair[stream.kind] = stream
                if {"error", "data"} <= pair.keys():
                    del halves[number]
                    group.create_task(self._forward(request, pair["data"], pair["error"]))

    async def _forward(self, request: HttpRequest, data: Stream, error: Stream) -> None:
        port = data.headers.get("port", "")
        key = Key(request.params["namespace"], request.params["pod"])
        number = int(port) if port.isascii() and port.isdigit() else 0
        with contextlib.suppress(ConnectionError, _Refused, ApiError, UnknownOutcome):
            if (entry := self._kwok.forward_of(key, number)) is not None:
                await forward(entry, data, error)
            elif self._find_staged_pod(request) is not None:
                await error.write(f"no forward found for port {number} in pod {str(key)!r}".encode())
            else:
                await self._serve_port(key, port, number, data, error)
        with contextlib.suppress(ConnectionError):
            await data.finish()
            await error.finish()

    async def _serve_port(self, key: Key, port: str, number: int, data: Stream, error: Stream) -> None:
        """Have the container that declares a port answer on it. Raises: _Refused, ApiError, ConnectionError."""
        agent, pod = self._find(key.namespace, key.name)
        document = await agent.client.get("pods", pod.pod.metadata.key)
        name = pages.container_on(document, number)
        if name is None or not any(c.name == name and c.is_running for c in pod.containers):
            await error.write(_refused_port(port, pod.key.uid).encode())
        else:
            await serve_pages(data, partial(pages.page, document, name, number))


def _answer(writer: asyncio.StreamWriter, code: int, text: str, headers: str = "") -> None:
    body = text.encode()
    writer.write(
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n{headers}"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )


def _refused_port(port: str, uid: str) -> str:
    """Return what containerd reports of a port that no process listens on."""
    where = f"/var/run/netns/cni-{uid}"
    return (
        f"error forwarding port {port} to pod {uid}, uid : failed to execute portforward in network namespace "
        f'"{where}": failed to connect to localhost:{port} inside namespace "{where}", IPv4: dial tcp4 '
        f"127.0.0.1:{port}: connect: connection refused IPv6 dial tcp6: address localhost: no suitable address found "
    )


def _is_annotated(target: Target) -> bool:
    annotations = target.pod.pod.metadata.annotations
    own = f"{RUN}.{target.container.name}"
    return own in annotations or (target.container.kind == "main" and RUN in annotations)


async def _while_running(target: Target | StagedTarget, work: "asyncio.Task[int]") -> int:
    """Return the exit code of a process; that of SIGKILL when its container ends before."""
    run = target.run if isinstance(target, Target) else None
    while not work.done():
        if target.agent.is_off or not _is_there(target, run):
            return KILLED
        await asyncio.wait((work,), timeout=LOOK_S)
    return work.result()


def _is_there(target: Target | StagedTarget, run: Run | None) -> bool:
    if isinstance(target, Target):
        return target.container.is_running and target.run == run
    here = target.agent.staged_pod(target.pod.metadata.key)
    return here is not None and here.metadata.uid == target.pod.metadata.uid and not here.is_terminal


async def _token(agent: StreamedNode, pod: Document, audience: str) -> Document:
    meta, spec = pod["metadata"], pod.get("spec") or {}
    bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta.get("uid", "")}
    asked: Document = {"audiences": [audience] if audience else [], "expirationSeconds": 3607, "boundObjectRef": bound}
    body: Document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": asked}
    response = await agent.call(
        Request(
            verb="create",
            resource="serviceaccounts",
            namespace=meta["namespace"],
            name=str(spec.get("serviceAccountName") or "default"),
            subresource="token",
            body=msgspec.json.encode(body),
        )
    )
    if response is None:
        raise UnknownOutcome("no answer")
    token: Document = msgspec.json.decode(response.unwrap().body)
    return token
