"""KWOK's Logs, Attach, Exec and PortForward for the pods of a host: look-up and execution.

The files and ports are this machine's; commands run in the emulated container unless the host may run them
itself. Source: kubernetes-sigs/kwok pkg/kwok/server; decision 0073.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Final

from kubelet.interaction import host_commands
from kubelet.interaction.log_files import texts
from kubelet.interaction.page_server import serve_pages
from kubelet.interaction.sessions import Session
from kubelet.runtime import pages
from services.api.meta import Key
from services.kwok.documents import Configuration
from services.kwok.kind import Rule
from services.kwok.kinds.execs import Exec
from services.kwok.kinds.port_forward import Forward, Route
from services.runtime.spdy.connection import Stream

DIAL_S: Final = 10.0
BLOCK_BYTES: Final = 32 << 10


class KwokStreams:
    """The look-up of documents of these kinds; `documents` returns the present ones.

    `runs_commands`: commands of an Exec with `local` run on this machine.
    """

    def __init__(self, documents: Callable[[], Configuration] = Configuration, *, runs_commands: bool = False) -> None:
        self._documents, self._runs_commands = documents, runs_commands

    def log_file(self, key: Key, container: str, *, previous: bool) -> str | None:
        """Return the path of a container's log, "" if only the other run has one; None: no document applies to it."""
        found = self._documents()["Logs"].find(key, container)
        if found is None:
            return None
        path = found.entry.previous_logs_file if previous else found.entry.logs_file
        return _path(found.rule, path) if path else ""

    def attached_file(self, key: Key, container: str) -> str | None:
        """Return the path of the file that clients see when they attach; None: no document applies to the container."""
        found = self._documents()["Attach"].find(key, container)
        return _path(found.rule, found.entry.logs_file) if found is not None else None

    def exec_of(self, key: Key, container: str) -> Exec | None:
        """Return the Exec entry for commands in a container; None: no document applies."""
        found = self._documents()["Exec"].find(key, container)
        entry: Exec | None = found.entry if found is not None else None
        return entry

    def runs_on_host(self, entry: Exec | None) -> bool:
        """Whether commands under this Exec entry run on this machine."""
        return self._runs_commands and entry is not None and entry.local is not None

    def forward_of(self, key: Key, port: int) -> Forward | None:
        """Return the target of a port; None: no document applies."""
        found = self._documents()["PortForward"].find(key, port)
        entry: Forward | None = found.entry if found is not None else None
        return entry

    def forwards(self, key: Key) -> bool:
        """Whether any document forwards ports of the pod."""
        rules = self._documents()["PortForward"].all
        return any(rule.selector.matches(key) if rule.selector is not None else rule.key == key for rule in rules)


def _path(rule: Rule, path: str) -> str:
    return os.path.join(rule.folder, path)


async def show_file(path: str, session: Session) -> int:
    """Show a file and follow its growth until the client leaves; return 1 when there is no such file."""
    if not os.path.isfile(path):  # noqa: ASYNC240 - as quick as opening it
        await session.show(2, f"{path}: no such file\n".encode())
        return 1
    discarding = asyncio.create_task(session.discard())
    try:
        async for piece in texts(path, follows=True):
            for line in piece:
                await session.show(line.stream, line.text)
    finally:
        discarding.cancel()
    return 0


async def forward(entry: Forward, data: Stream, error: Stream) -> None:
    """Connect a stream with the target of a forwarded port. Raises: ConnectionError."""
    if entry.command:
        await host_commands.forward(entry.command, data)
    elif entry.target is not None:
        await _tunnel(entry.target.address, entry.target.port, data, error)
    else:
        await serve_pages(data, partial(_route_answer, entry.http_routes))


async def _tunnel(address: str, port: int, data: Stream, error: Stream) -> None:
    try:
        async with asyncio.timeout(DIAL_S):
            reader, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError) as failed:
        why = getattr(failed, "strerror", None) or "timed out"
        await error.write(f"failed to dial {address}:{port}: {why}".encode())
        return

    async def send() -> None:
        with contextlib.suppress(ConnectionError):
            while block := await data.read():
                writer.write(block)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

    sending = asyncio.create_task(send())
    try:
        while block := await reader.read(BLOCK_BYTES):
            await data.write(block)
    finally:
        sending.cancel()
        writer.close()


def _route_answer(routes: tuple[Route, ...], asked: pages.PageRequest) -> bytes:
    path = asked.target.partition("?")[0]
    route = next((each for each in routes if each.location == path), None)
    if route is None:
        return pages.answer(asked, 404, b"404 page not found\n")
    return pages.answer(asked, route.code, route.body.encode(), ((each.name, each.value) for each in route.headers))
