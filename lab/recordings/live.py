"""Record a running mesh: one watch for each kind, and the tails of its event and span files.

Changes before the start are recorded as far back as the API server's watch window goes; older versions come
from the event log, without bodies. The recorder is a client like any other: the server cuts a watch that is too
slow, and it resumes where it was.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from lab.recordings.format import DELETED
from lab.recordings.writer import Writer
from services.api.errors import UNREADABLE, ApiError, Expired, Forbidden, NotFound, UnknownOutcome, from_status
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.resources import resources
from services.api.seams import Clock, Random
from services.api.times import format_micro_time
from services.api.wire import Api, Request, WatchEvent, WatchRequest
from services.client.client import Backoff
from services.telemetry.event_reader import Follower, read_all
from services.telemetry.eventlog import Line
from services.telemetry.spans import FinishedSpan

POLL_S: Final = 0.2
FLUSH_S: Final = 1.0
BEFORE_S: Final = 300.0
"""Seconds before the start from which lines and spans are recorded: the watch window of an API server."""
_NOTHING_TO_FOLLOW: Final = (NotFound, Forbidden)


async def record_mesh(
    writer: Writer,
    api: Api,
    *,
    clock: Clock,
    random: Random,
    events: Path | None = None,
    spans: Path | None = None,
    kinds: Sequence[str] = (),
    on_flush: Callable[[Writer], None] | None = None,
) -> None:
    """Record until cancelled, or until the disk refuses; the caller closes the writer.

    `events`, `spans`: the folders of the mesh's files. `kinds`: wire names, () for all that are built in; kinds
    that CustomResourceDefinitions define are followed as well. `on_flush` is called once a second, when the
    recorded data can be read.
    """
    now_s, wall_s = clock.now(), clock.wall()
    writer.begin(now_s, wall_s)
    following = _Following(writer, api, clock, random, has_lines=events is not None)
    tail = _Tail(writer, events, spans, wall_s - BEFORE_S)
    tail.read_what_was()
    await following.begin(kinds or tuple(resources()))
    try:
        async with asyncio.TaskGroup() as group:
            following.run(group)
            flushed_s = now_s
            while not writer.failure:
                tail.poll()
                if clock.now() - flushed_s >= FLUSH_S:
                    flushed_s = clock.now()
                    writer.flush()
                    if on_flush is not None:
                        on_flush(writer)
                await asyncio.sleep(POLL_S)
            following.stop()
    finally:
        tail.poll()
        writer.flush()


class _Following:
    """The watches, one for each kind."""

    def __init__(self, writer: Writer, api: Api, clock: Clock, random: Random, *, has_lines: bool) -> None:
        self._writer, self._api, self._clock, self._random = writer, api, clock, random
        self._has_lines = has_lines
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._start = ""
        self._kinds: dict[str, None] = {}

    async def begin(self, kinds: Sequence[str]) -> None:
        """Find out how far back the window goes."""
        self._kinds = dict.fromkeys(kinds)
        request = Request(verb="get", resource="namespaces", name="kube-system", subresource="history", limit=1)
        response = await self._api.call(request)
        if response.is_ok:
            start = int(msgspec.json.decode(response.body)["metadata"]["windowStart"])
            self._start = str(max(1, start))  # 0 would be the newest version

    def run(self, group: asyncio.TaskGroup) -> None:
        """Follow all kinds."""
        self._group = group
        for kind in list(self._kinds):
            self._follow(kind)

    def stop(self) -> None:
        """End all watches."""
        for task in self._tasks.values():
            task.cancel()

    def _follow(self, kind: str, *, is_defined: bool = False) -> None:
        if self._group is not None and kind not in self._tasks:
            self._tasks[kind] = self._group.create_task(self._keep(kind, is_defined))

    async def _keep(self, kind: str, is_defined: bool) -> None:
        """Follow one kind. One that is built in may be switched off; one that is defined is served a moment later."""
        backoff, rv = Backoff(self._random), ""
        with suppress(ApiError, UnknownOutcome):  # then the watch begins with what is stored
            rv = await self._record_list(kind)
        while True:
            try:
                async with aclosing(self._events(kind, rv)) as versions:
                    async for reached in versions:
                        rv = str(reached)
                        backoff.reset()
            except _NOTHING_TO_FOLLOW:
                if not is_defined:
                    return
            except Expired:
                rv = ""
                continue
            except (ApiError, UnknownOutcome):
                pass
            await asyncio.sleep(backoff.next_s())

    async def _record_list(self, kind: str) -> str:
        """Record what was stored when the window began; return that version. Raises: ApiError, UnknownOutcome."""
        request = Request(verb="list", resource=kind, at=self._start)
        found = (await self._api.call(request)).unwrap()
        for body in msgspec.json.decode(found.body, type=_List).items:
            self._stored_now(kind, bytes(body))
        return self._start or str(found.rv)

    async def _events(self, kind: str, rv: str) -> AsyncGenerator[int, None]:
        request = WatchRequest(
            resource=kind,
            resource_version=rv,
            resource_version_match="" if rv else "NotOlderThan",
            send_initial_events=not rv,
        )
        is_initial = not rv
        stream = self._api.watch(request)
        try:
            async for batch in stream:
                for event in batch:
                    if event.type == "ERROR":
                        raise _error_of(event)
                    if event.type == "BOOKMARK":
                        is_initial = is_initial and not event.initial_events_end
                    elif is_initial:
                        self._stored_now(kind, event.body)
                    else:
                        self._on_changed(kind, event)
                if batch and not is_initial:
                    yield batch[-1].rv
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    def _stored_now(self, kind: str, body: bytes) -> None:
        """Record what is there, whether or not a line of the event log says so."""
        self._learn(kind, body)
        self._writer.write_object(kind, body)

    def _on_changed(self, kind: str, event: WatchEvent) -> None:
        """Record a change; its version is in the line of its commit, which comes sooner or later."""
        if event.type != DELETED:
            self._learn(kind, event.body)
        if self._has_lines:
            self._writer.body(kind, event.rv, event.body)
        else:
            self._writer.write_object(kind, event.body, event.type, self._clock.now())

    def _learn(self, kind: str, body: bytes) -> None:
        if kind == DEFINITIONS and (defined := _defined_by(body)):
            self._follow(defined, is_defined=True)


class _List(msgspec.Struct):
    items: list[msgspec.Raw] = []


def _defined_by(body: bytes) -> str:
    """Return the wire name of the kind that a definition defines."""
    try:
        spec: dict[str, Any] = msgspec.json.decode(body)["spec"]
        return f"{spec['names']['plural']}.{spec['group']}"
    except (*UNREADABLE, LookupError, TypeError):
        return ""


def _error_of(event: WatchEvent) -> ApiError:
    try:
        code = int(msgspec.json.decode(event.body)["code"])
    except (*UNREADABLE, LookupError, TypeError, ValueError):
        code = 500
    return from_status(code, event.body)


class _Tail:
    """Reader of the processes' event and span files: lines since a given time, and then all new ones."""

    def __init__(self, writer: Writer, events: Path | None, spans: Path | None, since_s: float) -> None:
        self._writer, self._events, self._spans, self._since_s = writer, events, spans, since_s
        self._follower = Follower(events) if events is not None else None
        self._seen: dict[tuple[str, str], int] = {}
        self._offsets: dict[Path, int] = {}

    def read_what_was(self) -> None:
        """Record what the files have."""
        if self._events is not None:
            for line in read_all(self._events, format_micro_time(self._since_s)):
                self._line(line)

    def poll(self) -> None:
        """Record what is new in the files."""
        for line in self._follower.poll() if self._follower is not None else ():
            self._line(line)
        for span in self._new_spans():
            if span.end_ns >= self._since_s * 1e9:
                self._writer.span(span)

    def _line(self, line: Line) -> None:
        # What was written between two looks is seen twice.
        if line.seq > self._seen.get((line.comp, line.inc), 0):
            self._seen[line.comp, line.inc] = line.seq
            self._writer.line(line)

    def _new_spans(self) -> Iterator[FinishedSpan]:
        for path in sorted(self._spans.glob("*.jsonl")) if self._spans is not None else ():
            try:
                with path.open("rb") as file:
                    file.seek(self._offsets.get(path, 0))
                    data = file.read()
            except OSError:
                continue
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            for text in whole.splitlines():
                try:
                    yield msgspec.json.decode(text, type=FinishedSpan)
                except UNREADABLE:
                    continue
