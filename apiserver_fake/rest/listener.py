"""The listening socket of the REST endpoint: limits of connections, in total and per address, and of idle
time.

Connections are counted from the moment they are accepted, TLS handshake included (FM-N6). When file descriptors
run out, accepting pauses and open connections continue (FM-X8). Source: guarantees L-CONN.
"""

import asyncio
import errno
import resource
import socket
from asyncio import sslproto
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ssl import SSLContext
from typing import Final

import structlog

from apiserver_fake.rates import Count
from services.api.seams import Clock

log = structlog.get_logger()

BACKLOG: Final = 1024
PAUSE_S: Final = 0.5
"""Seconds for which accepting pauses when descriptors are short."""
RESERVED: Final = 128
"""Descriptors reserved for the store, the gRPC endpoint and calls of kubelets."""
TLS_BUFFER_BYTES: Final = 32 << 10
"""Read buffer of asyncio per TLS connection, in bytes, in place of 256 KiB: most connections are idle."""
SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ACCEPTED_AT_ONCE: Final = 32
"""Connections accepted in one turn of the event loop; one costs some 20 µs."""
BURST_S: Final = 1.0
"""Seconds for which refused connections are counted before they are logged."""
ADDRESSES_MAX: Final = 256
"""Addresses whose refused connections are counted apart."""
SAID_S: Final = 60.0
"""Minimum seconds between log lines about a shortage of descriptors, and between those about a limit."""


