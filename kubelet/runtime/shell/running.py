"""Processes of emulated containers in real time: the driver of the interpreter's generators."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from kubelet.runtime.outcome import Interrupted
from kubelet.runtime.shell.interpreter import Process, Read, Sleep, Write

Show = Callable[[int, bytes], Awaitable[None]]
"""Takes output: the stream, 1 or 2, and the bytes."""
BREATH = 64
"""Number of effects in a row after which the process lets others run."""
INTERRUPTED = 130


class Keyboard(Protocol):
    """The input of a process, and its interrupts."""

    def take_interrupt(self) -> bool:
        """Return whether SIGINT was sent, and reset that."""
        ...

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end. Raises: Interrupted."""
        ...

    async def sleep(self, seconds: float) -> bytes:
        """Let time pass, return b"". Raises: Interrupted."""
        ...


async def drive(process: Process, keyboard: Keyboard, show: Show) -> int:
    """Run a process to its end and return its exit code. Raises: ConnectionError when its output cannot be sent."""
    answer: bytes | None = None
    is_interrupted, count = False, 0
    try:
        while True:
            try:
                effect = process.throw(Interrupted()) if is_interrupted else process.send(answer)
            except StopIteration as end:
                return int(end.value)
            except Interrupted:
                return INTERRUPTED
            answer, is_interrupted, count = None, False, count + 1
            if count % BREATH == 0:
                await asyncio.sleep(0)
            try:
                match effect:
                    case Read():
                        answer = await keyboard.read()
                    case Write(stream, data):
                        await show(stream, data)
                        is_interrupted = keyboard.take_interrupt()
                    case Sleep(seconds):
                        await keyboard.sleep(seconds)
            except Interrupted:
                is_interrupted = True
    finally:
        process.close()
