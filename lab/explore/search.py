"""Search for an order of messages that breaks a scenario: run it undisturbed, then often with a few held back.

The undisturbed runs and the seeds alone determine what is tried, and in which order; outcomes are taken in that
order, however many processes work on them. So the same command always finds the same breaks.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import msgspec

from lab.explore.deliveries import Delivery, pathname
from lab.explore.moments import Event, EventError, moments
from lab.explore.recorder import Break, Finding, Recorder, Recording, Trial, breaks_of, found_in
from lab.explore.replay import Replay
from lab.explore.schedules import Moment, Plan, Schedule, landmarks, share
from lab.explore.shrinker import shrink
from lab.scenarios.loading import load_scenario
from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import ScriptError
from lab.scenarios.sweep import runs_of
from services.api.switches import Switches

MOMENTS_MAX = 8
"""Largest number of moments that are explored, the first ones; more would share the budget badly."""


@dataclass(frozen=True)
class Task:
    """What to explore. `reach_s`: distance from a moment within which messages are held, and the longest hold."""

    scenario: str
    event: Event
    budget: int
    seeds: tuple[int, ...] = (0,)
    switches: tuple[str, ...] = ()
    reach_s: float = 0.5
    depth: int = 3
    is_over_at_first: bool = False
    workers: int = 0


@dataclass
class Report:
    """Result of an exploration. `runs`: without the runs for shrinking, which are `shrink_runs`."""

    task: Task
    runs: int = 0
    shrink_runs: int = 0
    moments: list[tuple[int, float]] = field(default_factory=list)
    """Seed and time (seconds of the event log) of each explored moment."""
    candidates: int = 0
    """Messages that could be held, over all moments."""
    found: list[Finding] = field(default_factory=list)
    is_interrupted: bool = False
    """Whether an interrupt ended it: the budget was not used up, or the schedules found may not be the smallest."""


Progress = Callable[[int, int, int], None]
"""Function called with the runs done, all runs, and the number of different breaks."""


def explore(task: Task, progress: Progress = lambda done, total, found: None) -> Report:
    """Use up the budget and return the breaks found, each shrunk and run once more.

    An interrupt ends the search: breaks found by then are returned, some not as small as they could be.

    Raises: EventError when no seed's run has the event, ScriptError when the scenario cannot run.
    """
    report = Report(task)
    undisturbed = [record(Trial(task.scenario, seed, task.switches)) for seed in task.seeds]
    report.runs = len(undisturbed)
    known: dict[str, tuple[Trial, int]] = {}
    for run in undisturbed:
        _note(known, run.trial, run.breaks)
    trials = _trials(report, undisturbed)
    progress(report.runs, task.budget, len(known))
    try:
        for trial, breaks in zip(trials, runs_of(attempt, trials, task.workers), strict=True):
            if known and task.is_over_at_first:
                break
            report.runs += 1
            _note(known, trial, breaks)
            progress(report.runs, task.budget, len(known))
    except KeyboardInterrupt:
        report.is_interrupted = True
    undisturbed_deliveries = {run.trial.seed: run.deliveries for run in undisturbed}
    for name, (trial, count) in known.items():
        report.found.append(_shrunk(report, name, trial, count, undisturbed_deliveries[trial.seed]))
    return report


def _note(known: dict[str, tuple[Trial, int]], trial: Trial, breaks: Sequence[Break]) -> None:
    """Count what is known already; keep what broke first in this run when nothing of it is."""
    old = [broken.broke for broken in breaks if broken.broke in known]
    for name in old:
        first, count = known[name]
        known[name] = first, count + 1
    if breaks and not old:
        known[breaks[0].broke] = trial, 1


def _trials(report: Report, undisturbed: Sequence[Recording]) -> list[Trial]:
    """Return the runs to make, moments and seeds taking turns."""
    task = report.task
    plans: list[tuple[int, Plan]] = []
    missing: EventError | None = None
    for run in undisturbed:
        try:
            lines = moments(task.event, run.lines)[:MOMENTS_MAX]
        except EventError as error:
            missing = error
            continue
        for number, line in enumerate(lines):
            at_s = line.mono_ns / 1e9
            objects = frozenset([pathname(line.obj)] if line.obj else []) | frozenset([line.node] if line.node else [])
            chance = random.Random(f"explore/{run.trial.seed}/{number}")
            plan = Plan(run.deliveries, Moment(at_s, objects, task.reach_s, line.comp), chance, task.depth)
            plans.append((run.trial.seed, plan))
            report.moments.append((run.trial.seed, at_s))
            report.candidates += len(plan.candidates)
    if not plans and missing is not None:
        raise missing
    left = max(0, task.budget - len(undisturbed))
    tries = [
        [Trial(task.scenario, seed, task.switches, schedule) for schedule in plan.schedules(part)]
        for (seed, plan), part in zip(plans, share(left, len(plans)), strict=True)
    ]
    turns: Iterator[tuple[Trial | None, ...]] = zip_longest(*tries)
    return list(dict.fromkeys(trial for turn in turns for trial in turn if trial is not None))


def _shrunk(report: Report, name: str, trial: Trial, count: int, undisturbed_deliveries: Sequence[Delivery]) -> Finding:
    def breaks(schedule: Schedule) -> bool:
        report.shrink_runs += 1
        found = attempt(msgspec.structs.replace(trial, schedule=schedule))
        return any(broken.broke == name for broken in found)

    smallest = trial.schedule
    if not report.is_interrupted:
        try:
            smallest = shrink(trial.schedule, breaks, lambda hold: landmarks(undisturbed_deliveries, hold))
        except KeyboardInterrupt:
            report.is_interrupted = True
    return found_in(record(msgspec.structs.replace(trial, schedule=smallest)), name, trial.schedule, count)


def record(trial: Trial, *, keep: bool = True) -> Recording:
    """Run a trial once and record it. Raises: ScriptError when the scenario asks for something impossible."""
    recorder, scenario = Recorder(trial.schedule, keep=keep), load_scenario(trial.scenario)
    overrides = Switches.parse(trial.switches).chosen_values
    result = simulate(scenario, seed=trial.seed, overrides=overrides, traffic=recorder.carry, on_line=recorder.take)
    if result.is_mistake:
        raise ScriptError(result.error)
    return Recording(trial, result, breaks_of(result, scenario), recorder.deliveries, recorder.held, recorder.lines)


def attempt(trial: Trial) -> list[Break]:
    """Run a trial once and return its breaks; a crash of the simulator itself is a break, too."""
    try:
        return record(trial, keep=False).breaks
    except Exception as error:  # one schedule that ends the simulator must be reported, not end the others
        return [Break(f"the mesh ({type(error).__name__})", (), 0.0, str(error))]


def run_replay(saved: Replay, scenario: str = "") -> tuple[Finding, bool]:
    """Run a saved schedule again; return its finding and whether the run is the same, byte by byte.

    `scenario`: another path of the scenario's file. The finding has an empty name if nothing broke. Raises:
    ScriptError.
    """
    run = record(Trial(scenario or saved.scenario, saved.seed, saved.switches, saved.schedule))
    return found_in(run, saved.broke, saved.schedule), run.result.digest == saved.digest