class Listener:
    """Accepts connections for `protocols`. `on_disconnect` must be called when one of its connections has ended."""

    def __init__(
        self,
        protocols: Callable[[], asyncio.Protocol],
        count: Count,
        clock: Clock,
        tls: SSLContext | None,
        shake_s: float,
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        """Take the settings; `open` listens.

        `shake_s`: time limit in seconds of a TLS handshake, and before that of a client's silence. `turn`: awaited
        before each handshake, because one occupies the event loop for about a millisecond.
        """
        self._turn = turn
        self._protocols, self.count, self._clock, self._tls, self._shake_s = protocols, count, clock, tls, shake_s
        self._addresses: dict[asyncio.BaseProtocol, str] = {}
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusals: Counter[tuple[str, str]] = Counter()
        """Connections refused since the last report, by address and by whose limit it was."""
        self._report: asyncio.TimerHandle | None = None
        self._silent: dict[socket.socket, tuple[str, asyncio.TimerHandle]] = {}
        """Connections whose clients have not begun the handshake: address, and timer of the limit."""
        self._begun: deque[tuple[socket.socket, str]] = deque()
        """Connections whose clients have begun the handshake, and whose turn has not come: each with its address."""
        self._said_s = self._limit_said_s = -SAID_S
        if tls is not None:
            sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
        self.pauses = 0

    async def open(self, host: str, port: int) -> int:
        """Listen and return the port. Raises: OSError."""
        loop = asyncio.get_running_loop()
        try:
            addresses = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(addresses):
                listening = socket.socket(family, kind, protocol)
                self._sockets.append(listening)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind((address[0], port, *address[2:]))
                listening.listen(BACKLOG)
                listening.setblocking(False)
                port = listening.getsockname()[1]
        except OSError:
            await self.close()
            raise
        for listening in self._sockets:
            self._own(loop.create_task(self._accept(listening)))
        return port

    async def close(self) -> None:
        """Stop accepting connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._report is not None:
            self._report.cancel()
            self._report_refusals()
        for connection in list(self._silent):
            self._drop(connection, self._end_silence(connection))
        while self._begun:
            self._drop(*self._begun.popleft())
        for listening in self._sockets:
            listening.close()

    def on_disconnect(self, protocol: asyncio.BaseProtocol) -> None:
        """Count a connection as ended."""
        if (address := self._addresses.pop(protocol, None)) is not None:
            self.count.leave(address)

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            descriptors = _descriptors()
            if self.count.total >= descriptors - min(RESERVED, descriptors // 4):
                await self._pause("too few are left")
                continue
            try:
                connection, (address, *_) = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in SHORT:
                    await self._pause(error.strerror or "none")
                # Any other is of the connection that was to be accepted, which is gone.
                continue
            if self.count.enter(address):
                connection.setblocking(False)
                self._admit(connection, address)
            else:
                connection.close()
                self._note_refusal(address)
            accepted += 1
            if accepted % ACCEPTED_AT_ONCE == 0:
                await asyncio.sleep(0)  # a connection that waits already is accepted without a turn of the loop

    def _note_refusal(self, address: str) -> None:
        """Count a connection that is closed for a limit: its client sees no more than a reset, so it is logged."""
        is_total = self.count.total >= self.count.most
        key = address, "the server" if is_total else "the address"
        is_counted_apart = key in self._refusals or len(self._refusals) < ADDRESSES_MAX
        self._refusals[key if is_counted_apart else ("others", key[1])] += 1
        if self._report is None:
            delay_s = max(BURST_S, self._limit_said_s + SAID_S - self._clock.now())
            self._report = asyncio.get_running_loop().call_later(delay_s, self._report_refusals)

    def _report_refusals(self) -> None:
        """Log what was refused since the last report, with the address of which most was."""
        self._report, self._limit_said_s = None, self._clock.now()
        ((address, limit_of), refused), *_ = self._refusals.most_common(1)
        count = self.count
        log.warning(
            "rest.connections_refused",
            address=address,
            limit_of=limit_of,
            limit=count.most if limit_of == "the server" else count.most_of_one,
            refused=refused,
            refused_of_others=self._refusals.total() - refused,
        )
        self._refusals.clear()

    async def _pause(self, why: str) -> None:
        self.pauses += 1
        if self._clock.now() - self._said_s >= SAID_S:
            self._said_s = self._clock.now()
            log.warning("rest.accepting_paused", why=f"file descriptors: {why}", connections=self.count.total)
        await asyncio.sleep(PAUSE_S)

    def _admit(self, connection: socket.socket, address: str) -> None:
        """Take in an accepted connection. With TLS it has no task before its client has begun the handshake."""
        loop = asyncio.get_running_loop()
        if self._tls is None:
            self._own(loop.create_task(self._connect(connection, address)))
            return
        self._silent[connection] = address, loop.call_later(self._shake_s, self._on_silence, connection)
        loop.add_reader(connection, self._on_data, connection)

    def _on_data(self, connection: socket.socket) -> None:
        """Queue a connection whose client has begun the handshake, or has gone."""
        is_first = not self._begun
        self._begun.append((connection, self._end_silence(connection)))
        if is_first:
            self._own(asyncio.get_running_loop().create_task(self._shake_hands()))

    def _on_silence(self, connection: socket.socket) -> None:
        self._drop(connection, self._end_silence(connection))

    def _end_silence(self, connection: socket.socket) -> str:
        """Wait no longer for the client's first message; return its address."""
        asyncio.get_running_loop().remove_reader(connection)
        address, timer = self._silent.pop(connection)
        timer.cancel()
        return address

    async def _shake_hands(self) -> None:
        """Begin the handshakes that are due, each in a turn of its own."""
        while self._begun:
            await self._turn()
            self._own(asyncio.get_running_loop().create_task(self._connect(*self._begun.popleft())))

    def _drop(self, connection: socket.socket, address: str) -> None:
        self.count.leave(address)
        with suppress(OSError):
            connection.close()

    async def _connect(self, connection: socket.socket, address: str) -> None:
        protocols: list[asyncio.Protocol] = []

        def protocol() -> asyncio.Protocol:
            protocols.append(self._protocols())
            self._addresses[protocols[0]] = address
            return protocols[0]

        is_open = False
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol, connection, ssl=self._tls, ssl_handshake_timeout=None if self._tls is None else self._shake_s
            )
            is_open = True
        except (OSError, EOFError):  # of the handshake: a time-out, another protocol, an end
            pass
        finally:
            if not is_open:
                if protocols:
                    self.on_disconnect(protocols[0])
                    with suppress(OSError):
                        connection.close()
                else:
                    self._drop(connection, address)


def _descriptors() -> int:
    """Return how many file descriptors the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30
