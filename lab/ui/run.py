"""Run the page's server: build its parts, and serve from the first connection to the last."""

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from lab.recordings import frames
from lab.recordings.writer import BeingRecorded, NotRecordable
from lab.ui.access import Place
from lab.ui.alarms import Alarms
from lab.ui.commands import CommandLog
from lab.ui.component_queries import Explainers
from lab.ui.jobs import Job, Jobs
from lab.ui.live import Live
from lab.ui.objects import Objects
from lab.ui.rest import Rest
from lab.ui.runs import LiveRecorder, Run, Runs, open_runs
from lab.ui.server import Parts, Server, ServerLog, Settings
from lab.ui.session import TOKEN_BYTES_MIN, Sessions
from lab.ui.streams import SpanFiles
from services.api.errors import ApiError
from services.runtime.config import MeshError

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
SHUTDOWN_S: Final = 2.0
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
COMPLETED_SOON: Final = 10_000
"""Number of versions up to which a recording is completed within about a second."""
PAGES_MAX: Final = 9
"""Largest number of servers that may record one mesh, each into a file of its own, if no file was named."""
GC_THRESHOLDS: Final = (10_000, 20, 50)
"""Thresholds of the garbage collector: a second brings more objects than Python's defaults, and nearly no cycles."""
Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Options:
    """Options of the server: its address, its token, and what it shows. `hosts`: further host names of the server.
    `recording`: where the mesh is recorded; None: nowhere. `must_record`: whether it is an error if that is not
    possible; otherwise the mesh is shown without. `tops`: folders with the scenarios that may be run, `results`:
    where their results go.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    hosts: tuple[str, ...] = ()
    runs: tuple[Path, ...] = ()
    recording: Path | None = None
    must_record: bool = False
    tops: tuple[Path, ...] = ()
    results: Path = Path("runs/ui")


def url_of(host: str, port: int, token: str) -> str:
    """Return the address that opens the page; its fragment, the token, is neither sent nor logged."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/ui/#t={token}"


async def serve(
    options: Options,
    settings: Settings,
    place: Place | None,
    on_ready: Callable[[str], None],
    on_completing: Callable[[Path, int], None],
) -> int:
    """Serve until a signal; return its number.

    `on_ready` is called with the address. `on_completing` is called with the recording and its number of versions,
    before a recording is completed that takes long. Another signal then leaves it incomplete, readable like that of
    a killed process. Raises: MeshError.
    """
    token = options.token or secrets.token_hex(32)
    sessions = Sessions(token, secrets.token_hex(32), secrets.token_hex(32), options.hosts)
    stop, received = asyncio.Event(), [signal.SIGTERM]

    def on_signal(number: signal.Signals) -> None:
        received[:] = [number]
        stop.set()

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    recorded = open_runs(options.runs)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    async with contextlib.AsyncExitStack() as stack:
        parts, work = await _parts(options, settings, place, recorded, stack)
        server = Server(sessions, settings, parts)
        log = ServerLog(logging.getLogger(__name__))
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=SHUTDOWN_S, logger=log)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, options.host, options.port).start()
        except OSError as error:
            raise MeshError(f"{options.host}:{options.port}: {os.strerror(error.errno or 0)}") from None
        following = asyncio.create_task(_together(work))
        stack.push_async_callback(_cancel_task, following)
        stack.push_async_callback(server.close)
        on_ready(url_of(options.host, runner.addresses[0][1], token))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if following.done():
            following.result()
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
        recorder = parts.runs.recorder
        if recorder is not None and recorder.writer.version_count > COMPLETED_SOON:
            on_completing(recorder.writer.path, recorder.writer.version_count)
        return received[0]


async def _parts(
    options: Options, settings: Settings, place: Place | None, recorded: list[Run], stack: contextlib.AsyncExitStack
) -> tuple[Parts, list[Work]]:
    """Return what the server is made of, and what goes on beside it; the stack closes it."""
    runs = Runs(recorded)

    def on_progress(job: Job) -> None:
        if job.state == "Succeeded":
            for run in open_runs([job.recordings]) if job.recordings.is_dir() else ():
                runs.add(run)
        if runs.live is not None:
            runs.live.announce(frames.JOB, job.document(), job.id)

    jobs = Jobs(options.tops, options.results, on_progress)
    work: list[Work] = [jobs.run]
    if place is None:
        return Parts(runs, jobs), work
    transport = place.access.transport()
    stack.push_async_callback(transport.close)
    rest = place.access.rest()
    stack.push_async_callback(rest.close)
    explainers = Explainers(place)
    stack.push_async_callback(explainers.close)
    live = runs.live = Live(place, rest, transport.api)
    await live.look()
    if options.recording is not None:
        try:
            recorder = runs.recorder = _recorder(options, live, rest, settings.version)
            stack.callback(recorder.close)
            work.append(partial(recorder.run, transport.api))
        except NotRecordable as error:
            if options.must_record:
                raise
            runs.no_recording = str(error)
    pods = 0
    with contextlib.suppress(ApiError):  # an API server that does not answer yet: they are counted as they come
        pods = await rest.count("/api/v1/pods")
    alarms = Alarms(live, pods)
    live.on_look.append(alarms.look)
    commands = CommandLog(live)
    stack.callback(commands.close)
    traces = SpanFiles(place.access.spans) if place.access.spans is not None else None
    objects = Objects(rest, may_write=settings.may_write)
    return Parts(runs, jobs, objects, explainers, alarms, commands, traces), [*work, live.run]


def _recorder(options: Options, live: Live, rest: Rest, version: str) -> LiveRecorder:
    """Begin a recording; where no file was named and another server writes the usual one, in one beside it. Raises:
    NotRecordable."""
    assert options.recording is not None
    path = first = options.recording
    for number in range(2, PAGES_MAX + 1):
        try:
            return LiveRecorder(live, rest, path, version)
        except BeingRecorded:
            if options.must_record:
                raise
            path = first.with_name(f"{first.stem}-{number}{first.suffix}")
    return LiveRecorder(live, rest, path, version)


async def _together(work: list[Work]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each())


async def _cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task


def read_token(path: Path) -> str:
    """Return the token in a file that only its owner may read. Raises: ValueError naming the file."""
    try:
        mode, text = path.stat().st_mode, path.read_text("ascii").strip()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if mode & 0o077:
        raise ValueError(f"{path}: others may read it (mode {mode & 0o777:04o}); want 0600 or 0400")
    if len(text) < TOKEN_BYTES_MIN:
        raise ValueError(f"{path}: has {len(text)} characters; want at least {TOKEN_BYTES_MIN}")
    return text
