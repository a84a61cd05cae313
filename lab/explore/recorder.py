"""One run under a schedule: its inputs, the messages held back, all deliveries and lines, and what it broke. Pure."""

import re
from dataclasses import dataclass, replace

import msgspec

from lab.explore.deliveries import RUNNER, Delivery, Namer
from lab.explore.schedules import Schedule
from lab.scenarios.result import RunResult
from lab.scenarios.script.scenario import Scenario
from lab.scenarios.simulation.traffic import Carried
from services.api.resources import resources
from services.telemetry.eventlog import Line

_PROCESS = re.compile(r"^[\d.]+ s: (\S+) ended: (\w*)")


class Trial(msgspec.Struct, frozen=True):
    """Inputs of a run. `switches`: assignments over the scenario's own."""

    scenario: str
    seed: int = 0
    switches: tuple[str, ...] = ()
    schedule: Schedule = ()


class Recorder:
    """Recorder of a run; `carry` is the run's `Traffic`.

    `keep`: remember all deliveries and lines, not only held deliveries. A hold has no effect if its delivery does
    not happen because an earlier hold changed the run.
    """

    def __init__(self, schedule: Schedule = (), *, keep: bool = False) -> None:
        self._holds = {hold.delivery: hold.held_s for hold in schedule}
        self._keep = keep
        self._namer = Namer()
        self.deliveries: list[Delivery] = []
        self.held: list[Delivery] = []
        self.lines: list[Line] = []

    def carry(self, component: str, way: str, what: Carried, sent_s: float, due_s: float) -> float:
        """Return the time at which the message arrives."""
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


class Break(msgspec.Struct, frozen=True):
    """One failure of a run. `broke` is its name: the same fault has the same name in every run.

    `broke`: an invariant (`I3`), an expectation (`line 12`), a process, or `the run`. `objects` are `Kind ns/name`.
    `at_s`: seconds of the event log's clock.
    """

    broke: str
    objects: tuple[str, ...]
    at_s: float
    detail: str


def breaks_of(result: RunResult, scenario: Scenario) -> list[Break]:
    """Return the failures of a run in order of time, each name once."""
    breaks = [Break(v.invariant, v.objects, v.at, v.detail) for v in result.violations]
    for judgement in result.expectations:
        if not judgement.passed:
            at_s = judgement.at_s + result.started_s
            objects = _expected_objects(scenario, judgement.line)
            breaks.append(Break(f"line {judgement.line}", objects, at_s, f"{judgement.text}   ({judgement.seen})"))
    ended_s = result.started_s + result.virtual_s
    for failure in result.failures:
        match = _PROCESS.match(failure)
        what = f"process {match[1]} ({match[2]})" if match else "a process"
        breaks.append(Break(what, (), ended_s, failure))
    if result.error:
        breaks.append(Break("the run", (), ended_s, result.error))
    by_name: dict[str, Break] = {}
    for break_ in sorted(breaks, key=lambda b: b.at_s):
        known = by_name.setdefault(break_.broke, break_)
        objects = tuple(dict.fromkeys((*known.objects, *break_.objects)))
        by_name[break_.broke] = msgspec.structs.replace(known, objects=objects)
    return list(by_name.values())


def _expected_objects(scenario: Scenario, line: int) -> tuple[str, ...]:
    """Return the objects that an expectation names, as far as it does: `Pod default/p`."""
    expectation = next((step.expectation for step in scenario.steps if step.line == line), None)
    resource = resources().get(expectation.resource) if expectation is not None else None
    if expectation is None or resource is None:
        return ()
    named = {filter_.path: filter_.values for filter_ in expectation.filters}
    names = [name for name in named.get("name", ()) if "*" not in name and "?" not in name]
    namespace = f"{named.get('namespace', ('default',))[0]}/" if resource.namespaced else ""
    return tuple(f"{resource.kind} {namespace}{name}" for name in names)


@dataclass(frozen=True)
class Recording:
    """A run with its breaks, deliveries and event-log lines."""

    trial: Trial
    result: RunResult
    breaks: list[Break]
    deliveries: list[Delivery]
    held: list[Delivery]
    lines: list[Line]


@dataclass(frozen=True)
class Finding:
    """One break that a schedule causes. `first`: the schedule that found it; `run`: the run with the smallest
    schedule. `also`: names of other breaks in that run. `count`: how many of all runs broke it.
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


def found_in(run: Recording, name: str, first: Schedule, count: int = 1) -> Finding:
    """Return a run's break with that name, or else its first break; without any, a finding with an empty name."""
    nothing = Break("", (), run.result.started_s + run.result.virtual_s, "nothing breaks")
    broken = next((b for b in run.breaks if b.broke == name), run.breaks[0] if run.breaks else nothing)
    return Finding(broken, tuple(b.broke for b in run.breaks if b is not broken), first, run, count)
