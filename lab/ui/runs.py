"""Recordings that the page shows beside the mesh, and the recording of the mesh while the page watches it."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

import msgspec
import structlog

from lab.recordings.format import COMMIT, SUFFIX, Meta
from lab.recordings.reader import Recording
from lab.recordings.writer import NotRecordable, Writer
from lab.scenarios.decisions.decision import Decision
from lab.scenarios.recording_summary import decisions_of
from lab.ui import documents
from lab.ui.lines import Entry
from lab.ui.live import Live
from lab.ui.rest import Rest
from lab.ui.spool import Spool
from lab.ui.times import Times
from services.api.errors import ApiError, NotFound, UnknownOutcome
from services.api.wire import Api, WatchEvent, WatchRequest
from services.client.discovery import ServedKind

T = TypeVar("T")
FLUSH_S: Final = 2.0
SIZE_LOOK_S: Final = 30.0
LINES_LAG_MAX_S: Final = 2.0
AT_ONCE: Final = 100
"""Number of objects that are recorded before other tasks get a turn."""
PAST_MAX_S: Final = 1.0
"""Seconds of silence after which a watch of the past is complete."""
HISTORY: Final = "/api/v1/namespaces/kube-system/history"
BYTES_MAX: Final = 2 << 30
"""Largest size in bytes of a recording that an open page makes; then the recording ends."""
_log = structlog.get_logger()


class Run:
    """One recording. Questions are answered in a thread, one at a time, because long reads take a while."""

    def __init__(self, name: str, recording: Recording) -> None:
        self.name, self.recording = name, recording
        # It is played beside the questions, in the loop's own thread.
        recording.guard = Lock()
        self._lock = asyncio.Lock()
        self._decisions: list[Decision] | None = None

    async def ask(self, question: Callable[..., T], *words: Any) -> T:
        """Return the result of `question(recording, *words)`."""
        async with self._lock:
            return await asyncio.to_thread(question, self.recording, *words)

    async def decisions(self) -> list[Decision]:
        """Return the decisions of the recording; those of a complete one are read only once."""
        if self._decisions is None or not self.recording.is_complete:
            self._decisions = await self.ask(decisions_of)
        return self._decisions

    def document(self) -> dict[str, Any]:
        """Return the recording as an element of `/meta`'s runs."""
        return documents.run_document(self.name, self.recording)


def open_runs(paths: Sequence[Path]) -> list[Run]:
    """Return the recordings in files and folders, each with a unique name. Raises: Unreadable."""
    runs: list[Run] = []
    names: dict[str, int] = {"live": 1}
    for path in paths:
        for file in _recording_paths(path):
            recording = Recording.open(file)
            meta = recording.meta
            stem = file.name.removesuffix(SUFFIX)
            name = "/".join(str(part) for part in (meta.scenario, meta.arm, meta.seed) if part != "") or stem
            if not meta.scenario:
                name = stem
            names[name] = names.get(name, 0) + 1
            runs.append(Run(name if names[name] == 1 else f"{name}-{names[name]}", recording))
    return runs


def _recording_paths(path: Path) -> list[Path]:
    """Return the recordings a path means: itself, or those below a folder that is none."""
    if path.is_dir() and not (path / "meta.json").exists():
        return sorted(path.glob(f"*{SUFFIX}"))
    return [path]


