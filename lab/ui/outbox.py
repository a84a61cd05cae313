"""Queue of frames for one page, within a budget: nothing is left out silently, nothing grows without end. Pure.

While a page keeps up it is sent every frame. Above the budget changes of rows are merged, the newest wins.
Rates and counts replace the ones before, and so do documents about one job or fault. Event lines are cut, and a
*gap* says so.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from lab.recordings import frames
from lab.recordings.model import Model

BUDGET_BYTES: Final = 4 << 20
ROWS_A_FRAME: Final = 20_000
TABLES: Final = ("nodes", "pods")
REPLACED: Final = frozenset((frames.RATES, frames.POOLS))
DOCUMENTS_MAX: Final = 500
"""Largest number of documents on different subjects that wait for a slow page; beyond it the oldest is cut."""


class Outbox:
    """Frames that wait to be sent to one page."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget = budget_bytes
        self._queue: deque[tuple[bytes, int]] = deque()
        """Frames, and how much of the budget each takes."""
        self._newest: dict[tuple[int, str], bytes] = {}
        self._rows: dict[str, dict[int, None]] = {table: {} for table in TABLES}
        self._strings = 0
        """How many strings the page was sent, or will be by what waits."""
        self._is_behind = False
        self._gap: dict[str, Any] | None = None
        self._rest: Iterator[bytes] = iter(())
        self.waiting_bytes = 0
        self.merged_total = self.cut_lines_total = self.cut_documents_total = 0

    def reset(self, whole: Iterable[bytes], strings: int) -> None:
        """Drop the waiting frames and send all columns. `strings`: the number of strings that these frames bring."""
        self._queue.clear()
        self._gap = None
        for kind in REPLACED:
            self._newest.pop((kind, ""), None)
        self.replace(whole, strings)

    def replace(self, whole: Iterable[bytes], strings: int) -> None:
        """Send all columns in place of the waiting ones; lines and documents wait behind them."""
        others = [(frame, size) for frame, size in self._queue if frame[0] > frames.DELTA]
        self._queue = deque([*((frame, 0) for frame in whole), *others])
        for rows in self._rows.values():
            rows.clear()
        self._is_behind = False
        self.waiting_bytes, self._strings = sum(size for _, size in others), strings

    def _fits(self, frame: bytes) -> bool:
        return not self._is_behind and self.waiting_bytes + len(frame) <= self._budget

    def _put(self, frame: bytes) -> None:
        self._queue.append((frame, len(frame)))
        self.waiting_bytes += len(frame)

    def put_columns(
        self, new_frames: Iterable[bytes], changed: Mapping[str, Iterable[int]], strings: int, rv: int
    ) -> None:
        """Send frames of strings and changed rows.

        `changed`: numbers of these rows, by table; `strings`: number of all strings.
        """
        for frame in new_frames:
            if self._fits(frame):
                self._put(frame)
                continue
            self._is_behind = True
            self._note_gap(rv)
        if not self._is_behind:
            self._strings = strings
            return
        for table, rows in changed.items():
            self._rows[table].update(dict.fromkeys(rows))
        self.merged_total += 1

    def put_lines(self, frame: bytes, count: int, rv: int) -> None:
        """Send event lines; above the budget note instead that they are missing."""
        if self._fits(frame):
            self._put(frame)
            return
        self.cut_lines_total += count
        self._note_gap(rv)["lines"] += count

    def note_missing(self, count: int, rv: int) -> None:
        """Note that `count` lines are not sent."""
        self._note_gap(rv)["lines"] += count

    def put_rest(self, made: Iterator[bytes]) -> None:
        """Send these frames one by one when nothing else waits; they replace those of an earlier call.

        Lines of a recording cannot come too fast, so none of these frames is cut, and `reset` keeps them.
        """
        self._rest = made

    def put(self, kind: int, frame: bytes, about: str = "", rv: int = 0) -> None:
        """Send a document. Of rates and counts only the newest is kept.

        Above the budget only the newest document of each kind and subject `about` is kept.
        """
        if kind not in REPLACED and self._fits(frame):
            self._put(frame)
            return
        key = kind, about
        self._newest.pop(key, None)
        self._newest[key] = frame
        if len(self._newest) > DOCUMENTS_MAX:
            del self._newest[next(each for each in self._newest if each[0] not in REPLACED)]
            self.cut_documents_total += 1
            self._note_gap(rv)

    def _note_gap(self, rv: int) -> dict[str, Any]:
        if self._gap is None:
            self._gap = {"from": rv, "to": rv, "lines": 0}
        self._gap["to"] = rv
        return self._gap

    def take(self, model: Model | None) -> bytes | None:
        """Return the next frame; None if there is nothing to send. `model`: source of merged rows."""
        if self._queue:
            frame, size = self._queue.popleft()
            self.waiting_bytes -= size
            return frame
        if self._gap is not None:
            gap, self._gap = self._gap, None
            rv, time = (model.rv, model.time) if model is not None else (int(gap["to"]), 0.0)
            return frames.document_frame(frames.GAP, gap, rv, time)
        if self._is_behind and model is not None:
            return self._caught_up(model)
        for key in self._newest:
            return self._newest.pop(key)
        return next(self._rest, None)

    def _caught_up(self, model: Model) -> bytes:
        """Return the next piece of what was merged, as it is now; the last one may have no rows, and says the
        version."""
        if self._strings < len(model.strings):
            begin, self._strings = max(1, self._strings), len(model.strings)
            return frames.strings_frame(model.strings[begin:], begin, model.rv, model.time)
        table = next((table for table, rows in self._rows.items() if rows), TABLES[-1])
        rows, columns = self._rows[table], model.columns(table)
        some = [row for row, _ in zip(sorted(rows), range(ROWS_A_FRAME), strict=False)]
        for row in some:
            del rows[row]
        self._is_behind = any(self._rows.values())
        numbers = np.array([row for row in some if row < len(columns["name"])], np.uint32)
        picked = {name: values[numbers] for name, values in columns.items()}
        return frames.delta_frame(table, numbers, picked, model.rv, model.time)
