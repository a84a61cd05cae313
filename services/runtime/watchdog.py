"""The watchdog of a process: it logs work that takes too long, with the stack of its task (P15).

The process itself checks every five seconds, so that the work has almost no overhead.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

SLOW_S = 30.0
"""Seconds after which work is reported (P15)."""
LOOK_PERIOD_S = 5.0
FRAMES_MAX = 12

UnderWay = Mapping[str, tuple[object, "asyncio.Task[Any]"]]
"""Work in progress by name: a mark that changes when the work starts anew, and its task."""

_log = structlog.get_logger()


def stack_of(task: "asyncio.Task[Any]") -> list[str]:
    """Return the stack of a waiting task, the outermost frame first, as `FILE:LINE FUNCTION`."""
    frames: list[str] = []
    waiting: Any = task.get_coro()
    while waiting is not None and len(frames) < FRAMES_MAX:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            break
        frames.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return frames


class Watchdog:
    """Start times of work in progress; each work is reported once."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[object, float]] = {}
        self._reported: dict[str, object] = {}

    def look(self, under_way: UnderWay, now: float) -> list[str]:
        """Log work that has taken too long, and return its names."""
        known, self._since = self._since, {}
        overdue_names: list[str] = []
        for name, (mark, task) in under_way.items():
            before = known.get(name)
            since = before[1] if before is not None and before[0] is mark else now
            self._since[name] = mark, since
            if now - since >= SLOW_S and self._reported.get(name) is not mark:
                self._reported[name] = mark
                overdue_names.append(name)
                _log.warning("work.overdue", work=name, for_s=round(now - since), frames=stack_of(task))
        self._reported = {name: mark for name, mark in self._reported.items() if name in self._since}
        return overdue_names
