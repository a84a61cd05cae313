"""The live page beside a mesh that `keplab up` attends: a process of its own, which begins again when it ends."""

import asyncio
import contextlib
import os
import secrets
import sys
from pathlib import Path
from typing import Final

from services.runtime.config import PARENT_VARIABLE, MeshError
from services.runtime.credentials import FOLDER, PAGE_TOKEN_FILE
from services.runtime.real import write_atomically

READY_MAX_S: Final = 30.0
AGAIN_S: Final = 2.0


class PageProcess:
    """`keplab ui` of the mesh on a data directory. Its token and its port stay the same as long as the mesh runs."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._token = secrets.token_hex(32)
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Return the address that opens it, once it answers. Raises: MeshError, OSError."""
        path = self._data / FOLDER / PAGE_TOKEN_FILE
        write_atomically(path, self._token.encode(), mode=0o600)
        address = await self._begin()
        self._port = int(address.partition("/ui/")[0].rpartition(":")[2])
        self._keeper = asyncio.create_task(self._keep())
        return f"{address.partition('#')[0]}#t={self._token}"

    async def _begin(self) -> str:
        log = (self._data / "logs" / "ui.log").open("ab")
        with log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "services.cli",
                "ui",
                *("--data", str(self._data), "--port", str(self._port)),
                *("--token-file", str(self._data / FOLDER / PAGE_TOKEN_FILE), "--die-with-parent"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, PARENT_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(READY_MAX_S):
                line = (await self._process.stdout.readline()).decode().strip()
        except TimeoutError:
            line = ""
        if not line:
            await self.stop()
            raise MeshError(f"the live page did not start; see {self._data / 'logs' / 'ui.log'}")
        return line

    async def _keep(self) -> None:
        while self._process is not None:
            await self._process.wait()
            await asyncio.sleep(AGAIN_S)
            with contextlib.suppress(MeshError, OSError):
                await self._begin()

    async def stop(self) -> None:
        """End it."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
