"""Effect of many HTTPS requests that begin at once, each on a connection of its own, on an API server's event
loop: `python -m lab.benchmarks.server.handshakes [COUNT]`.

The server runs in this process as `keplab up` has it. COUNT clients of another process begin at once; a
third process gets a namespace every 20 ms. A hold is the CPU time of one turn of the loop, with all
callbacks that were ready in it: other requests wait that long.
"""

import asyncio
import gc
import http.client
import multiprocessing
import socket
import ssl
import sys
import tempfile
import time
from asyncio.base_events import BaseEventLoop
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from lab.benchmarks.result import Result
from lab.benchmarks.server.definitions import running_server
from services.api.identity import ADMIN
from services.runtime.certificates import authority
from services.runtime.process import GC_THRESHOLDS

COUNT: Final = 1_000
PACE_S: Final = 0.02
TOKEN: Final = "bench"
PATH: Final = "/api/v1/namespaces/default"
HEADERS: Final = {"Authorization": f"Bearer {TOKEN}", "User-Agent": "bench/1"}


@dataclass
class HandshakesResult(Result):
    """Figures of `count` requests at once; times in milliseconds. `answered`: how many were answered with 200.

    `hold_ms`: CPU time of the longest turn of the loop; `cpu_ms`: that of all turns. `get_p50_ms`,
    `get_longest_ms`: wall times of the gets beside them.
    """

    count: int
    answered: int
    hold_ms: float
    cpu_ms: float
    get_p50_ms: float
    get_longest_ms: float


class Turns:
    """CPU time of the event loop's turns, measured inside the context."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.all_s = 0.0

    def __enter__(self) -> "Turns":
        self._run = run = BaseEventLoop._run_once  # type: ignore[attr-defined]

        def timed_run(loop: BaseEventLoop) -> None:
            begun = time.thread_time()
            run(loop)
            used_s = time.thread_time() - begun
            self.longest_s, self.all_s = max(self.longest_s, used_s), self.all_s + used_s

        BaseEventLoop._run_once = timed_run  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        BaseEventLoop._run_once = self._run  # type: ignore[attr-defined]


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _clients(port: int, count: int) -> int:
    """Make `count` requests at once, each on a connection of its own; return how many were answered with 200."""
    context = _trusting()
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    request = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(request)
        line = await reader.readline()
        writer.close()
        return line

    async def ask_all() -> int:
        lines = await asyncio.gather(*(ask() for _ in range(count)), return_exceptions=True)
        return sum(isinstance(line, bytes) and b" 200 " in line for line in lines)

    return asyncio.run(ask_all())


def _gets(port: int, ends: Any) -> list[float]:
    """Get a namespace again and again until `ends`, an event, is set; return the seconds that each took."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=_trusting())
    times_s: list[float] = []
    while not ends.wait(PACE_S):
        begun = time.perf_counter()
        connection.request("GET", PATH, headers=HEADERS)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        times_s.append(time.perf_counter() - begun)
    connection.close()
    return times_s[1:]  # the first one also connects


async def _measure(count: int) -> HandshakesResult:
    with tempfile.TemporaryDirectory() as folder:
        files, tokens = authority(Path(folder)).server("apiserver"), Path(folder) / "tokens.json"
        tokens.write_bytes(msgspec.json.encode([{"token": TOKEN, "user": ADMIN.user, "groups": ADMIN.groups}]))
        config = {"tls_cert_file": str(files.certificate), "tls_private_key_file": str(files.key)}
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        async with running_server(port, token_file=str(tokens), **config):
            with context.Manager() as manager, ProcessPoolExecutor(2, mp_context=context) as pool:
                loop, ends = asyncio.get_running_loop(), manager.Event()
                getting = loop.run_in_executor(pool, _gets, port, ends)
                await asyncio.sleep(1.0)
                gc.collect()
                gc.freeze()
                with Turns() as turns:
                    answered = await loop.run_in_executor(pool, _clients, port, count)
                ends.set()
                times_s = await getting
    milliseconds = [1000 * each for each in times_s]
    return HandshakesResult(
        count=count,
        answered=answered,
        hold_ms=round(1000 * turns.longest_s, 1),
        cpu_ms=round(1000 * turns.all_s, 1),
        get_p50_ms=round(median(milliseconds), 2),
        get_longest_ms=round(max(milliseconds), 1),
    )


def bench_handshakes(*, count: int = COUNT) -> HandshakesResult:
    """Measure in this process, whose collector is set as an API server's is."""
    gc.set_threshold(*GC_THRESHOLDS)
    return asyncio.run(_measure(count))


if __name__ == "__main__":
    result = bench_handshakes(count=int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)
    print(f"{result.answered:,} of {result.count:,} answered; ", end="")  # noqa: T201
    print(f"longest hold {result.hold_ms:.0f} ms, {result.cpu_ms:.0f} ms in all; ", end="")  # noqa: T201
    print(f"a GET beside them: p50 {result.get_p50_ms:.1f} ms, longest {result.get_longest_ms:.0f} ms")  # noqa: T201
