"""One incarnation of a simulated process, with its clock and its event log.

A SIGKILL ends a `Lifetime`: from that instant no action of the old incarnation reaches the disk, the
network or the event log, even if its `finally` blocks still run.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from services.api.seams import EventLog
from services.telemetry.eventlog import Line


class Lifetime:
    """One incarnation of one component; a kill ends it for good."""

    def __init__(self, component: str, incarnation: int) -> None:
        self.component = component
        self.incarnation = incarnation
        self.is_over = False
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Make a task part of this incarnation, so that it ends with it."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if self.is_over:
            task.cancel()

    def end(self) -> None:
        """Cut all connections to the outside at once, then cancel the tasks that still run."""
        self.is_over = True
        for task in list(self._tasks):
            task.cancel()


@dataclass
class SimClock:
    """Virtual time with this process's own clock error. `wall_base_s`: wall time at virtual time 0."""

    loop: asyncio.AbstractEventLoop
    wall_base_s: float
    wall_skew_s: float = 0.0
    now: Callable[[], float] = field(init=False)
    """Return monotonic seconds; the loop's own method, because everything asks."""

    def __post_init__(self) -> None:
        self.now = self.loop.time

    def wall(self) -> float:
        """Return seconds since the epoch, with the process's offset."""
        return self.wall_base_s + self.loop.time() + self.wall_skew_s


@dataclass
class Aside:
    """An event log that diverts the lines of one event to `take`, so that they are not part of the digest.

    Measures read more lines than a simulation's log has; so its digest is the same whether anything is
    measured or not. The diverted lines have numbers of their own, under a name similar to the incarnation's,
    because readers identify a line by both.
    """

    log: EventLog
    component: str
    incarnation: str
    clock: SimClock
    event: str
    take: Callable[[Line], None]
    written: int = 0

    def write(self, ev: str, **fields: Any) -> None:
        """Append one line to the log, or pass it to `take`."""
        if ev != self.event:
            self.log.write(ev, **fields)
            return
        kind, namespace, name, uid = fields["obj"]
        obj = {"kind": kind, "ns": namespace, "name": name, "uid": uid}
        now_ns = int(self.clock.now() * 1e9)
        self.written += 1
        beside = f"{self.incarnation}-{ev}"
        self.take(Line(1, self.written, now_ns, "", self.component, beside, ev, obj=obj, data=fields["data"]))


class LivingLines:
    """The lines of one incarnation, passed on as long as it lives: a killed process writes nothing more."""

    def __init__(self, life: Lifetime, take: Callable[[Line], None]) -> None:
        self._life, self._take = life, take

    def take(self, line: Line) -> None:
        """Pass a line on, unless the process is dead."""
        if not self._life.is_over:
            self._take(line)
