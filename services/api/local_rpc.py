"""gRPC between processes of one machine, over Unix sockets, as spoken by a node's kubelet and its plugins.

A path identifies a socket, a full name (`/v1beta1.Registration/Register`) a method, and messages are opaque
bytes. Processes have real sockets (`services.runtime.unix_sockets`), the simulation has its own
(`lab.scenarios.simulation.sockets`); neither server nor client knows which.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol

TRACEPARENT: Final = "traceparent"
"""Metadata key of a call for the trace it belongs to (W3C trace context)."""
caller_traceparent: Final[ContextVar[str]] = ContextVar("caller_traceparent", default="")
"""The caller's traceparent from the call's metadata, in a handler; empty if none."""
Unary = Callable[[bytes], Awaitable[bytes]]
Streaming = Callable[[bytes], AsyncIterator[bytes]]


class RpcError(Exception):
    """A failed call; the message has Go's format, because people recognize it in a kubelet's report of a plugin's
    refusal.

    `code` is a gRPC status as Go writes it: Unavailable, DeadlineExceeded, Unknown, …
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {message}")
        self.code, self.message = code, message


def is_unserved(error: RpcError) -> bool:
    """Whether a call failed because no process serves the socket.

    A stopped process still has the socket, and does not answer.
    """
    return any(why in error.message for why in ("connect: connection refused", "connect: no such file or directory"))


@dataclass(frozen=True)
class LocalService:
    """Handlers of a socket, by the methods' full names. A handler refuses by raising `RpcError`."""

    calls: Mapping[str, Unary]
    streams: Mapping[str, Streaming] = field(default_factory=dict)


class LocalServer(Protocol):
    """A socket that is being served."""

    async def close(self) -> None:
        """Break every connection and remove the socket."""


class LocalConnection(Protocol):
    """A connection to the server of a socket."""

    async def connect(self, timeout_s: float) -> None:
        """Wait until a server accepts the connection. Raises: RpcError."""

    async def wait_until_broken(self) -> None:
        """Wait until the existing connection is broken."""

    async def call(
        self, method: str, request: bytes, timeout_s: float | None = None, *, traceparent: str = ""
    ) -> bytes:
        """Call a method and return the answer; without a timeout wait indefinitely. Raises: RpcError."""

    def stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Yield answers until the server ends the stream. Raises: RpcError, also when the server is gone."""

    async def close(self) -> None:
        """Close the connection."""


class Sockets(Protocol):
    """The sockets of this machine, as one process reaches them."""

    async def serve(self, path: str, service: LocalService) -> LocalServer:
        """Serve on a socket; an earlier server of the path is no longer reachable. Raises: OSError."""

    def dial(self, path: str) -> LocalConnection:
        """Return a connection to that socket; nothing is sent before the first call."""

    def exists(self, path: str) -> bool:
        """Whether a socket of that path exists, with or without a server behind it."""

    def clear(self, directory: str) -> None:
        """Empty a directory: remove the sockets in it and keep subfolders. Raises: OSError."""

    def listing(self, directory: str) -> dict[str, str]:
        """Return the sorted paths of all files below a directory; create the directory if it is missing.

        Each path maps to a mark that a different socket of the same path would not have; empty if the file is no
        socket. Names that begin with a dot are left out. Raises: OSError.
        """


async def call_once(sockets: Sockets, path: str, method: str, request: bytes, timeout_s: float) -> bytes:
    """Make one call over a connection of its own and return the answer. Raises: RpcError."""
    connection = sockets.dial(path)
    try:
        return await connection.call(method, request, timeout_s)
    finally:
        await connection.close()


class NoSockets:
    """The sockets interface of a process that uses none."""

    async def serve(self, path: str, service: LocalService) -> LocalServer:
        """Raise OSError: nothing can be served."""
        raise OSError(f"{path}: this process has no sockets")

    def dial(self, path: str) -> LocalConnection:
        """Raise OSError: no server can be reached."""
        raise OSError(f"{path}: this process has no sockets")

    def exists(self, path: str) -> bool:
        """Return False: there are no sockets."""
        return False

    def clear(self, directory: str) -> None:
        """Do nothing: there is nothing to clear."""

    def listing(self, directory: str) -> dict[str, str]:
        """Return an empty listing."""
        return {}
