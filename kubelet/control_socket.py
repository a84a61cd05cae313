"""The control socket of an emulated device plugin or DRA driver of a node, and the settings of both."""

import asyncio
from dataclasses import dataclass

from services.api.local_rpc import LocalServer, LocalService, RpcError, Sockets, Unary, call_once, is_unserved
from services.runtime.config import EXIT_USAGE, CommonConfig, StartError, setting

POLL_S = 0.5
"""Seconds within which a plugin or driver notices that one of its sockets is gone."""
RETRY_S = 1.0
COMMAND_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class NodePartConfig(CommonConfig):
    """The configuration of a process that has devices of one node."""

    node: str = setting("", "node of the devices")
    sockets_dir: str = setting("nodes", "directory of the nodes' sockets; those of the node's kubelet are in DIR/NODE")
    folder: str = setting("", "directory of the node's sockets, instead of --sockets-dir and --node")

    @property
    def place(self) -> str:
        """The directory of the node's sockets."""
        return self.folder or f"{self.sockets_dir}/{self.node}"

    def check_node(self) -> None:
        """Raise StartError when no node is named."""
        if not self.node:
            raise StartError("--node: want the name of a node", EXIT_USAGE)


class ChangeSignal:
    """Wakes all tasks that wait for a change."""

    def __init__(self) -> None:
        self._change = asyncio.Event()

    async def wait(self) -> None:
        """Return at the next change."""
        await self._change.wait()

    def send(self) -> None:
        """Wake the waiting tasks; a task that waits afterwards waits for the next change."""
        change, self._change = self._change, asyncio.Event()
        change.set()


class ControlSocket:
    """The socket of one plugin or driver. `handle`: performs a request, or raises RpcError."""

    def __init__(self, sockets: Sockets, path: str, method: str, handle: Unary) -> None:
        self._sockets, self._path = sockets, path
        self._service = LocalService({method: handle})
        self._server: LocalServer | None = None

    async def serve(self) -> None:
        """Serve the socket, again if it is gone: with its folder, or taken by another process."""
        if self._server is not None and self._sockets.exists(self._path):
            return
        await self.close()
        self._server = await self._sockets.serve(self._path, self._service)

    async def close(self) -> None:
        """Close the socket, if it was served."""
        if self._server is not None:
            await self._server.close()


class Away(ValueError):
    """Error: there is no such plugin or driver now. One that was killed comes back."""


async def command(
    sockets: Sockets, path: str, method: str, request: bytes, *, actor: str, node: str, is_last: bool = False
) -> None:
    """Send a command to a plugin or driver; return once it was performed.

    `actor`: its name in errors; `is_last`: whether it ends by the command and need not answer. Raises:
    ValueError when it cannot perform the command, Away when it is not there.
    """
    if not sockets.exists(path):
        raise Away(f"node {node} has no emulated {actor}: {path} is not there")
    try:
        await call_once(sockets, path, method, request, COMMAND_TIMEOUT_S)
    except RpcError as error:
        actor = f"{actor} of node {node}"
        if error.code not in ("DeadlineExceeded", "Unavailable"):
            raise ValueError(f"{actor}: {error.message}") from None
        if is_unserved(error):
            raise Away(f"{actor} is away: no process serves {path}; start it again") from None
        if not is_last:
            raise ValueError(f"{actor} does not answer: its process is stopped, or stuck") from None
