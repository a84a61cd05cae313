"""The process that a mesh's processes are forked from while the mesh starts.

It imports what they run once, and they share its memory: a process begins with 20 ms of work instead of 300. It ends
when the mesh is up: what is started later is executed anew, with the sources as they are then. A process that is
forked is the supervisor's own child, and says so to `ps`; where forking is not possible, it is executed.
"""

import asyncio
import gc
import importlib
import os
import random
import runpy
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from signal import SIGKILL, SIGTERM
from typing import Any, Final

import msgspec

from services.telemetry import kernel

REQUEST_BYTES_MAX: Final = 1 << 18
LOADED: Final = ("apiserver_fake", "claim_controller", "services.controllers", "kubelet", "scheduler")
"""Modules that are forked, the largest last: each `__main__` has a function `load` that imports what it opens."""
ANSWER_MAX_S: Final = 30.0
ADOPTED_POLL_S: Final = 0.0005


class Forked:
    """A process that was forked: what is used of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        """Begin to wait for the end of a child of this process. Raises: OSError."""
        self.pid = pid
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._fd = os.pidfd_open(pid)
        self._loop.add_reader(self._fd, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()

    async def wait(self) -> int:
        """Wait for its end and return its exit code, or the negative number of the signal that ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, signal: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, signal)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(SIGTERM)

    def kill(self) -> None:
        """End it by force."""
        self.send_signal(SIGKILL)


class Nursery:
    """The supervisor's side. Its process begins with the first request; after any failure nothing is forked.

    `modules`: what will be forked. Once one has been, the others are imported beside what it does.
    """

    def __init__(self, modules: Collection[str]) -> None:
        self._later = [module for module in LOADED if module in modules]
        self._is_usable = kernel.can_adopt()
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._turn = asyncio.Lock()
        self._loading: asyncio.Task[Any] | None = None

    async def spawn(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: int
    ) -> Forked | None:
        """Fork a process that runs the module; None if it has to be executed. `log`: descriptor of its output."""
        if not self._is_usable or module not in LOADED:
            return None
        # A caller that is cancelled never gets the process, so it is ended here.
        forking = asyncio.create_task(self._fork(module, arguments, environment, log))
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            if (late := await forking) is not None:
                late.kill()
                await late.wait()
            raise

    async def _fork(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: int
    ) -> Forked | None:
        async with self._turn:
            if self._socket is None:
                await self._open(environment)
            if "error" in await self._ask({"load": module}):
                return None
            # Only now: orphans of other processes of ours are none of ours.
            kernel.adopt_orphans(True)
            try:
                words = {"module": module, "arguments": list(arguments), "environment": dict(environment)}
                pid = (await self._ask(words, log)).get("pid", 0)
            finally:
                kernel.adopt_orphans(False)
            # Another supervisor in this process may have ended the adoption: then init has it, and it ends.
            known = kernel.state_and_parent(pid) if pid else None
            if known is None or known[1] != os.getpid():
                return None
            if self._loading is None:
                self._loading = asyncio.create_task(self._load_others())
            return Forked(pid)

    async def _load_others(self) -> None:
        for module in self._later:
            async with self._turn:
                await self._ask({"load": module})

    async def _open(self, environment: Mapping[str, str]) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with its:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", __name__, str(its.fileno()), " " * kernel.LINE_BYTES_MAX),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
                env=environment,
                start_new_session=True,
            )
        self._socket = ours

    async def _ask(self, request: Mapping[str, object], *descriptors: int) -> dict[str, Any]:
        """Return the answer to a request; after a failure every answer is one with `error`."""
        if self._socket is None or not self._is_usable:
            return {"error": "closed"}
        try:
            async with asyncio.timeout(ANSWER_MAX_S):
                socket.send_fds(self._socket, [msgspec.json.encode(request)], descriptors)
                data = await asyncio.get_running_loop().sock_recv(self._socket, REQUEST_BYTES_MAX)
            answer: dict[str, Any] = msgspec.json.decode(data)
        except (OSError, TimeoutError, msgspec.DecodeError) as error:
            self._is_usable = False
            return {"error": str(error)}
        return answer

    async def close(self) -> None:
        """End the process; what was forked lives on."""
        self._is_usable = False
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        async with self._turn:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            if self._process is not None:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()


def _load(module: str) -> dict[str, object]:
    """Import what a component opens. A failure is told; who executes the module is told more."""
    try:
        importlib.import_module(f"{module}.__main__").load()
    except Exception as error:  # whatever a module raises while it is imported
        return {"error": repr(error)}
    return {}


def _fork(log: int) -> int:
    """Return the process id of a child that its grandparent adopts; 0 in that child."""
    gc.freeze()
    reader, writer = os.pipe()
    middle = os.fork()
    if middle:
        os.close(writer)
        os.waitpid(middle, 0)
        with open(reader, "rb") as pipe:
            return int(pipe.read() or b"-1")
    middle = os.getpid()
    if child := os.fork():
        os.write(writer, str(child).encode())
        os._exit(0)
    os.close(reader)
    os.close(writer)
    while os.getppid() == middle:
        time.sleep(ADOPTED_POLL_S)
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return 0


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Answer requests until there are none; return the request in the process that was forked for it."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 1)
        if not data:
            return None
        request: dict[str, Any] = msgspec.json.decode(data)
        if "load" in request:
            connection.send(msgspec.json.encode(_load(request["load"])))
            continue
        pid = _fork(descriptors[0])
        if pid == 0:
            return request
        os.close(descriptors[0])
        connection.send(msgspec.json.encode({"pid": pid} if pid > 0 else {"error": "not forked"}))


def main() -> None:
    """Serve; in a process that was forked run its module."""
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        request = _serve(connection)
    if request is None:
        return
    module, arguments = request["module"], request["arguments"]
    os.environ.clear()
    os.environ.update(request["environment"])
    random.seed()
    kernel.rename_process([sys.executable, "-P", "-m", module, *arguments])
    sys.argv[1:] = arguments
    del sys.modules[f"{module}.__main__"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
