"""Unix sockets in virtual time: calls have a latency, and a killed process leaves its socket file behind
without a server.

A `MachineSockets` holds the sockets of one simulated machine; every incarnation of a process has its own
`SimSockets` on it. A server runs in the time of its process, so a stopped process answers when it
resumes.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

from lab.scenarios.simulation.lifetime import Lifetime
from services.api.local_rpc import LocalService, RpcError, caller_traceparent
from services.api.seams import Random

LATENCY_MIN_S, LATENCY_MAX_S = 0.0001, 0.0004
CONNECT_POLL_S = 0.1


class MachineSockets:
    """The sockets of one machine, by path. `random` determines the latency of messages."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.files: dict[str, _Served] = {}
        self.served = 0
        """How many sockets there have been."""
        self.context = contextvars.copy_context()
        """Messages take no process's time, so that they arrive even while their sender is stopped."""

    def latency_s(self) -> float:
        """Return the latency of the next message, in seconds."""
        return self._random.uniform(LATENCY_MIN_S, LATENCY_MAX_S)

    def reach(self, path: str) -> _Served:
        """Return the server at that path. Raises: RpcError with the text of Go's dialer."""
        served = self.files.get(path)
        if served is None or served.is_over:
            why = "connect: connection refused" if served is not None else "connect: no such file or directory"
            failed = f"transport: Error while dialing: dial unix {path}: {why}"
            raise RpcError("Unavailable", f'connection error: desc = "{failed}"')
        return served


class _Served:
    """One socket and the process that serves it. `is_over`: no process serves it, although the file may still exist."""

    def __init__(self, machine: MachineSockets, path: str, service: LocalService, life: Lifetime) -> None:
        self.service = service
        machine.served += 1
        self.mark = str(machine.served)
        self._machine, self._path, self._life, self._context = machine, path, life, contextvars.copy_context()
        self._is_closed = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def is_over(self) -> bool:
        return self._is_closed or self._life.is_over

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do some work in the time of the process that serves, as long as it does."""
        task = asyncio.create_task(work, context=self._context.copy())
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        self._life.adopt(task)
        return task

    async def close(self) -> None:
        """Break every connection and remove the socket, unless another process's is there by now."""
        if self._machine.files.get(self._path) is self:
            del self._machine.files[self._path]
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()


class _Pipe:
    """The responses: messages in order, then the end or an error."""

    def __init__(self, machine: MachineSockets) -> None:
        self._machine, self._loop = machine, asyncio.get_running_loop()
        self._last_s = 0.0
        self._arrived: deque[bytes | RpcError | None] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def send(self, message: bytes | RpcError | None) -> None:
        """Put a message on its way, behind those before it."""
        self._last_s = max(self._last_s, self._loop.time() + self._machine.latency_s())
        self._loop.call_at(self._last_s, self.put, message, context=self._machine.context)

    def put(self, message: bytes | RpcError | None) -> None:
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


_Serve = Callable[["_Served", str, bytes, _Pipe], Coroutine[Any, Any, None]]


