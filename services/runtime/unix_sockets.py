"""gRPC on real Unix sockets, with paths of any length.

The kernel accepts paths of at most 107 bytes. A longer one is reached through its directory's descriptor
(`/proc/self/fd/N/name`), so a mesh may live in any directory and a node may have any name.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from services.api.local_rpc import TRACEPARENT, LocalService, RpcError, Streaming, Unary, caller_traceparent
from services.telemetry.kernel import ShortFolder

PATH_MAX_BYTES = 107
STOP_GRACE_S = 0.2
BIND_TRIES = 3

_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
    # Two kubelets of one process must not share a channel: each has its own end.
    ("grpc.use_local_subchannel_pool", 1),
    # An idle channel would look like one whose other end is gone.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
)
_CODES = {"cancelled": "Canceled"}
"""Go's names of gRPC codes that differ from the capitalized name."""


_UNREACHED = ("Connection refused", "No such file or directory")
"""Reasons why a socket does not answer; Go writes them in lower case."""


def _go_name(code: grpc.StatusCode) -> str:
    name = code.name.lower()
    return _CODES.get(name, "".join(part.capitalize() for part in name.split("_")))


_BY_NAME = {_go_name(code): code for code in grpc.StatusCode}


class _Address:
    """A socket's path in a form the kernel accepts; `close` releases the directory's descriptor."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._folder: ShortFolder | None = None
        if len(path.encode()) > PATH_MAX_BYTES:
            folder, name = os.path.split(path)
            self._folder = ShortFolder(Path(folder))
            path = f"{self._folder.path}/{name}"
            if len(path.encode()) > PATH_MAX_BYTES:
                self.close()
                raise OSError(f"{name}: {len(name.encode())} bytes are too long for a socket's name")
        self.target = f"unix:{path}"

    def discard(self) -> None:
        """Remove the socket, and close."""
        Path(self.path).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        if self._folder is not None:
            self._folder.close()
            self._folder = None


class _Handlers(grpc.GenericRpcHandler):
    """Lookup of a method's handler; an exception of the handler becomes the call's status."""

    def __init__(self, service: LocalService) -> None:
        self._service = service

    def service(self, handler_call_details: Any) -> Any:
        """Return how to answer this method; None: it is not served."""
        method = handler_call_details.method
        if (call := self._service.calls.get(method)) is not None:
            return grpc.unary_unary_rpc_method_handler(_unary_handler(call))
        if (stream := self._service.streams.get(method)) is not None:
            return grpc.unary_stream_rpc_method_handler(_stream_handler(stream))
        return None


def _unary_handler(call: Unary) -> Any:
    async def handle(request: bytes, context: Any) -> bytes:
        # Each call is served in a task, and so in a context, of its own.
        named = (value for key, value in context.invocation_metadata() or () if key == TRACEPARENT)
        caller_traceparent.set(next(named, ""))
        try:
            return await call(request)
        except RpcError as error:
            return await context.abort(_BY_NAME.get(error.code, grpc.StatusCode.UNKNOWN), error.message)  # type: ignore[no-any-return]

    return handle


def _stream_handler(stream: Streaming) -> Any:
    async def handle(request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            async for message in stream(request):
                yield message
        except RpcError as error:
            await context.abort(_BY_NAME.get(error.code, grpc.StatusCode.UNKNOWN), error.message)

    return handle


class _Server:
    """One socket being served."""

    def __init__(self, path: str, address: _Address, server: grpc.aio.Server) -> None:
        """Take the name. Raises: FileNotFoundError when the socket is gone already."""
        self._path, self._address, self._server = path, address, server
        os.replace(address.path, path)
        self._inode = os.stat(path).st_ino

    async def close(self) -> None:
        """Break every connection and remove the socket, unless another server's is there by now."""
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        await self._server.stop(STOP_GRACE_S)
        self._address.close()


