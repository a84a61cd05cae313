"""Unix sockets in virtual time: calls take a moment, a killed process leaves its socket behind but answers no more.

A `MachineSockets` holds the sockets of one simulated machine; every incarnation of a process has its own `SimSockets`
on it. What is served runs in the time of the process that serves it, so a stopped process answers when it goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from services.api.local_rpc import LocalService, RpcError
from services.api.seams import Random
from services.scenarios.simulation.lifetime import Lifetime

LATENCY_MIN_S, LATENCY_MAX_S = 0.0001, 0.0004
CONNECT_POLL_S = 0.1


class _Served:
    """One socket and the process behind it. `is_over`: none is, although the file may still be there."""

    def __init__(self, service: LocalService, life: Lifetime, context: contextvars.Context) -> None:
        self.service, self.life, self.context = service, life, context
        self.is_closed = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def is_over(self) -> bool:
        return self.is_closed or self.life.is_over

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do some work in the time of the process that serves, as long as it does."""
        task = asyncio.create_task(work, context=self.context.copy())
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        self.life.adopt(task)
        return task

    def close(self) -> None:
        self.is_closed = True
        for task in list(self._tasks):
            task.cancel()


class MachineSockets:
    """The sockets of one machine, by path. `random` decides how long messages take."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._files: dict[str, _Served] = {}
        self.context = contextvars.copy_context()
        """Messages take no process's time, so that they arrive even while their sender is stopped."""

    def latency_s(self) -> float:
        """Return how long the next message takes."""
        return self._random.uniform(LATENCY_MIN_S, LATENCY_MAX_S)

    def bind(self, path: str, served: _Served) -> None:
        """Put a socket at that path, in place of what was there."""
        self._files[path] = served

    def unbind(self, path: str, served: _Served) -> None:
        """Remove the socket, unless another process's is there by now."""
        if self._files.get(path) is served:
            del self._files[path]

    def exists(self, path: str) -> bool:
        """Whether there is a socket, with or without anybody behind it."""
        return path in self._files

    def clear(self, directory: str) -> None:
        """Remove the sockets of one directory."""
        for path in [p for p in self._files if p.rpartition("/")[0] == directory.rstrip("/")]:
            del self._files[path]

    def reach(self, path: str) -> _Served:
        """Return who serves there. Raises: RpcError as Go's dialer says it."""
        served = self._files.get(path)
        if served is None or served.is_over:
            why = "connect: connection refused" if served is not None else "connect: no such file or directory"
            raise RpcError(
                "Unavailable", f'connection error: desc = "transport: Error while dialing: dial unix {path}: {why}"'
            )
        return served


class _Pipe:
    """What comes back: messages in order, then the end or what went wrong."""

    def __init__(self, floor: MachineSockets) -> None:
        self._floor, self._loop = floor, asyncio.get_running_loop()
        self._last_s = 0.0
        self._arrived: deque[bytes | RpcError | None] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def send(self, message: bytes | RpcError | None) -> None:
        """Put a message on its way, behind those before it."""
        self._last_s = max(self._last_s, self._loop.time() + self._floor.latency_s())
        self._loop.call_at(self._last_s, self.put, message, context=self._floor.context)

    def put(self, message: bytes | RpcError | None) -> None:
        """Be here, at the receiver."""
        self._arrived.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> bytes | None:
        """Return the next message; None is the end. Raises: RpcError."""
        while not self._arrived:
            self._waiter = self._loop.create_future()
            await self._waiter
        message = self._arrived.popleft()
        if isinstance(message, RpcError):
            raise message
        return message


