"""gRPC between processes of one machine, over Unix sockets: what a node's kubelet and its plugins speak.

A socket is known by its path, a method by its full name (`/v1beta1.Registration/Register`), and messages are
bytes that are not looked into here. Processes have real sockets (`services.runtime.unix_sockets`), the
simulation has its own (`lab.scenarios.simulation.sockets`); neither server nor client knows which.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol

TRACEPARENT: Final = "traceparent"
"""The metadata of a call that names the trace it belongs to (W3C trace context)."""
caller_traceparent: Final[ContextVar[str]] = ContextVar("caller_traceparent", default="")
"""In a handler: what the call's metadata names, "" for nothing."""
Unary = Callable[[bytes], Awaitable[bytes]]
Streaming = Callable[[bytes], AsyncIterator[bytes]]


class RpcError(Exception):
    """A call that failed, as Go prints it: what a kubelet says of a plugin's refusal is read by people who know that.

    `code` is a gRPC status as Go writes it: Unavailable, DeadlineExceeded, Unknown, …
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {message}")
        self.code, self.message = code, message


def is_unserved(error: RpcError) -> bool:
    """Whether a call failed because no process has the socket; one that is stopped has it, and does not answer."""
    return any(why in error.message for why in ("connect: connection refused", "connect: no such file or directory"))


@dataclass(frozen=True)
class LocalService:
    """What is served on a socket, by the methods' full names. A handler refuses by raising `RpcError`."""

    calls: Mapping[str, Unary]
    streams: Mapping[str, Streaming] = field(default_factory=dict)


class LocalServer(Protocol):
    """A socket that is being served."""

    async def close(self) -> None:
        """Break every connection and remove the socket."""


class LocalConnection(Protocol):
    """A way to the server of a socket."""

    async def connect(self, timeout_s: float) -> None:
        """Return once a server is there. Raises: RpcError."""

    async def broken(self) -> None:
        """Return once the connection that was there is not any more."""

    async def call(
        self, method: str, request: bytes, timeout_s: float | None = None, *, traceparent: str = ""
    ) -> bytes:
        """Return the answer; without a timeout wait as long as it takes. Raises: RpcError."""

    def stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Yield answers until the other side ends it. Raises: RpcError, also when the other side is gone."""

    async def close(self) -> None:
        """Hang up."""


class Sockets(Protocol):
    """The sockets of this machine, as one process reaches them."""

    async def serve(self, path: str, service: LocalService) -> LocalServer:
        """Serve on a socket; the server before it is not reached any more. Raises: OSError."""

    def dial(self, path: str) -> LocalConnection:
        """Return a way to that socket; nothing is sent before the first call."""

    def exists(self, path: str) -> bool:
        """Whether there is a socket of that path, with or without a server behind it."""

    def clear(self, directory: str) -> None:
        """Leave an empty directory: sockets in it are removed, folders stay. Raises: OSError."""

    def listing(self, directory: str) -> dict[str, str]:
        """Return the path of every file below a directory, which is made when it is not there, in order.

        Each with a mark that another socket of the same path would not have; "" for what is no socket. Names that
        begin with a dot are left out. Raises: OSError.
        """


async def call_once(sockets: Sockets, path: str, method: str, request: bytes, timeout_s: float) -> bytes:
    """Return the answer to one call over a connection of its own. Raises: RpcError."""
    connection = sockets.dial(path)
    try:
        return await connection.call(method, request, timeout_s)
    finally:
        await connection.close()


class NoSockets:
    """The sockets of a process that needs none."""

    async def serve(self, path: str, service: LocalService) -> LocalServer:
        """Raise OSError: nothing can be served."""
        raise OSError(f"{path}: this process has no sockets")

    def dial(self, path: str) -> LocalConnection:
        """Raise OSError: no server can be reached."""
        raise OSError(f"{path}: this process has no sockets")

    def exists(self, path: str) -> bool:
        """Return that there is none."""
        return False

    def clear(self, directory: str) -> None:
        """Do nothing: there is nothing to clear."""

    def listing(self, directory: str) -> dict[str, str]:
        """Return that there is nothing."""
        return {}
