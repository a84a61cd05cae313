"""Effect of many concurrent TLS handshakes on an API server's event loop:
`python -m lab.benchmarks.server.handshakes [COUNT]`.

The server runs in this process as `keplab up` has it; COUNT clients of another process connect at once. A
hold is the CPU time of one turn of the loop, with all callbacks that were ready in it: other requests
wait that long.
"""

import asyncio
import multiprocessing
import socket
import ssl
import sys
import tempfile
import time
from asyncio.base_events import BaseEventLoop
from pathlib import Path

from lab.benchmarks.server.definitions import running_server
from services.runtime.certificates import authority

COUNT = 1_000


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


def clients(port: int, count: int) -> None:
    """Make `count` TLS handshakes at once."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def connect() -> None:
        opened = await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(count)), return_exceptions=True
        )
        refused = [each for each in opened if isinstance(each, BaseException)]
        print(f"{count - len(refused)} of {count} handshakes")  # noqa: T201

    asyncio.run(connect())


async def main() -> None:
    """Print how long the handshakes held the event loop."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory() as folder:
        files = authority(Path(folder)).server("apiserver")
        tls = {"tls_cert_file": str(files.certificate), "tls_private_key_file": str(files.key)}
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with running_server(port, **tls):
            with Turns() as turns:
                process = multiprocessing.get_context("spawn").Process(target=clients, args=(port, count))
                process.start()
                await asyncio.to_thread(process.join)
            print(f"longest hold {1000 * turns.longest_s:.0f} ms, {1000 * turns.all_s:.0f} ms in all")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