class _Connection:
    """A way to one socket."""

    def __init__(self, floor: MachineSockets, life: Lifetime, path: str) -> None:
        self._floor, self._life, self._path = floor, life, path

    async def connect(self, timeout_s: float) -> None:
        """Return once a server is there. Raises: RpcError."""
        loop = asyncio.get_running_loop()
        limit_s = loop.time() + timeout_s
        while True:
            await asyncio.sleep(self._floor.latency_s())
            try:
                self._floor.reach(self._path)
                return
            except RpcError:
                if loop.time() + CONNECT_POLL_S > limit_s:
                    await asyncio.sleep(max(0.0, limit_s - loop.time()))
                    raise RpcError("DeadlineExceeded", "context deadline exceeded") from None
                await asyncio.sleep(CONNECT_POLL_S)

    async def call(self, method: str, request: bytes, timeout_s: float | None = None) -> bytes:
        """Return the answer; without a timeout wait as long as it takes. Raises: RpcError."""
        pipe = _Pipe(self._floor)
        loop = asyncio.get_running_loop()
        timer = None
        if timeout_s is not None:
            timer = loop.call_later(timeout_s, pipe.put, RpcError("DeadlineExceeded", "context deadline exceeded"))
        self._send(method, request, pipe, is_stream=False)
        try:
            answer = await pipe.take()
        finally:
            if timer is not None:
                timer.cancel()
        assert answer is not None, "a call that is served is answered"
        return answer

    async def stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Yield answers until the other side ends it. Raises: RpcError."""
        pipe = _Pipe(self._floor)
        served: list[asyncio.Task[None]] = []
        self._send(method, request, pipe, is_stream=True, served=served)
        try:
            while (message := await pipe.take()) is not None:
                yield message
        finally:
            for task in served:
                task.cancel()

    def _send(
        self,
        method: str,
        request: bytes,
        pipe: _Pipe,
        *,
        is_stream: bool,
        served: list[asyncio.Task[None]] | None = None,
    ) -> None:
        def arrive() -> None:
            try:
                there = self._floor.reach(self._path)
            except RpcError as error:
                pipe.send(error)
                return
            work = _streamed(there, method, request, pipe) if is_stream else _answered(there, method, request, pipe)
            task = there.begin(work)
            if served is not None:
                served.append(task)

        delay_s = self._floor.latency_s()
        asyncio.get_running_loop().call_later(delay_s, arrive, context=self._floor.context)

    async def close(self) -> None:
        """Hang up."""


_GONE = RpcError("Unavailable", "error reading from server: EOF")


async def _answered(there: _Served, method: str, request: bytes, pipe: _Pipe) -> None:
    handler = there.service.calls.get(method)
    if handler is None:
        pipe.send(RpcError("Unimplemented", f"unknown method {method}"))
        return
    answer: bytes | RpcError = _GONE
    try:
        answer = await handler(request)
    except RpcError as error:
        answer = error
    finally:
        pipe.send(answer)


async def _streamed(there: _Served, method: str, request: bytes, pipe: _Pipe) -> None:
    handler = there.service.streams.get(method)
    if handler is None:
        pipe.send(RpcError("Unimplemented", f"unknown method {method}"))
        return
    ending: RpcError | None = _GONE
    try:
        async for message in handler(request):
            pipe.send(message)
        ending = None
    except RpcError as error:
        ending = error
    finally:
        pipe.send(ending)


class _Server:
    """A socket being served."""

    def __init__(self, floor: MachineSockets, path: str, served: _Served) -> None:
        self._floor, self._path, self._served = floor, path, served

    async def close(self) -> None:
        """Break every connection and remove the socket."""
        self._floor.unbind(self._path, self._served)
        self._served.close()


class SimSockets:
    """The sockets of the machine, as one incarnation of a process reaches them."""

    def __init__(self, floor: MachineSockets, life: Lifetime) -> None:
        self._floor, self._life = floor, life

    async def serve(self, path: str, service: LocalService) -> _Server:
        """Serve on a socket; the server that was there before is not reached any more."""
        served = _Served(service, self._life, contextvars.copy_context())
        self._floor.bind(path, served)
        return _Server(self._floor, path, served)

    def dial(self, path: str) -> _Connection:
        """Return a way to that socket."""
        return _Connection(self._floor, self._life, path)

    def exists(self, path: str) -> bool:
        """Whether there is a socket of that path, with or without anybody behind it."""
        return self._floor.exists(path)

    def clear(self, directory: str) -> None:
        """Leave a directory without sockets."""
        self._floor.clear(directory)
