"""`python -m lab.benchmarks.watchers URL AUTHORITY COUNT QUERY read|stall`: many watches of pods, each on a
connection.

The token is read from standard input. One line is printed, with the number of watches begun and refused.
In mode `read` that is once each watch has received its initial state; in mode `stall`, once each has sent
its request. Then the watches stay open until the process is ended.
"""

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import Coroutine
from typing import Any, Final
from urllib.parse import urlsplit

QUIET_S: Final = 1.5
"""Pause in seconds after which a silent watch counts as having received its initial state."""
CHUNK: Final = 1 << 20
RECEIVE_BUFFER: Final = 4096


class _Counts:
    """Counts of watches begun and refused. Raises nothing: a connection that fails counts as refused."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.begun = self.refused = 0
        self.are_complete = asyncio.Event()

    def count(self, *, has_begun: bool) -> None:
        self.begun += has_begun
        self.refused += not has_begun
        if self.begun + self.refused == self._wanted:
            self.are_complete.set()


async def _watch(target: tuple[str, int, str], request: bytes, *, reads: bool, counts: _Counts) -> None:
    host, port, authority = target
    context = ssl.create_default_context(cafile=authority)
    plain = socket.socket()
    if not reads:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (host, port))
    limit = CHUNK if reads else RECEIVE_BUFFER
    reader, writer = await asyncio.open_connection(sock=plain, ssl=context, server_hostname=host, limit=limit)
    writer.write(request)
    await writer.drain()
    if not reads:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        counts.count(has_begun=True)
        await asyncio.Event().wait()
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0]:
        counts.count(has_begun=False)
        return
    try:
        while True:
            async with asyncio.timeout(QUIET_S):
                if not await reader.read(CHUNK):
                    break
    except TimeoutError:
        counts.count(has_begun=True)
    while await reader.read(CHUNK):
        pass


async def _run_watch(watch: Coroutine[Any, Any, None], counts: _Counts) -> None:
    try:
        await watch
    except (OSError, asyncio.IncompleteReadError):
        counts.count(has_begun=False)


async def main() -> None:
    """Open all watches, print the counts, and keep them open."""
    url, authority, count, query, how = sys.argv[1:]
    os.nice(10)
    token = sys.stdin.readline().strip()
    at = urlsplit(url)
    host, port = str(at.hostname), int(at.port or 443)
    lines = (f"GET /api/v1/pods?{query} HTTP/1.1", f"Host: {host}:{port}", f"Authorization: Bearer {token}", "", "")
    counts, request = _Counts(int(count)), "\r\n".join(lines).encode()
    async with asyncio.TaskGroup() as group:
        for _ in range(int(count)):
            watch = _watch((host, port, authority), request, reads=how == "read", counts=counts)
            group.create_task(_run_watch(watch, counts))
        await counts.are_complete.wait()
        sys.stdout.write(f"{counts.begun} {counts.refused}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
