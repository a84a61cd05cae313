"""`pods/exec`, `attach`, `portforward` and `proxy`, `services/proxy`, `nodes/proxy`: connections to a
container.

The kubelet speaks SPDY, as upstream's does. The connection of a SPDY client is passed through. The messages of
a WebSocket client are translated (v5, v4, …, base64 forms of them), or for a port-forward, as SPDY in WebSocket
messages, carried over. The caller needs the verb `create`, whatever the method: running a command is no read.
Source: upstream `pkg/registry/core/pod/rest/subresources.go`, `staging/src/k8s.io/apiserver/pkg/util/proxy`,
KEP-4006.
"""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
import structlog
from aiohttp import web

from apiserver_fake.rest.connections import Query, ports_of
from apiserver_fake.rest.parameters import is_set
from apiserver_fake.rest.pod_streams import container_of, document_of, kubelet_address
from services.api.errors import UNREADABLE, ApiError, BadRequest, NotFound, TooManyRequests, Unavailable
from services.api.meta import Document
from services.api.wire import Api, Request
from services.client.tls import Material, Newer, TlsError, TlsFiles
from services.runtime.config import EXIT_CONFIG, StartError
from services.runtime.spdy.connection import (
    CLOSE_WITHIN_S,
    PING_S,
    UPGRADE,
    WRITE_BYTES_MAX,
    Connection,
    Stream,
    Upgraded,
    close,
    dial,
)

