"""The watchdog of a process: work that is under way for too long is logged with the stack of its task (P15).

It is the process that looks, every five seconds, so that work itself costs next to nothing for it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

SLOW_S = 30.0
"""Work that takes longer is reported (P15)."""
LOOK_PERIOD_S = 5.0
FRAMES_MAX = 12

UnderWay = Mapping[str, tuple[object, "asyncio.Task[Any]"]]
"""What is under way by its name: a mark that is another one when the work begins anew, and the task that does it."""

_log = structlog.get_logger()


def stack_of(task: "asyncio.Task[Any]") -> list[str]:
    """Return where a task waits, the outermost frame first, as `FILE:LINE FUNCTION`."""
    found: list[str] = []
    waiting: Any = task.get_coro()
    while waiting is not None and len(found) < FRAMES_MAX:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            break
        found.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return found


class Watchdog:
    """Remembers since when what was under way, and reports each work once."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[object, float]] = {}
        self._reported: dict[str, object] = {}

    def look(self, under_way: UnderWay, now: float) -> list[str]:
        """Log what has been under way for too long, and return its names."""
        known, self._since = self._since, {}
        found: list[str] = []
        for name, (mark, task) in under_way.items():
            before = known.get(name)
            since = before[1] if before is not None and before[0] is mark else now
            self._since[name] = mark, since
            if now - since >= SLOW_S and self._reported.get(name) is not mark:
                self._reported[name] = mark
                found.append(name)
                _log.warning("work.overdue", work=name, for_s=round(now - since), frames=stack_of(task))
        self._reported = {name: mark for name, mark in self._reported.items() if name in self._since}
        return found
