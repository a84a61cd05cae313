"""One run of a scenario under a schedule: small values in and out, so that worker processes can do it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from services.api.switches import Switches, Value
from services.explore.breaks import Break, breaks_of
from services.explore.deliveries import Delivery
from services.explore.recorder import Recorder
from services.explore.schedules import Hold, Schedule
from services.scenarios.result import RunResult
from services.scenarios.run import load_scenario, simulate
from services.scenarios.script.scenario import ScriptError
from services.telemetry.eventlog import Line


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run follows from, as `--save` writes it. `digest`: of the run's event log, to compare."""

    scenario: str
    seed: int = 0
    switches: tuple[str, ...] = ()
    schedule: tuple[Hold, ...] = ()
    around: str = ""
    broke: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Trial:
    """What to run. `switches`: assignments over the scenario's own."""

    scenario: str
    seed: int
    switches: tuple[str, ...]
    schedule: Schedule = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a trial. `held`: how many of its holds had something to hold."""

    trial: Trial
    digest: str
    breaks: list[Break]
    held: int
    virtual_s: float


@dataclass(frozen=True)
class Recording:
    """A run with everything that was said in it."""

    trial: Trial
    result: RunResult
    breaks: list[Break]
    deliveries: list[Delivery]
    held: list[Delivery]
    lines: list[Line]


def overrides_of(assignments: tuple[str, ...]) -> dict[str, Value]:
    """Return the values of `NAME=VALUE` texts. Raises: SwitchError."""
    switches = Switches.parse(assignments)
    return {name: switches[name] for name in (text.partition("=")[0] for text in switches.assignments)}


def record(trial: Trial, *, keep: bool = True) -> Recording:
    """Run it once and keep what was said. Raises: ScriptError when the scenario asks for what cannot be."""
    recorder = Recorder(trial.schedule, keep=keep)
    scenario = load_scenario(trial.scenario)
    result = simulate(
        scenario,
        seed=trial.seed,
        overrides=overrides_of(trial.switches),
        traffic=recorder,
        on_line=recorder.take,
    )
    if result.is_mistake:
        raise ScriptError(result.error)
    return Recording(trial, result, breaks_of(result, scenario), recorder.deliveries, recorder.held, recorder.lines)


def attempt(trial: Trial) -> Outcome:
    """Run it once and say what broke; what the simulator itself cannot survive is something broken, too."""
    try:
        run = record(trial, keep=False)
    except Exception as error:  # one schedule that ends the simulator must be reported, not end the others
        broken = Break(f"the mesh ({type(error).__name__})", (), 0.0, str(error))
        return Outcome(trial, "", [broken], 0, 0.0)
    return Outcome(trial, run.result.digest, run.breaks, len(run.held), run.result.virtual_s)