class _Connection:
    """A channel to one socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._address = _Address(path)
        except OSError as error:
            raise RpcError("Unavailable", f"{path}: {error.strerror or error}") from None
        # Without serializers messages are the bytes they are, which the types of the library do not know.
        self._channel: Any = grpc.aio.insecure_channel(self._address.target, options=_OPTIONS)

    async def connect(self, timeout_s: float) -> None:
        """Return once a server is there. Raises: RpcError."""
        try:
            await asyncio.wait_for(self._channel.channel_ready(), timeout_s)
        except TimeoutError:
            raise RpcError("DeadlineExceeded", "context deadline exceeded") from None

    async def wait_until_broken(self) -> None:
        """Return once the connection that was there is not any more."""
        ready = grpc.ChannelConnectivity.READY
        while self._channel.get_state(try_to_connect=True) is ready:
            await self._channel.wait_for_state_change(ready)

    async def call(
        self, method: str, request: bytes, timeout_s: float | None = None, *, traceparent: str = ""
    ) -> bytes:
        """Return the answer; without a timeout wait as long as it takes. Raises: RpcError."""
        metadata = ((TRACEPARENT, traceparent),) if traceparent else None
        try:
            answer: bytes = await self._channel.unary_unary(method)(request, timeout=timeout_s, metadata=metadata)
            return answer
        except grpc.aio.AioRpcError as error:
            raise _as_rpc_error(error, self._path) from None
        except asyncio.CancelledError:
            # The library says the same of a call whose channel was closed and of one whose caller is cancelled.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RpcError("Canceled", "grpc: the client connection is closing") from None

    async def stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Yield answers until the other side ends it. Raises: RpcError."""
        try:
            async for message in self._channel.unary_stream(method)(request):
                yield message
        except grpc.aio.AioRpcError as error:
            raise _as_rpc_error(error, self._path) from None

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()
        self._address.close()


def _as_rpc_error(error: grpc.aio.AioRpcError, path: str) -> RpcError:
    details = error.details() or ""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        details = "context deadline exceeded"  # here the library says whatever broke last
    if (why := next((why for why in _UNREACHED if details.endswith(why)), "")) and "connect failed" in details:
        details = f'connection error: desc = "transport: Error while dialing: dial unix {path}: connect: {why.lower()}"'
    return RpcError(_go_name(error.code()), details)


def _fresh(path: str) -> _Address:
    """Return the address of a socket that no process has, in a directory that is there. Raises: OSError."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).unlink(missing_ok=True)
    return _Address(path)


class UnixSockets:
    """The sockets of this machine. `serve` creates missing directories."""

    async def serve(self, path: str, service: LocalService) -> _Server:
        """Serve on a socket; an earlier server of the path is no longer reachable. Raises: OSError."""
        # Bound under a name of its own and then renamed: the library removes by name what it has bound, and by then
        # another server's socket may be there.
        for number in range(BIND_TRIES):
            folder, name = os.path.split(path)
            address = _fresh(f"{folder}/.{name}.{os.getpid()}-{number}")  # hidden from those who look for sockets
            server = grpc.aio.server(handlers=(_Handlers(service),))
            try:
                server.add_insecure_port(address.target)
                await server.start()
                return _Server(path, address, server)
            except FileNotFoundError:
                # The directory was cleared in this very moment.
                await server.stop(None)
                address.close()
            except RuntimeError as error:
                address.close()
                raise OSError(f"{path}: {error}") from None
            except OSError as error:
                # What has the name is not to be replaced, a directory for example.
                await server.stop(None)
                address.discard()
                raise OSError(error.errno, error.strerror, path) from None
        raise OSError(f"{path}: the directory is cleared over and over")

    def dial(self, path: str) -> _Connection:
        """Return a connection to that socket. Raises: RpcError when its directory does not exist."""
        return _Connection(path)

    def exists(self, path: str) -> bool:
        """Whether a socket of that path exists, with or without a server behind it."""
        try:
            return stat.S_ISSOCK(os.stat(path).st_mode)
        except FileNotFoundError:
            return False

    def clear(self, directory: str) -> None:
        """Remove all sockets from a directory. Raises: OSError."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.iterdir()):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink(missing_ok=True)

    def listing(self, directory: str) -> dict[str, str]:
        """Return every file below a directory with the mark of its socket; empty if it is no socket. Raises:
        OSError.
        """
        Path(directory).mkdir(parents=True, exist_ok=True)
        marks: dict[str, str] = {}
        for folder, folders, names in os.walk(directory):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                with contextlib.suppress(FileNotFoundError):
                    if not name.startswith("."):
                        path = f"{folder}/{name}"
                        state = os.stat(path)
                        is_socket = stat.S_ISSOCK(state.st_mode)
                        marks[path] = f"{state.st_ino}/{state.st_ctime_ns}" if is_socket else ""
        return marks