STREAMED: Final = ("exec", "attach", "portforward")
SESSIONS_MAX = 512
"""Most streaming connections that one server serves at once."""
DIAL_MAX_S = 10.0
MESSAGE_BYTES_MAX = 1 << 24
CHUNK_BYTES = 32 << 10
PROXY_MAX_S = 30.0
PROXY_BYTES_MAX = 8 << 20
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_CHANNELS = {STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", ERROR: "error", RESIZE: "resize"}
TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
V5: Final = "v5.channel.k8s.io"
WEB_SOCKETS: Final = (V5, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io")
_HOP_HEADERS = frozenset(
    ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "authorization")
)

log = structlog.get_logger()


class Kubelets:
    """Client for calls of kubelets: over TLS with the server's own certificate, or plain if none is configured."""

    def __init__(
        self, session: aiohttp.ClientSession, tls: "KubeletTls | None" = None, token: Callable[[], str] = str
    ) -> None:
        """Use this session. `token`: returns the bearer token for kubelets, used without a certificate."""
        self.session, self._tls, self._token = session, tls, token
        self.scheme = "https" if tls is not None else "http"
        self.count = 0

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The current TLS context of connections; None without TLS."""
        return self._tls.context if self._tls is not None else None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that authenticate the API server."""
        token = "" if self._tls is not None else self._token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def dial(self, node: Document, path: str, protocols: list[str]) -> Upgraded:
        """Open a SPDY connection to a node's kubelet. Raises: Unavailable when it does not answer."""
        host, _, port = kubelet_address(node).rpartition(":")
        try:
            return await dial(
                host.strip("[]"),
                int(port),
                path,
                protocols=protocols,
                tls=self.tls,
                timeout_s=DIAL_MAX_S,
                headers=self.headers,
            )
        except (OSError, TimeoutError) as error:
            name = node["metadata"].get("name", "")
            raise Unavailable(
                f'the kubelet of node "{name}" at {host}:{port} does not answer: {type(error).__name__}'
            ) from error


class KubeletTls:
    """TLS settings of calls of kubelets; `context` is rebuilt when the files have changed."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. Raises: TlsError."""
        self._files = files
        self._newer = Newer(files)
        self._context = self._make_context(files.read())

    def _make_context(self, material: Material) -> ssl.SSLContext:
        authorities = material.authorities.decode() if material.authorities else None
        # This machine's authorities sign no kubelets, so they are not even read.
        context = (
            ssl.create_default_context(cadata=authorities) if authorities else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        # Kubelets are known by their addresses, which no certificate names: the authority vouches for them.
        context.check_hostname = False
        context.load_cert_chain(self._files.certificate, self._files.key)
        if authorities is None:
            context.verify_mode = ssl.CERT_NONE
        return context

    @property
    def context(self) -> ssl.SSLContext:
        """The current TLS context. Invalid new files are logged, and the previous context stays."""
        try:
            if (material := self._newer.read()) is not None:
                self._context = self._make_context(material)
        except (TlsError, OSError, ssl.SSLError) as error:
            log.error("client.certificate_not_reloaded", error=str(error))
        return self._context


def kubelet_tls(certificate: str, key: str, authority: str) -> KubeletTls | None:
    """Return the TLS settings of calls of kubelets; None without a certificate. Raises: StartError."""
    if not certificate:
        return None
    try:
        return KubeletTls(TlsFiles(Path(certificate), Path(key), Path(authority) if authority else None))
    except (TlsError, OSError, ssl.SSLError) as error:
        raise StartError(f"--kubelet-client-certificate: {error}", EXIT_CONFIG) from None


# --- where to ---


async def _host(pod: Document, itself: Api) -> Document:
    """Return the Node of a pod. Raises: BadRequest without one; NotFound for one that does not exist."""
    name = str((pod.get("spec") or {}).get("nodeName") or "")
    if not name:
        raise BadRequest(f"pod {pod['metadata'].get('name')} does not have a host assigned")
    return await document_of(itself, "nodes", name)


def _path(pod: Document, stream: str, query: Query) -> str:
    """Return the kubelet's path for what was asked. Raises: BadRequest."""
    meta = pod["metadata"]
    if stream == "portforward":
        words = [("port", str(port)) for port in ports_of(query)]
        return "/portForward/" + "/".join(quote(meta[k], safe="") for k in ("namespace", "name")) + _query(words)
    container = container_of(pod, query.get("container", ""))
    flags = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
    words = [(kubelet, "1") for name, kubelet in flags.items() if is_set(query, name)]
    if stream == "exec":
        words += [("command", word) for word in query.getall("command", [])]
    parts = (meta["namespace"], meta["name"], container)
    return f"/{stream}/" + "/".join(quote(part, safe="") for part in parts) + _query(words)


def _query(words: list[tuple[str, str]]) -> str:
    return f"?{urlencode(words)}" if words else ""


def stream_target(group: str, version: str, rest: list[str]) -> tuple[str, str, str, str]:
    """Return resource, namespace, name and connection kind for the path segments after the group version.

    The kind is one of STREAMED or `proxy`; all four are "" for any other path.
    """
    match group, version, rest:
        case "", "v1", ["namespaces", str(namespace), "pods", str(name), str(kind)] if kind in STREAMED:
            return "pods", namespace, name, kind
        case "", "v1", ["namespaces", str(namespace), "pods" | "services" as resource, str(name), "proxy", *_]:
            return str(resource), namespace, name, "proxy"
        case "", "v1", ["nodes", str(name), "proxy", *_]:
            return "nodes", "", name, "proxy"
    return "", "", "", ""


_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def right(request: web.BaseRequest, resource: str, namespace: str, name: str, kind: str) -> Request:
    """Return the request that the caller must be authorized for: `create` for a stream, the method's verb for a
    proxy.
    """
    verb = "create" if kind in STREAMED else _VERBS.get(request.method, "get")
    bare = name if kind in STREAMED else _split_name(name)[0]
    return Request(verb=verb, resource=resource, namespace=namespace, name=bare, subresource=kind)


@dataclass(frozen=True)
class Target:
    """The target of a connection after admission: the result of `stream_target`, a stream's query, and a proxy's
    path.
    """

    resource: str
    namespace: str
    name: str
    kind: str
    query: Query
    path: str = ""


def path_behind(request: web.BaseRequest, resource: str) -> str:
    """Return the encoded path after `proxy` in a request's path, with its slash; "" for any other request."""
    parts = request.rel_url.raw_path.split("/")
    behind = parts[(5 if resource == "nodes" else 7) + 1 :]
    return "/" + "/".join(behind) if behind else ""


async def serve(request: web.BaseRequest, target: Target, itself: Api, kubelets: Kubelets) -> web.StreamResponse:
    """Serve an authorized stream or proxy request (see `stream_target`). Raises: ApiError; ConnectionError after
    an upgrade.
    """
    if target.kind == "proxy":
        resource, namespace, name = target.resource, target.namespace, target.name
        return await proxy(request, resource, namespace, name, target.path, itself, kubelets)
    return await stream(request, target, itself, kubelets)


async def stream(request: web.BaseRequest, target: Target, itself: Api, kubelets: Kubelets) -> web.StreamResponse:
    """Serve one exec, attach or port-forward until it ends. The caller must be authorized before.

    Raises: ApiError if the stream cannot be opened; ConnectionError once the connection is upgraded and over.
    """
    kind, query = target.kind, target.query
    pod = await document_of(itself, "pods", target.name, target.namespace)
    is_web_socket = request.headers.get("Upgrade", "").lower() == "websocket"
    path = _path(pod, kind, query)
    node = await _host(pod, itself)
    if request.headers.get("Upgrade", "").lower() != UPGRADE.lower() and not is_web_socket:
        raise BadRequest("Upgrade request required")
    if kind == "exec" and "command" not in query:
        raise BadRequest("you must specify at least one command for the container")
    if kubelets.count >= SESSIONS_MAX:
        raise TooManyRequests(f"{SESSIONS_MAX} streaming connections are open already")
    kubelets.count += 1
    try:
        if not is_web_socket:
            return await _spdy(request, node, path, kubelets)
        offered = [
            each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if each.strip()
        ]
        if kind == "portforward":
            return await _web_port_forward(request, query, node, path, offered, kubelets)
        return await _web_command(request, query, node, path, offered, kubelets)
    finally:
        kubelets.count -= 1


def _refusal(answer: Upgraded) -> web.Response:
    """Return a kubelet's refusal as it came."""
    close(answer.writer)
    headers = {"Content-Type": answer.headers.get("content-type", "text/plain; charset=utf-8")}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


# --- SPDY, connected through ---


class _Raw(asyncio.StreamReaderProtocol):
    """An HTTP connection taken over as raw bytes; its HTTP server is notified of its end."""

    def __init__(self, reader: asyncio.StreamReader, former: Any) -> None:
        super().__init__(reader)
        self._former = former

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._former.connection_lost(exc)


def _transport_of(request: web.BaseRequest) -> asyncio.Transport:
    """Return the client's connection. Raises: ConnectionError when it is gone."""
    if request.transport is None:
        raise ConnectionResetError("the client is gone")
    return request.transport


def _take_over(request: web.BaseRequest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    transport: Any = _transport_of(request)
    transport.set_write_buffer_limits(WRITE_BYTES_MAX)
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    protocol = _Raw(reader, request.protocol)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


async def _spdy(request: web.BaseRequest, node: Document, path: str, kubelets: Kubelets) -> web.StreamResponse:
    protocols = [p.strip() for each in request.headers.getall("X-Stream-Protocol-Version", []) for p in each.split(",")]
    answer = await kubelets.dial(node, path, protocols)
    if answer.status != 101:
        return _refusal(answer)
    try:
        reader, writer = _take_over(request)
        try:
            chosen = answer.headers.get("x-stream-protocol-version", "")
            writer.write(
                f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n"
                f"X-Stream-Protocol-Version: {chosen}\r\n\r\n".encode("latin-1")
            )
            await _first_of(_copy(reader, answer.writer), _copy(answer.reader, writer))
        finally:
            close(writer)
    finally:
        close(answer.writer)
    raise ConnectionResetError("the streams are over")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Return when one of them is over, however, and end the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, ConnectionError | ssl.SSLError | TimeoutError):
                raise result


# --- WebSockets, translated ---


@contextlib.asynccontextmanager
async def _web_socket(request: web.BaseRequest, protocol: str) -> AsyncIterator[web.WebSocketResponse]:
    socket = web.WebSocketResponse(
        protocols=(protocol,) if protocol else (), max_msg_size=MESSAGE_BYTES_MAX, compress=False, timeout=2.0
    )
    await socket.prepare(request)
    transport = _transport_of(request)
    transport.set_write_buffer_limits(WRITE_BYTES_MAX)
    try:
        yield socket
    finally:
        # A client that does not read takes no farewell either.
        closing = asyncio.ensure_future(socket.close())
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((closing,), timeout=CLOSE_WITHIN_S)
        if not closing.done():
            transport.abort()
            closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)


@contextlib.asynccontextmanager
async def _open_connection(answer: Upgraded) -> AsyncIterator[Connection]:
    """Yield the client's side of a kubelet's connection, and close it."""
    connection = Connection(answer.reader, answer.writer, is_client=True)
    running = asyncio.create_task(connection.run())
    try:
        yield connection
    finally:
        connection.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class _Channels:
    """A WebSocket whose messages begin with a channel number."""

    def __init__(self, socket: web.WebSocketResponse, protocol: str) -> None:
        self._socket, self._is_text = socket, "base64" in protocol

    async def send(self, channel: int, data: bytes) -> None:
        """Send to a channel. Raises: ConnectionError."""
        if self._socket.closed:
            raise ConnectionResetError("the client is gone")
        if self._is_text:
            await self._socket.send_str(str(channel) + base64.b64encode(data).decode())
        else:
            await self._socket.send_bytes(bytes([channel]) + data)

    async def ping(self) -> None:
        """Ping the client again and again (see PING_S). Raises: ConnectionError when it is gone."""
        await _ping(self._socket)

    async def messages(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield (channel, data) until the client is gone; what is no message of that form is left out."""
        async for message in self._socket:
            if message.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT) or not message.data:
                continue
            # What the protocol says decides, not the kind of the message: some clients send text as text.
            data: bytes = message.data.encode() if isinstance(message.data, str) else message.data
            if not self._is_text:
                yield data[0], data[1:]
                continue
            with contextlib.suppress(ValueError):
                yield int(data[:1]), base64.b64decode(data[1:], validate=True)

    async def pour(self, stream: Stream, channel: int) -> None:
        """Send what comes on a stream, until it ends. Raises: ConnectionError."""
        while data := await stream.read():
            await self.send(channel, data)


def _no_protocol(offered: Sequence[str], served: Sequence[str]) -> BadRequest:
    """Return the refusal of a WebSocket whose protocols are none of those that are served.

    Source: upstream `staging/src/k8s.io/apimachinery/pkg/util/httpstream/wsstream/conn.go`.
    """
    return BadRequest(f"requested protocol(s) are not supported: [{' '.join(offered)}]; supports [{' '.join(served)}]")


async def _web_command(
    request: web.BaseRequest, asked: Query, node: Document, path: str, offered: list[str], kubelets: Kubelets
) -> web.StreamResponse:
    protocol = next((each for each in offered if each in WEB_SOCKETS), "")
    if offered and not protocol:
        raise _no_protocol(offered, WEB_SOCKETS)
    flags = {name for name in ("stdin", "stdout", "stderr", "tty") if is_set(asked, name)}
    wanted = [ERROR, *(channel for channel in (STDIN, STDOUT, STDERR) if _CHANNELS[channel] in flags)]
    if "tty" in flags:
        wanted = [channel for channel in wanted if channel != STDERR] + [RESIZE]
    remote = "v4.channel.k8s.io" if protocol.startswith("v") else "channel.k8s.io"
    answer = await kubelets.dial(node, path, [remote])
    if answer.status != 101 and protocol != V5:
        return _refusal(answer)
    async with _web_socket(request, protocol) as socket:
        channels = _Channels(socket, protocol)
        if answer.status != 101:
            close(answer.writer)
            why = f"unable to upgrade connection: {answer.body.decode('utf-8', 'replace').strip()}"
            with contextlib.suppress(ConnectionError):
                await channels.send(ERROR, _internal_error(why))
            return socket
        async with _open_connection(answer) as connection:
            with contextlib.suppress(ConnectionError):
                streams = {channel: await connection.open({"streamType": _CHANNELS[channel]}) for channel in wanted}
                await channels.send(next(c for c in (STDOUT, STDERR, ERROR) if c in wanted), b"")
                await _first_of(_type(channels, streams), _results(channels, streams, protocol), _ping(socket))
        return socket


async def _type(channels: _Channels, streams: dict[int, Stream]) -> None:
    """Hand on what the client sends. Ends with the client."""
    async for channel, data in channels.messages():
        if channel == CLOSE and data:
            channel, data = data[0], b""
        if (target := streams.get(channel)) is None or channel not in (STDIN, RESIZE):
            continue
        with contextlib.suppress(ConnectionError):
            await (target.write(data) if data else target.finish())


async def _results(channels: _Channels, streams: dict[int, Stream], protocol: str) -> None:
    """Hand on output, and after all of it how the command ended. Raises: ConnectionError."""
    outputs = [channels.pour(streams[channel], channel) for channel in (STDOUT, STDERR) if channel in streams]
    status = bytearray()
    is_lost = False

    async def read_status() -> None:
        while data := await streams[ERROR].read():
            status.extend(data)

    for result in await asyncio.gather(read_status(), *outputs, return_exceptions=True):
        is_lost = is_lost or isinstance(result, ConnectionError)
    if not status and protocol == V5:
        status += _internal_error("error reading from error stream: EOF") if is_lost else b""
    if status:
        await channels.send(ERROR, _as_translated(bytes(status)) if protocol == V5 else bytes(status))


def _internal_error(why: str) -> bytes:
    status = ApiError(f"Internal error occurred: {why}").status()
    return msgspec.json.encode(status | {"details": {"causes": [{"message": why}]}})


def _as_translated(status: bytes) -> bytes:
    """Return the status as a server writes it that has read it as a client: the exit code twice in words."""
    try:
        document: Document = msgspec.json.decode(status, type=dict[str, Any])
    except UNREADABLE:
        return status
    for cause in (document.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            document["message"] = (
                f"command terminated with non-zero exit code: command terminated with exit code {cause.get('message')}"
            )
    return msgspec.json.encode(document)


async def _web_port_forward(
    request: web.BaseRequest, query: Query, node: Document, path: str, offered: list[str], kubelets: Kubelets
) -> web.StreamResponse:
    protocol = next((each for each in offered if each == TUNNEL or each in WEB_SOCKETS[1:]), "")
    if offered and not protocol:
        raise _no_protocol(offered, (TUNNEL, *WEB_SOCKETS[1:]))
    ports = ports_of(query)
    if protocol != TUNNEL and not ports:
        raise BadRequest("query parameter ports is required")
    if len(ports) > 100:
        raise BadRequest(f"{len(ports)} ports at once, want at most 100")
    answer = await kubelets.dial(node, path, ["portforward.k8s.io"])
    if answer.status != 101:
        return _refusal(answer)
    async with _web_socket(request, protocol) as socket:
        if protocol == TUNNEL:
            try:
                await _first_of(_unpack(socket, answer.writer), _pack(answer.reader, socket), _ping(socket))
            finally:
                close(answer.writer)
            return socket
        async with _open_connection(answer) as connection:
            with contextlib.suppress(ConnectionError):
                await _forward_ports(_Channels(socket, protocol), connection, ports)
        return socket


async def _ping(socket: web.WebSocketResponse) -> None:
    """Ping the client again and again (see PING_S). Raises: ConnectionError when it is gone."""
    while True:
        await asyncio.sleep(PING_S)
        await socket.ping()


async def _unpack(socket: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
    async for message in socket:
        if message.type == aiohttp.WSMsgType.BINARY:
            writer.write(message.data)
            await writer.drain()


async def _pack(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await socket.send_bytes(data)


async def _forward_ports(channels: _Channels, connection: Connection, ports: list[int]) -> None:
    """Carry each port on two channels, data and error, each of which first says the port. Raises: ConnectionError."""
    targets: dict[int, Stream] = {}
    for place, port in enumerate(ports):
        for offset, kind in ((1, "error"), (0, "data")):
            headers = {"streamType": kind, "port": str(port), "requestID": str(place)}
            opened = targets[2 * place + offset] = await connection.open(headers)
            await channels.send(2 * place + offset, port.to_bytes(2, "little"))
            if kind == "error":
                await opened.finish()

    async def type_in() -> None:
        async for channel, data in channels.messages():
            if channel in targets and channel % 2 == 0:
                with contextlib.suppress(ConnectionError):
                    await targets[channel].write(data)

    async def pour_out() -> None:
        works = (channels.pour(target, channel) for channel, target in targets.items())
        await asyncio.gather(*works, return_exceptions=True)

    await _first_of(type_in(), pour_out(), channels.ping())


# --- HTTP to a container, a service, a kubelet ---


def _port_of(pod: Document, port: str) -> int:
    """Return the number of a port, "" the first that is declared. Raises: BadRequest."""
    if port.isascii() and port.isdigit():
        return int(port)
    for container in (pod.get("spec") or {}).get("containers") or ():
        for container_port in container.get("ports") or ():
            if port in ("", container_port.get("name")):
                return int(container_port["containerPort"])
    if port == "":
        return 80
    raise BadRequest(f'pod {pod["metadata"].get("name")} has no port named "{port}"')


def _split_name(name: str) -> tuple[str, str]:
    """Return name and port of `[SCHEME:]NAME[:PORT]`. Raises: BadRequest."""
    match name.split(":"):
        case [name]:
            return name, ""
        case [name, port]:
            return name, port
        case ["http" | "", name, port]:
            return name, port
        case ["https", *_]:
            raise BadRequest("emulated containers speak no TLS: want the scheme http")
    raise BadRequest(f"invalid service or pod request {name!r}")


async def proxy(
    request: web.BaseRequest, kind: str, namespace: str, name: str, rest: str, itself: Api, kubelets: Kubelets
) -> web.StreamResponse:
    """Proxy a request to a container of a pod or behind a service, or to a kubelet. The caller must be
    authorized before.

    Raises: ApiError.
    """
    target = f"/{rest}" + (f"?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else "")
    if kind == "nodes":
        node = await document_of(itself, "nodes", _split_name(name)[0])
        return await _to_kubelet(request, node, target, kubelets)
    bare, port = _split_name(name)
    if kind == "services":
        pod, number = await _endpoint_of(namespace, bare, port, itself)
    else:
        pod = await document_of(itself, "pods", bare, namespace)
        number = _port_of(pod, port)
    return await _to_container(request, pod, number, target, itself, kubelets)


async def _endpoint_of(namespace: str, name: str, port: str, itself: Api) -> tuple[Document, int]:
    """Return a ready pod that a service selects, and the port there. Raises: NotFound; Unavailable without one."""
    service = await document_of(itself, "services", name, namespace)
    spec = service.get("spec") or {}
    ports = [p for p in spec.get("ports") or () if port in ("", str(p.get("port")), p.get("name"))]
    selector: dict[str, str] = spec.get("selector") or {}
    missing = f'no endpoints available for service "{name}"'
    if not ports:
        raise Unavailable(f'no service port "{port}" found for service "{name}"')
    if not selector:
        raise Unavailable(missing)
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    answer = await itself.call(Request(verb="list", resource="pods", namespace=namespace, label_selector=labels))
    for pod in msgspec.json.decode(answer.unwrap().body).get("items") or ():
        conditions = (pod.get("status") or {}).get("conditions") or ()
        if any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
            pod.setdefault("kind", "Pod")
            return pod, _port_of(pod, str(ports[0].get("targetPort") or ports[0].get("port")))
    raise Unavailable(missing)


async def _to_kubelet(request: web.BaseRequest, node: Document, target: str, kubelets: Kubelets) -> web.StreamResponse:
    if request.method not in ("GET", "HEAD"):
        raise ApiError("the emulated kubelet answers GET and HEAD only", reason="MethodNotAllowed", code=405)
    url = f"{kubelets.scheme}://{kubelet_address(node)}{target}"
    timeout = aiohttp.ClientTimeout(total=PROXY_MAX_S, connect=DIAL_MAX_S)
    try:
        async with kubelets.session.request(
            request.method,
            url,
            ssl=kubelets.tls or True,
            timeout=timeout,
            headers=kubelets.headers,
            allow_redirects=False,
        ) as answer:
            body = await answer.content.read(PROXY_BYTES_MAX)
            headers = {"Content-Type": answer.headers.get("Content-Type", "text/plain")}
            return web.Response(status=answer.status, body=body, headers=headers)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unavailable(f"error trying to reach service: {type(error).__name__}") from error


async def _to_container(
    request: web.BaseRequest, pod: Document, port: int, target: str, itself: Api, kubelets: Kubelets
) -> web.StreamResponse:
    """Ask the container over a forwarded port: a pod's address leads nowhere here."""
    meta = pod["metadata"]
    path = "/portForward/" + "/".join(quote(meta[key], safe="") for key in ("namespace", "name"))
    try:
        node = await _host(pod, itself)
    except (BadRequest, NotFound) as error:
        raise Unavailable(f"error trying to reach service: {error}") from None
    answer = await kubelets.dial(node, path, ["portforward.k8s.io"])
    if answer.status != 101:
        close(answer.writer)
        raise Unavailable(f"error trying to reach service: {answer.body.decode('utf-8', 'replace').strip()}")
    body = await request.read()
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {meta['name']}:{port}", "Connection: close"]
    lines += [f"{k}: {v}" for k, v in request.headers.items() if k.lower() not in (*_HOP_HEADERS, "content-length")]
    lines += [f"Content-Length: {len(body)}", "", ""]
    try:
        async with asyncio.timeout(PROXY_MAX_S), _open_connection(answer) as connection:
            headers = {"port": str(port), "requestID": "0"}
            errors = await connection.open({**headers, "streamType": "error"})
            await errors.finish()
            data = await connection.open({**headers, "streamType": "data"})
            await data.write("\r\n".join(lines).encode("latin-1", "replace") + body)
            content = bytearray()
            while piece := await data.read():
                content += piece
                if len(content) > PROXY_BYTES_MAX:
                    raise Unavailable(f"error trying to reach service: more than {PROXY_BYTES_MAX} bytes")
            if not content:
                why = (await errors.read()).decode("utf-8", "replace") or "EOF"
                if "connection refused" in why:
                    address = (pod.get("status") or {}).get("podIP", "")
                    why = f"dial tcp {address}:{port}: connect: connection refused"
                raise Unavailable(f"error trying to reach service: {why}")
    except (ConnectionError, TimeoutError) as error:
        raise Unavailable(f"error trying to reach service: {type(error).__name__}") from error
    return _response_of(bytes(content))


def _response_of(answer: bytes) -> web.Response:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    status = int(first.split(" ")[1])
    headers = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in rest)}
    dropped = (*_HOP_HEADERS, "content-length")
    return web.Response(
        status=status, body=body, headers={k: v for k, v in headers.items() if k.lower() not in dropped}
    )
