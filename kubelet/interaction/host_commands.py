"""Commands that clients run on this machine: `kubectl exec` into pods for which an Exec has `local`.

They run only if `--host-commands` allows it. A command has the environment of this process, without
keplab's own variables, and the variables that the document gives. The end of the session ends the command
and all processes it has started. Source: kubernetes-sigs/kwok pkg/kwok/server/debugging_exec.go; decision
0073.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
from collections.abc import Sequence
from typing import Final

from kubelet.interaction import start_command
from kubelet.interaction.sessions import Session
from services.kwok.kinds.execs import Local
from services.runtime.spdy.connection import Stream

BLOCK_BYTES: Final = 32 << 10


async def run(words: Sequence[str], local: Local, session: Session) -> int:
    """Run a command for a session and return its exit code. Raises: ConnectionError."""
    if not session.is_terminal:
        return await _run_with_pipes(words, local, session)
    return await _run_in_terminal(words, local, session)


async def forward(words: Sequence[str], data: Stream) -> None:
    """Connect a stream with a command's input and output. Raises: ConnectionError."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *_command_line(words, Local()),
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(Local()),
        start_new_session=True,
    )
    assert process.stdout is not None
    feeding = asyncio.create_task(_feed_stream(data, process))
    try:
        while block := await process.stdout.read(BLOCK_BYTES):
            await data.write(block)
        await process.wait()
    finally:
        feeding.cancel()
        await _end(process)


def _command_line(words: Sequence[str], local: Local, *, has_terminal: bool = False) -> tuple[str, ...]:
    """Return the words of a process that becomes the command."""
    security = local.security_context
    user, group = ("" if each is None else str(each) for each in (security.run_as_user, security.run_as_group))
    program = (sys.executable, "-I", "-S", start_command.__file__)
    return (*program, user, group, "1" if has_terminal else "", local.work_dir, *words)


def _environment(local: Local) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("KEPLAB_")}
    return own | {each.name: each.value for each in local.envs}


async def _run_with_pipes(words: Sequence[str], local: Local, session: Session) -> int:
    pipe = asyncio.subprocess.PIPE
    wanted = pipe if session.stdin is not None else asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *_command_line(words, local),
        stdin=wanted,
        stdout=pipe,
        stderr=pipe,
        env=_environment(local),
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    feeding = asyncio.create_task(_feed(session, process)) if session.stdin is not None else None
    showing = [
        asyncio.create_task(_show(number, reader, session))
        for number, reader in ((1, process.stdout), (2, process.stderr))
    ]
    try:
        await asyncio.gather(*showing)
        return _code(await process.wait())
    finally:
        for task in (*showing, *([feeding] if feeding is not None else [])):
            task.cancel()
        await _end(process)


async def _run_in_terminal(words: Sequence[str], local: Local, session: Session) -> int:
    master, slave = os.openpty()
    loop = asyncio.get_running_loop()
    try:
        process = await asyncio.create_subprocess_exec(
            *_command_line(words, local, has_terminal=True),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=_environment(local),
            start_new_session=True,
        )
    finally:
        os.close(slave)
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(master, "rb", 0))
    writing, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(os.dup(master), "wb", 0))

    async def take(data: bytes) -> None:
        if data and not writing.is_closing():
            writing.write(data)

    async def follow_sizes() -> None:
        async for columns, rows in session.sizes():
            with contextlib.suppress(OSError):
                fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows & 0xFFFF, columns & 0xFFFF, 0, 0))

    tasks = [asyncio.create_task(session.copy_input(take)), asyncio.create_task(follow_sizes())]
    try:
        with contextlib.suppress(OSError):  # Linux says that the other end is closed by an error
            while block := await reader.read(BLOCK_BYTES):
                await session.show_as_it_is(block)
        return _code(await process.wait())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writing.close()
        reading.close()
        await _end(process)


async def _feed(session: Session, process: asyncio.subprocess.Process) -> None:
    async def take(data: bytes) -> None:
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            if not data:
                process.stdin.close()
                return
            process.stdin.write(data)
            await process.stdin.drain()

    await session.copy_input(take)


async def _feed_stream(data: Stream, process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        while block := await data.read():
            process.stdin.write(block)
            await process.stdin.drain()
        process.stdin.close()


async def _show(number: int, reader: asyncio.StreamReader, session: Session) -> None:
    while block := await reader.read(BLOCK_BYTES):
        await session.show(number, block)


def _code(returned: int) -> int:
    """Return the exit code as a shell has it: 128 and the number of the signal that ended the process."""
    return 128 - returned if returned < 0 else returned


async def _end(process: asyncio.subprocess.Process) -> None:
    """End what the command has started, and the command."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()
