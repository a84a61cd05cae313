"""Commands to the supervisor of a mesh: a Unix socket in the mesh's private directory, one line each way.

A request is one JSON line `{"verb": "status"}` or `{"verb": "restart", "names": [...]}`, the answer another:
`{"status": {...}}`, `{"restarted": [...]}`, or `{"error": "...", "is_usage": true}`. A user who can open the
socket can stop the mesh as well, so it needs no credentials: the directory and the socket belong to their
owner. It needs no disk space, so that a full disk does not hide the status.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from services.api.errors import UNREADABLE
from services.telemetry.kernel import ShortFolder

CONTROL_SOCKET = "supervisor.sock"
LINE_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a request or an answer in bytes; a request to host nodes names all of them."""
REQUEST_MAX_S = 10.0

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class NoAnswer(Exception):
    """Error: no supervisor answers on that directory; one line that says why."""


class ControlServer:
    """Server on the socket of one directory, until it is closed."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self._path, self._answer = folder / CONTROL_SOCKET, answer
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; replace a socket that an earlier supervisor left. Raises: OSError."""
        self._path.unlink(missing_ok=True)
        folder = ShortFolder(self._path.parent)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(f"{folder.path}/{CONTROL_SOCKET}")
            self._path.chmod(0o600)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=LINE_BYTES_MAX)
        except BaseException:
            listening.close()
            raise
        finally:
            folder.close()

    async def close(self) -> None:
        """Stop answering, and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            async with asyncio.timeout(REQUEST_MAX_S):
                line = await reader.readuntil(b"\n")
            try:
                answer = await self._answer(msgspec.json.decode(line, type=dict[str, Any]))
            except UNREADABLE as error:
                answer = {"error": f"that is no request: {error}", "is_usage": True}
            writer.write(msgspec.json.encode(answer) + b"\n")
            async with asyncio.timeout(REQUEST_MAX_S):
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the other side is slow or gone
        finally:
            self._busy.discard(task)
            writer.close()


async def request(folder: Path, wanted: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Return the answer of the supervisor that runs a mesh on this directory, as `ask` does, without blocking.
    Raises: NoAnswer."""
    with _socket_in(folder, timeout_s) as path:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(path, limit=LINE_BYTES_MAX)
            try:
                writer.write(msgspec.json.encode(wanted) + b"\n")
                return msgspec.json.decode(await reader.readline(), type=dict[str, Any])
            finally:
                writer.close()


def ask(folder: Path, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Return the answer of the supervisor that runs a mesh on this directory. Raises: NoAnswer."""
    with _socket_in(folder, timeout_s) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(path)
        connection.sendall(msgspec.json.encode(request) + b"\n")
        with connection.makefile("rb") as lines:
            return msgspec.json.decode(lines.readline(), type=dict[str, Any])


@contextmanager
def _socket_in(folder: Path, timeout_s: float) -> Iterator[str]:
    """Give a path of the supervisor's socket that is short enough for one; what goes wrong with it is a NoAnswer."""
    try:
        short = ShortFolder(folder)
    except OSError as error:
        raise NoAnswer(f"{folder}: {error.strerror or error}") from None
    try:
        yield f"{short.path}/{CONTROL_SOCKET}"
    except TimeoutError:
        raise NoAnswer(f"the supervisor has not answered within {timeout_s:g} s") from None
    except OSError as error:
        raise NoAnswer(f"{folder / CONTROL_SOCKET}: {error.strerror or error}") from None
    except UNREADABLE:
        raise NoAnswer("the supervisor has ended in the middle of its answer") from None
    finally:
        short.close()