class _Connection:
    def __init__(self, machine: MachineSockets, path: str) -> None:
        self._machine, self._path = machine, path

    async def connect(self, timeout_s: float) -> None:
        """Wait until a server accepts the connection. Raises: RpcError."""
        loop = asyncio.get_running_loop()
        limit_s = loop.time() + timeout_s
        while True:
            await asyncio.sleep(self._machine.latency_s())
            try:
                self._machine.reach(self._path)
                return
            except RpcError:
                if loop.time() + CONNECT_POLL_S > limit_s:
                    await asyncio.sleep(max(0.0, limit_s - loop.time()))
                    raise RpcError("DeadlineExceeded", "context deadline exceeded") from None
                await asyncio.sleep(CONNECT_POLL_S)

    async def wait_until_broken(self) -> None:
        """Wait until the existing connection is broken."""
        pipe = _Pipe(self._machine)
        try:
            there = self._machine.reach(self._path)
        except RpcError:
            return
        held = there.begin(_hold_open(pipe))
        try:
            await pipe.take()
        finally:
            held.cancel()

    async def call(
        self, method: str, request: bytes, timeout_s: float | None = None, *, traceparent: str = ""
    ) -> bytes:
        """Call a method and return the answer; without a timeout wait indefinitely. Raises: RpcError."""
        pipe = _Pipe(self._machine)
        loop = asyncio.get_running_loop()
        late = RpcError("DeadlineExceeded", "context deadline exceeded")
        timer = loop.call_later(timeout_s, pipe.put, late) if timeout_s is not None else None
        served = self._send(method, request, pipe, partial(_answer_call, traceparent))
        try:
            answer = await pipe.take()
        finally:
            if timer is not None:
                timer.cancel()
            for task in served:
                task.cancel()  # as gRPC does with what is not waited for any more
        assert answer is not None, "a call that is served is answered"
        return answer

    async def stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Yield answers until the other side ends it. Raises: RpcError."""
        pipe = _Pipe(self._machine)
        served = self._send(method, request, pipe, _stream_call)
        try:
            while (message := await pipe.take()) is not None:
                yield message
        finally:
            for task in served:
                task.cancel()

    def _send(self, method: str, request: bytes, pipe: _Pipe, serve: _Serve) -> list[asyncio.Task[None]]:
        """Put a call on its way; return where the task that serves it will be, once it has arrived."""
        serving: list[asyncio.Task[None]] = []

        def arrive() -> None:
            try:
                there = self._machine.reach(self._path)
            except RpcError as error:
                pipe.send(error)
            else:
                serving.append(there.begin(serve(there, method, request, pipe)))

        delay_s = self._machine.latency_s()
        asyncio.get_running_loop().call_later(delay_s, arrive, context=self._machine.context)
        return serving

    async def close(self) -> None:
        """Close the connection."""


_GONE = RpcError("Unavailable", "error reading from server: EOF")


async def _hold_open(pipe: _Pipe) -> None:
    """Be the server's end of a connection: the pipe ends with it."""
    try:
        await asyncio.Event().wait()
    finally:
        pipe.send(None)


async def _answer_call(traceparent: str, there: _Served, method: str, request: bytes, pipe: _Pipe) -> None:
    handler = there.service.calls.get(method)
    if handler is None:
        pipe.send(RpcError("Unimplemented", f"unknown method {method}"))
        return
    caller_traceparent.set(traceparent)
    answer: bytes | RpcError = _GONE
    try:
        answer = await handler(request)
    except RpcError as error:
        answer = error
    finally:
        pipe.send(answer)


async def _stream_call(there: _Served, method: str, request: bytes, pipe: _Pipe) -> None:
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


class SimSockets:
    """The machine's sockets as one incarnation of a process accesses them."""

    def __init__(self, machine: MachineSockets, life: Lifetime) -> None:
        self._machine, self._life = machine, life

    async def serve(self, path: str, service: LocalService) -> _Served:
        """Serve on a socket; a previous server at that path is no longer reachable."""
        served = self._machine.files[path] = _Served(self._machine, path, service, self._life)
        return served

    def dial(self, path: str) -> _Connection:
        """Return a connection to that socket."""
        return _Connection(self._machine, path)

    def exists(self, path: str) -> bool:
        """Return whether there is a socket file at that path, with or without a server."""
        return path in self._machine.files

    def clear(self, directory: str) -> None:
        """Remove all sockets from a directory."""
        for path in [p for p in self._machine.files if p.rpartition("/")[0] == directory.rstrip("/")]:
            del self._machine.files[path]

    def listing(self, directory: str) -> dict[str, str]:
        """Return every socket below a directory with its mark."""
        below = directory.rstrip("/") + "/"
        return {path: self._machine.files[path].mark for path in sorted(self._machine.files) if path.startswith(below)}
