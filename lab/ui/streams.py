"""Data beside the socket: event lines for curl, and the spans of a mesh's processes."""

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lab.ui import documents
from lab.ui.lines import Entry
from services.telemetry.spans import FinishedSpan
from services.telemetry.traces import read_spans

BUDGET_BYTES: Final = 1 << 20


class EventStream:
    """Server-sent events for one client. Above a budget lines are cut, and a `gap` event says how many."""

    def __init__(self) -> None:
        self._queue: deque[bytes] = deque()
        self._bytes = self._cut = 0
        self._wake = asyncio.Event()
        self._is_over = False

    def whole(self, made: Sequence[bytes]) -> None:
        """Ignore columns: the stream is text."""

    def columns(self, made: Sequence[bytes], changed: dict[str, Sequence[int]]) -> None:
        """Ignore columns: the stream is text."""

    def document(self, kind: int, frame: bytes, about: str = "") -> None:
        """Ignore documents."""

    def lines(self, entries: Sequence[Entry]) -> None:
        """Send event lines."""
        for entry in entries:
            text = b"id: %b\ndata: %b\n\n" % (entry.line.wall.encode(), entry.raw)
            if self._bytes + len(text) > BUDGET_BYTES:
                self._cut += 1
                continue
            if self._cut:
                self._put(b'event: gap\ndata: {"lines":%d}\n\n' % self._cut)
                self._cut = 0
            self._put(text)
        self._wake.set()

    def _put(self, text: bytes) -> None:
        self._queue.append(text)
        self._bytes += len(text)

    def end(self) -> None:
        """End the stream: `next` returns None once everything is sent."""
        self._is_over = True
        self._wake.set()

    async def next(self) -> bytes | None:
        """Return the next bytes to send; None at the end."""
        while not self._queue:
            if self._is_over:
                return None
            self._wake.clear()
            await self._wake.wait()
        text = b"".join(self._queue)
        self._queue.clear()
        self._bytes = 0
        return text


class SpanFiles:
    """Spans written by a mesh's processes, read when a trace is asked for; unchanged files are not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[int, list[FinishedSpan]]] = {}
        self._lock = asyncio.Lock()

    async def trace(self, namespace: str, name: str, *, whole: bool) -> dict[str, Any]:
        """Return a pod's trace. Raises: NotFound."""
        async with self._lock:
            return await asyncio.to_thread(self._trace, namespace, name, whole)

    def _trace(self, namespace: str, name: str, whole: bool) -> dict[str, Any]:
        spans: list[FinishedSpan] = []
        paths = sorted(self._folder.glob("*.jsonl"))
        self._read = {path: kept for path, kept in self._read.items() if path in paths}
        for path in paths:
            try:
                size = path.stat().st_size
                known = self._read.get(path)
                if known is None or known[0] != size:
                    known = self._read[path] = (size, list(read_spans(path)))
            except OSError:
                continue  # removed to make space
            spans += known[1]
        return documents.trace(spans, namespace, name, whole=whole)
