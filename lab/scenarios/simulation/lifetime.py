"""One incarnation of a simulated process: what ends with it, its clock and its event log.

A SIGKILL is a `Lifetime` that ends: from that instant nothing the old incarnation does reaches the disk, the wire or
the event log, even if its `finally` blocks still run.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.api.seams import EventLog
from services.telemetry.eventlog import Line


class Lifetime:
    """One incarnation of one component; severed by a kill and never mended."""

    def __init__(self, component: str, incarnation: int) -> None:
        self.component = component
        self.incarnation = incarnation
        self.is_over = False
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Make a task part of this incarnation: it dies with it."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if self.is_over:
            task.cancel()

    def end(self) -> None:
        """Sever every seam at once, then cancel what still runs."""
        self.is_over = True
        for task in list(self._tasks):
            task.cancel()


@dataclass
class SimClock:
    """Virtual time plus this process's own errors. `wall_base_s`: what the wall says at virtual zero."""

    loop: asyncio.AbstractEventLoop
    wall_base_s: float
    wall_skew_s: float = 0.0

    def now(self) -> float:
        """Return monotonic seconds."""
        return self.loop.time()

    def wall(self) -> float:
        """Return seconds since the epoch, skewed."""
        return self.wall_base_s + self.loop.time() + self.wall_skew_s


@dataclass
class Aside:
    """An event log without the lines of one event: `take` gets these instead, so that they are no part of the digest.

    Measures read more than the log of a simulation has; its digest is the same whether anything is measured or not.
    These lines are numbered by themselves, under a name beside the incarnation's: readers know a line by both.
    """

    log: EventLog
    component: str
    incarnation: str
    clock: SimClock
    event: str
    take: Callable[[Line], None]
    written: int = 0

    def write(self, ev: str, **fields: Any) -> None:
        """Append one line, here or there."""
        if ev != self.event:
            self.log.write(ev, **fields)
            return
        kind, namespace, name, uid = fields["obj"]
        obj = {"kind": kind, "ns": namespace, "name": name, "uid": uid}
        now_ns = int(self.clock.now() * 1e9)
        self.written += 1
        beside = f"{self.incarnation}-{ev}"
        self.take(Line(1, self.written, now_ns, "", self.component, beside, ev, obj=obj, data=fields["data"]))


class LivingLog:
    """An event log that falls silent the instant its process is killed."""

    def __init__(self, log: EventLog, life: Lifetime) -> None:
        self._log, self._life = log, life

    def write(self, ev: str, **fields: Any) -> None:
        """Append one line, unless the process is dead."""
        if not self._life.is_over:
            self._log.write(ev, **fields)
