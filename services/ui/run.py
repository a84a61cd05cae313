"""One life of the page's server: what it is made of, from the first connection to the last."""

import asyncio
import contextlib
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from services.runtime.config import MeshError
from services.ui.access import Place
from services.ui.asking import Explainers
from services.ui.live import Live
from services.ui.objects import Objects
from services.ui.rest import Rest
from services.ui.server import Server, Settings
from services.ui.session import Sessions

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
SHUTDOWN_S: Final = 2.0


@dataclass(frozen=True)
class Options:
    """Where the server listens, and what opens it. `hosts`: further names it may be addressed by."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    hosts: tuple[str, ...] = ()


def url_of(host: str, port: int, token: str) -> str:
    """Return the address that opens the page; the fragment is neither sent nor logged."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/ui/#t={token}"


async def serve(options: Options, settings: Settings, place: Place | None, on_ready: Callable[[str], None]) -> int:
    """Serve until a signal; return its number. `on_ready` is called with the address. Raises: MeshError."""
    token = options.token or secrets.token_hex(32)
    sessions = Sessions(token, secrets.token_hex(32), secrets.token_hex(32), options.hosts)
    stop, received = asyncio.Event(), [signal.SIGTERM]

    def on_signal(number: signal.Signals) -> None:
        received[:] = [number]
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    async with contextlib.AsyncExitStack() as stack:
        live = objects = explainers = None
        if place is not None:
            transport = place.access.transport()
            stack.push_async_callback(transport.close)
            rest = Rest(place.access.rest_url, place.access.reader, place.access.writer, place.access.trust())
            stack.push_async_callback(rest.close)
            explainers = Explainers(place)
            stack.push_async_callback(explainers.close)
            live = Live(place, rest, transport.api)
            objects = Objects(rest, may_write=settings.may_write)
            await live.look()
        server = Server(sessions, settings, live, objects, explainers)
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, options.host, options.port)
        try:
            await site.start()
        except OSError as error:
            raise MeshError(f"{options.host}:{options.port}: {error.strerror}") from None
        port = runner.addresses[0][1]
        following = asyncio.create_task(live.run() if live is not None else _nothing())
        stack.push_async_callback(_ended, following)
        on_ready(url_of(options.host, port, token))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for socket in list(server.sockets):
            await socket.close(code=1001, message=b"the server ends")
        if following.done():
            following.result()
        return received[0]


async def _nothing() -> None:
    await asyncio.Event().wait()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task


def read_token(path: Path) -> str:
    """Return the token of a file that only its owner may read. Raises: MeshError."""
    try:
        mode, text = path.stat().st_mode, path.read_text("ascii").strip()
    except (OSError, UnicodeError) as error:
        raise MeshError(f"--token-file {path}: {getattr(error, 'strerror', None) or error}") from None
    if mode & 0o077:
        raise MeshError(f"--token-file {path}: others may read it (mode {mode & 0o777:04o}); want 0600 or 0400")
    return text
