"""Make a simulated run again: the same revision, scenario, switches and seed give the same event log, to the byte."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from lab.runs.folder import EVENTS_FILE, RunsFolder
from lab.runs.origin import sha_of
from lab.runs.record import Origin, RunRecord, UnknownRun
from lab.runs.recorder import Compressed
from lab.scenarios.decisions.decision import Decision
from lab.scenarios.decisions.scores import ScoredDecisions, SimulatedMesh
from lab.scenarios.loading import load_scenario
from lab.scenarios.result import RunResult
from lab.scenarios.revision import revision
from lab.scenarios.run import simulate
from lab.scenarios.runner import Progress
from lab.scenarios.script.scenario import Scenario, ScriptError
from services.api.switches import SwitchError, Switches, Value
from services.telemetry.eventlog import Line, encode


class NotAgain(ValueError):
    """The run cannot be made again here; the message says what has changed."""


class RunToRepeat(NamedTuple):
    """A run to make again: its name, origin, seed, switches and result."""

    name: str
    origin: Origin
    seed: int
    assignments: Sequence[str]
    digest: str
    passed: bool


class Decided(NamedTuple):
    """A run and its decisions, in seconds since it began."""

    result: RunResult
    decisions: list[Decision]


def other_code(origin: Origin) -> str:
    """Return how the product here differs from the one that made the run; empty string if it does not."""
    code = revision()
    if (code.commit, code.changes, code.version) == (origin.revision, origin.changes, origin.version):
        return ""
    here = Origin("", "", code.version, code.commit, code.changes)
    other = ", with other changes" if here.code == origin.code and here.revision else ""
    return f"made by revision {origin.code}, and here is {here.code}{other}"


def wanted_of(folder: RunsFolder, record: RunRecord, arm: str = "", seed: int | None = None) -> RunToRepeat:
    """Return the run to make again, for a record or for one run of a comparison.

    Raises: NotAgain, UnknownRun, Unreadable, DocumentError.
    """
    name = f"{record.id}/{arm}/{seed}" if arm else record.id
    match record.kind:
        case "sweep":
            again = f"keplab run {record.origin.path} --seed {record.seed}"
            raise UnknownRun(f"run {name} is a sweep, whose runs are not kept; make one of them: {again}")
        case "comparison" if not arm:
            one = f"{record.id}/{next(iter(record.arms), 'ARM')}/{next(iter(record.seeds), 0)}"
            raise UnknownRun(f"run {name} is a comparison; name one of its runs, such as {one}")
    if not record.is_repeatable:
        raise NotAgain(f"run {name} was made by processes and its event log was not kept: it cannot be made again")
    if not arm:
        return RunToRepeat(name, record.origin, record.seed, record.assignments, record.digest, record.passed)
    comparison = folder.comparison(record.id)
    runs = {run.seed: run for each in comparison.arms if each.name == arm for run in each.runs}
    run = runs.get(record.seeds[0] if seed is None else seed)
    if run is None:
        raise UnknownRun(f"run {record.id} was interrupted before arm {arm}, seed {seed}")
    return RunToRepeat(name, record.origin, run.seed, [*record.assignments, *record.arms[arm]], run.digest, run.passed)


def make_again(
    wanted: RunToRepeat,
    on_line: Callable[[Line], None],
    *,
    progress: Progress | None = None,
    beforehand: Callable[[SimulatedMesh], None] | None = None,
) -> RunResult:
    """Simulate the run again and pass each line of its event log to `on_line`.

    Raises: NotAgain, also at the end, if the lines were not those of the run.
    """
    name, path, code = wanted.name, Path(wanted.origin.path), other_code(wanted.origin)
    if (sha := sha_of(path)) != wanted.origin.sha256:
        now = f"is {sha[:12]} now" if sha else "is not there any more"
        raise NotAgain(f"run {name}: {path} was {wanted.origin.sha256[:12]} and {now}: the run cannot be made again")
    try:
        result = simulate(
            load_scenario(path),
            seed=wanted.seed,
            overrides=Switches.parse(wanted.assignments).chosen_values,
            on_line=on_line,
            progress=progress,
            beforehand=beforehand,
        )
    except (ScriptError, SwitchError) as error:
        raise NotAgain(f"run {name}: {error}; it was {code}" if code else f"run {name}: {error}") from None
    if result.digest != wanted.digest:
        why = f"it was {code}" if code else "the revision is the same, but perhaps not the files beside the scenario"
        raise NotAgain(
            f"run {name} cannot be made again here: digest {result.digest[:12]} instead of {wanted.digest[:12]}; {why}"
        )
    return result


def decided_again(wanted: RunToRepeat, progress: Progress | None = None) -> Decided:
    """Make the run again and read its decisions. Raises: NotAgain."""
    reader, found = ScoredDecisions(), list[Decision]()
    result = make_again(
        wanted, lambda line: found.extend(reader.take(line)), progress=progress, beforehand=reader.look_into
    )
    return Decided(result, since([*found, *reader.rest()], result.started_s))


def simulate_decisions(
    scenario: Scenario, seed: int, overrides: dict[str, Value], progress: Progress | None = None
) -> Decided:
    """Simulate a scenario and read its decisions. Raises: ScriptError, SwitchError."""
    reader, decisions = ScoredDecisions(), list[Decision]()
    result = simulate(
        scenario,
        seed=seed,
        overrides=overrides,
        on_line=lambda line: decisions.extend(reader.take(line)),
        beforehand=reader.look_into,
        progress=progress,
    )
    return Decided(result, since([*decisions, *reader.rest()], result.started_s))


def since(decisions: Sequence[Decision], started_s: float) -> list[Decision]:
    """Return the decisions with their times in seconds since the run began."""
    return [msgspec.structs.replace(each, at_s=round(each.at_s - started_s, 9)) for each in decisions]


def is_kept(folder: RunsFolder, record: RunRecord) -> bool:
    """Return whether the event log is kept."""
    return record.kind == "run" and folder.file(record.id, EVENTS_FILE).exists()


def events_of(
    folder: RunsFolder, record: RunRecord, arm: str = "", seed: int | None = None, progress: Progress | None = None
) -> tuple[Iterator[Line], float]:
    """Return the lines of a run, or of one run of a comparison, and its start on their clock.

    If they are not kept, they are made again; no line is returned before all are known to be the run's. Raises:
    NotAgain, UnknownRun, Unreadable, OSError.
    """
    if is_kept(folder, record):
        return folder.events(record.id), record.started_s
    wanted = wanted_of(folder, record, arm, seed)
    partial = folder.begin()
    try:
        file = Compressed(partial / EVENTS_FILE)
        try:
            result = make_again(wanted, lambda line: file.write(encode(line)), progress=progress)
        finally:
            file.close()
        if record.kind == "run":
            (partial / EVENTS_FILE).rename(folder.file(record.id, EVENTS_FILE))
            return folder.events(record.id), record.started_s
        # Of a comparison nothing is kept: it may have a hundred runs.
        return iter(list(folder.events(partial.name))), result.started_s
    finally:
        shutil.rmtree(partial, ignore_errors=True)
