"""One run under a schedule: what it follows from, what was held back and said in it, and what it broke. Pure."""

from dataclasses import dataclass, replace

import msgspec

from services.explore.breaks import Break
from services.explore.deliveries import RUNNER, Delivery, Namer
from services.explore.schedules import Schedule
from services.scenarios.result import RunResult
from services.scenarios.simulation.traffic import Carried
from services.telemetry.eventlog import Line


class Trial(msgspec.Struct, frozen=True):
    """What to run. `switches`: assignments over the scenario's own."""

    scenario: str
    seed: int = 0
    switches: tuple[str, ...] = ()
    schedule: Schedule = ()


class Recorder:
    """`carry` is a run's `Traffic`. `keep`: remember every delivery and every line; else only those that were held.

    A hold whose delivery does not happen, because an earlier one changed the run, has no effect.
    """

    def __init__(self, schedule: Schedule = (), *, keep: bool = False) -> None:
        self._holds = {hold.delivery: hold.held_s for hold in schedule}
        self._keep = keep
        self._namer = Namer()
        self.deliveries: list[Delivery] = []
        self.held: list[Delivery] = []
        self.lines: list[Line] = []

    def carry(self, component: str, way: str, what: Carried, sent_s: float, due_s: float) -> float:
        """Return when the message arrives."""
        delivery = self._namer.name(component, way, what, sent_s, due_s)
        held_s = max((self._holds.get(name, 0.0) for name in delivery.names), default=0.0)
        if held_s > 0 and component != RUNNER:
            delivery = replace(delivery, arrives_s=due_s + held_s)
            self.held.append(delivery)
        if self._keep:
            self.deliveries.append(delivery)
        return delivery.arrives_s

    def take(self, line: Line) -> None:
        """Remember a line of the event log."""
        if self._keep:
            self.lines.append(line)


@dataclass(frozen=True)
class Recording:
    """A run with everything that was said in it."""

    trial: Trial
    result: RunResult
    breaks: list[Break]
    deliveries: list[Delivery]
    held: list[Delivery]
    lines: list[Line]


@dataclass(frozen=True)
class Found:
    """One thing that a schedule breaks. `first`: what it was found with; `run`: the run with the smallest schedule.

    `also`: what else broke in that run. `count`: how many of all runs broke it.
    """

    broke: Break
    also: tuple[str, ...]
    first: Schedule
    run: Recording
    count: int = 1

    @property
    def schedule(self) -> Schedule:
        """Return the smallest schedule."""
        return self.run.trial.schedule


def found_in(run: Recording, name: str, first: Schedule, count: int = 1) -> Found:
    """Return what a run broke, of that name if it did; else what it broke first, or nothing, which has no name."""
    nothing = Break("", (), run.result.started_s + run.result.virtual_s, "nothing breaks")
    broken = next((b for b in run.breaks if b.broke == name), run.breaks[0] if run.breaks else nothing)
    return Found(broken, tuple(b.broke for b in run.breaks if b is not broken), first, run, count)