class LiveRecorder:
    """Recorder of the changes that the page's own watches bring, and of the event log from its beginning."""

    def __init__(self, live: Live, rest: Rest, path: Path, version: str) -> None:
        """Raises: NotRecordable."""
        self._live, self._rest = live, rest
        self.writer = Writer(
            path,
            Meta(
                title="live",
                mode="mesh",
                switches=list(live.place.access.switches),
                versions={"keplab": version},
                started=_now(),
                not_recorded=["what was written before the window of changes of the API server when the page began"],
            ),
        )
        self.writer.begin(live.zero_s, live.wall_s)
        self._run: Run | None = None
        self.times = Times()
        """When which version was committed, so that no recording is read for that."""
        self._has_new = asyncio.Event()
        self._has_lines = live.place.access.events is not None
        try:
            self._early = Spool(path) if self._has_lines else None
        except OSError as error:
            self.writer.close()
            raise NotRecordable(f"cannot record in {path}: {error.strerror or error}") from None
        """Objects that came before the event log was read to its end; None afterwards."""
        live.on_change.append(self._on_change)
        live.on_lines.append(self._on_lines)

    def _on_change(self, event: WatchEvent, kind: ServedKind, now_s: float) -> None:
        if self._early is not None:
            # What the event log says of them comes first.
            if event.body:
                self._put_aside(self._early, kind.title, event.body)
        elif self._has_lines:
            if event.type != "DELETED":
                self.writer.body(kind.title, event.rv, event.body)
        elif event.body:
            self.times.add(now_s, event.rv)
            self.writer.write_object(kind.title, event.body, event.type, self._live.zero_s + now_s)
            self._has_new.set()

    def _put_aside(self, early: Spool, resource: str, body: bytes) -> None:
        if self.writer.failure:
            return
        if early.size > BYTES_MAX:
            self.writer.failure = f"the recording {self.writer.path} ends: over {BYTES_MAX >> 20} MiB wait for its log"
            return
        try:
            early.add(resource, body)
        except OSError as error:
            self.writer.failure = f"the recording {self.writer.path} ends early: {error.strerror or error}"

    async def _record_early(self, early: Spool) -> None:
        """Record the objects that were there when the page began: those that no line speaks of, too."""
        self._early = None
        try:
            for number, (resource, body) in enumerate(early):
                self.writer.write_object(resource, body)
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            early.close()

    def _on_lines(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            line = entry.line
            if line.ev == COMMIT and line.rv is not None:
                self.times.add(line.mono_ns / 1e9 - self._live.zero_s, line.rv)
            self.writer.line(line, entry.raw)
        self._has_new.set()

    async def run(self, api: Callable[[], Api]) -> None:
        """Write out the recording regularly, so that it can be read, until cancelled.

        First it asks for the bodies that the API server's watch window still has.
        """
        looked_at = time.monotonic()
        past = asyncio.create_task(self._read_window(api()))
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                if self._early is not None and self._live.is_history_read:
                    await self._record_early(self._early)
                self.writer.flush()
                if time.monotonic() - looked_at >= SIZE_LOOK_S:
                    looked_at = time.monotonic()
                    if _size(self.writer.path) > BYTES_MAX and not self.writer.failure:
                        self.writer.failure = f"the recording {self.writer.path} ends at {BYTES_MAX >> 20} MiB"
                        _log.warning("ui.recording_ended", reason=self.writer.failure)
        finally:
            past.cancel()

    async def _read_window(self, api: Api) -> None:
        """Record the bodies of the changes that the API server still has of the time before the page."""
        while not self._live.has_synced:  # noqa: ASYNC110  it happens once, at the begin
            await asyncio.sleep(FLUSH_S / 10)
        try:
            history = await self._rest.get(HISTORY, {"limit": 1})
            begin = int(history["metadata"]["windowStart"])
            for resource, namespace in self._live.followed_kinds():
                await self._read_past(api, resource, namespace, begin)
        except (ApiError, UnknownOutcome) as error:
            _log.info("ui.window_not_read", reason=str(error))

    async def _read_past(self, api: Api, resource: str, namespace: str, begin: int) -> None:
        until = self._live.model.rv
        request = WatchRequest(resource=resource, namespace=namespace, resource_version=str(begin))
        with contextlib.suppress(TimeoutError, ApiError):
            async with asyncio.timeout(PAST_MAX_S) as limit, contextlib.aclosing(api.watch(request)) as batches:  # type: ignore[type-var]
                async for batch in batches:
                    for event in batch:
                        if event.type in ("ADDED", "MODIFIED"):
                            self.writer.body(resource, event.rv, event.body)
                    if batch and batch[-1].rv >= until:
                        return
                    limit.reschedule(asyncio.get_running_loop().time() + PAST_MAX_S)

    async def recording(self, rv: int = 0) -> Run | None:
        """Return the recording so far, to be read; None if it is empty.

        Changes reach the page before their lines of the event log: one that the page shows already, up to version
        `rv`, is awaited for at most `LINES_LAG_MAX_S`.
        """
        until = min(rv, self._live.model.rv)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINES_LAG_MAX_S):
                while self.times.newest_rv < until:
                    self._has_new.clear()
                    await self._has_new.wait()
        if not self.writer.version_count:
            return None
        self.writer.flush()
        if self._run is None:
            self._run = Run("live", await asyncio.to_thread(Recording.open, self.writer.path))
        else:
            await self._run.ask(Recording.refresh)
        return self._run

    def close(self) -> None:
        """End the recording and pack it into one file."""
        if self._early is not None:
            self._early.close()
        if self._run is not None:
            self._run.recording.close()
        self.writer.close(msgspec.structs.replace(self.writer.meta, ended=_now()))


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir()) if folder.is_dir() else 0


class Runs:
    """Everything that may be shown: the mesh, as it is and was, and recordings."""

    def __init__(self, recorded: Sequence[Run], live: Live | None = None, recorder: LiveRecorder | None = None) -> None:
        self._recorded = {run.name: run for run in recorded}
        self.live, self.recorder = live, recorder
        self.no_recording = "it was not asked for"

    def documents(self) -> list[dict[str, Any]]:
        """Return the recordings as `/meta`'s runs."""
        return [each.document() for each in self._recorded.values()]

    @property
    def failure(self) -> str:
        """Reason why the mesh is not or no longer recorded; empty while it is."""
        return self.recorder.writer.failure if self.recorder is not None else self.no_recording

    def add(self, run: Run) -> None:
        """Show one more recording; it replaces one with the same name."""
        self._recorded[run.name] = run

    async def of(self, name: str, rv: int = 0) -> Run:
        """Return the recording with that name; for the mesh the recording so far, with version `rv` if it is shown.

        Raises: NotFound.
        """
        if name in ("", "live") and self.live is not None:
            if self.recorder is None:
                raise NotFound(f"this mesh is not recorded, so that its past cannot be shown: {self.no_recording}")
            run = await self.recorder.recording(rv)
            if run is None:
                raise NotFound("nothing of this mesh is recorded yet")
            return run
        if name not in self._recorded:
            known = ", ".join((*(["live"] if self.live is not None else ()), *self._recorded)) or "none"
            raise NotFound(f"there is no run {name[:100]!r}; there are: {known}")
        return self._recorded[name]
