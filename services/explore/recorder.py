"""Holds back what a schedule says, and remembers who sent what to whom. Pure."""

from __future__ import annotations

from dataclasses import replace

from services.explore.deliveries import RUNNER, Delivery, Namer
from services.explore.schedules import Schedule
from services.scenarios.simulation.traffic import Carried
from services.telemetry.eventlog import Line


class Recorder:
    """A run's `Traffic`. `keep`: remember every delivery and every line; else only those that were held.

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
