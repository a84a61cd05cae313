"""Pools of the scheduling queue that pods are in, read from the event-log lines about entering a pool. Pure.

When a scheduler ends, or loses its lease, its pods are in no pool. Source: scheduler-queue-and-cycles 2.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from lab.recordings.rows import POOLS
from services.telemetry.eventlog import Line

SIGNS: Final = (b'"ev":"sched.moved"', b'"ev":"lease.lose"', b'"ev":"fault.inject"', b'"ev":"proc.start"')
"""Byte strings that mark the lines which `Moves` reads."""
_ENDS: Final = ("kill", "restart")


class Move(NamedTuple):
    """The pod enters that pool at `t` (seconds of the recording's clock); "": it leaves the queue."""

    t: float
    uid: str
    pool: str


class Moves:
    """Reader of moves from lines in order."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, None]] = {}
        """By scheduler: the pods that are in some pool."""

    def of(self, line: Line, t: float) -> Iterator[Move]:
        """Yield the moves that a line, written at `t`, reports."""
        match line.ev:
            case "sched.moved" if line.obj is not None:
                uid, data = line.obj["uid"], line.data
                pool = str(data.get("to", ""))
                held = self._held.setdefault(line.comp, {})
                if pool in POOLS[1:]:
                    held[uid] = None
                else:
                    held.pop(uid, None)
                yield Move(t, uid, pool)
            case "proc.start" | "lease.lose":
                yield from self._over(line.comp, t)
            case "fault.inject" if line.data.get("what") in _ENDS:
                yield from self._over(str(line.data.get("target", "")), t)

    def _over(self, scheduler: str, t: float) -> Iterator[Move]:
        for uid in self._held.pop(scheduler, {}):
            yield Move(t, uid, "")
