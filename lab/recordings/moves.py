"""In which pool of the scheduling queue pods are, read from the lines that say when one enters a pool. Pure.

A scheduler that ends, or loses its lease, has its pods in none. Source: scheduler-queue-and-cycles 2.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from lab.recordings.rows import POOLS
from services.telemetry.eventlog import Line

SIGNS: Final = (b'"ev":"sched.moved"', b'"ev":"lease.lose"', b'"ev":"fault.inject"', b'"ev":"proc.start"')
"""What lines have in them that `Moves` reads."""
_ENDS: Final = ("kill", "restart")


class Move(NamedTuple):
    """From then on (seconds of the recording's clock) the pod is in that pool; "": in none."""

    t: float
    uid: str
    pool: str


class Moves:
    """Reads lines in their order."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, None]] = {}
        """By scheduler: the pods that are in some pool."""

    def of(self, line: Line, t: float) -> Iterator[Move]:
        """Yield what a line, written at `t`, says of pods."""
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
