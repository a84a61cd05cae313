"""Runs of `keplab run`: one scenario after the other, or a sweep over seeds; their results and records."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from lab.cli.live import PodsView
from lab.cli.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE, print_json, refusing, remark
from lab.cli.recording import Recording, keep, recorder_in
from lab.cli.recording import recording as record_of_run
from lab.cli.results import show_result
from lab.cli.running_mesh import running_mesh
from lab.cli.sweep import SHOWN_MAX, failures, show, sweep
from lab.experiments.wording import count_text
from lab.explore.recorder import Recorder, Trial
from lab.explore.replay import ReplayError, read_replay
from lab.runs.record import Origin, RunRecord
from lab.scenarios.processes.access import Access
from lab.scenarios.recording import RunRecorder
from lab.scenarios.result import RunResult
from lab.scenarios.run import run_against, run_as_processes, run_job, simulate
from lab.scenarios.script.scenario import Scenario, ScriptError
from lab.scenarios.sweep import Job, Outcome
from lab.scenarios.timeline import status_of
from services.api.switches import SwitchError, Switches, Value


def _show_status(status: dict[str, Any]) -> None:
    """Print what KEP-140 wants to know, in the order in which it happened."""
    click.echo(f"phase {status['phase']}" + (f": {status['message']}" if status.get("message") else ""))
    for major, entries in status["scenarioResult"]["timeline"].items():
        for entry in entries:
            what = next(key for key in entry if key not in ("id", "step"))
            body = entry[what]
            about = body.get("pod") or _about(body.get("operation") or {})
            node = f" on {body['nodeName']}" if body.get("nodeName") else ""
            click.echo(f"  {major}.{entry['step']['minor']:<3} {what:<12} {about}{node}".rstrip())


def _about(operation: dict[str, Any]) -> str:
    made = operation.get("object") or {**(operation.get("typeMeta") or {}), "metadata": operation.get("objectMeta")}
    metadata = made.get("metadata") or {}
    return f"{made.get('kind') or ''} {metadata.get('name') or metadata.get('generateName') or ''}".strip()


@dataclass(frozen=True)
class How:
    """Options that all runs of one command share. `saved`: the schedule with its seed, empty if no schedule is given.
    `access`: how to reach a mesh that already runs; None if each run starts its own.
    """

    processes: bool
    engine: str
    overrides: dict[str, Value]
    assignments: tuple[str, ...]
    schedule: Path | None
    saved: Trial
    access: Access | None
    recording: Path | None
    is_traced: bool

    @classmethod
    def of(
        cls,
        seed: int,
        assignments: tuple[str, ...],
        processes: bool,
        engine: str,
        schedule: Path | None,
        server: str,
        containers: str,
        recording: Path | None,
        traced: bool,
    ) -> "How":
        """Return what the command's options say, with the seed and switches of a saved schedule."""
        saved, overrides = Trial("", seed), Switches.parse(assignments).chosen_values
        if schedule is not None:
            with refusing(ReplayError):
                saved = read_replay(schedule)
            overrides = Switches.parse(saved.switches).chosen_values | overrides
        given, access = (*saved.switches, *assignments), running_mesh(server, containers)
        return cls(processes, engine, overrides, given, schedule, saved, access, recording, traced)

    def command(self, scenario: Scenario) -> str:
        """Return what repeats the run."""
        if self.schedule is not None:
            return f"keplab run {shlex.quote(scenario.path)} --schedule {shlex.quote(str(self.schedule))}"
        as_processes = f" --processes --engine {self.engine}" if self.processes else ""
        if self.access is not None:
            as_processes = f" {self.access.option}"
        return Job(scenario.path, self.assignments, self.saved.seed).command + as_processes


def _run(
    scenario: Scenario, how: How, run_recording: Recording, recorder: RunRecorder | None, *, quiet: bool
) -> RunResult:
    seed, overrides = how.saved.seed, how.overrides
    with PodsView(scenario.name, quiet=quiet) as view, refusing(ScriptError, SwitchError):
        if not scenario.has_skew:  # else a component of the scenario may have the other switch
            remark(Switches.parse(scenario.switches).replace(overrides), scenario.name)
        if how.access is not None:
            return run_against(scenario, how.access, seed=seed, overrides=overrides, progress=view.progress)
        if how.processes:
            return run_as_processes(
                scenario,
                seed=seed,
                overrides=overrides,
                progress=view.progress,
                engine=how.engine,
                on_line=run_recording.on_line,
                recorder=recorder,
            )
        return simulate(
            scenario,
            seed=seed,
            overrides=overrides,
            progress=view.progress,
            traffic=Recorder(how.saved.schedule).carry if how.saved.schedule else None,
            on_line=run_recording.on_line,
            beforehand=run_recording.beforehand,
            traced=how.is_traced,
            recorder=recorder,
        )


def perform_runs(scenarios: Sequence[Scenario], how: How, runs: str, output: str) -> int:
    """Run the scenarios one after the other, print their results, and return the exit code."""
    documents, code = [], EXIT_OK
    for scenario in scenarios:
        with (
            record_of_run(runs, scenario, keeps_events=how.processes or how.schedule is not None) as run_recording,
            recorder_in(how.recording, scenario, how.saved.seed, how.command(scenario)) as recorder,
        ):
            result = _run(scenario, how, run_recording, recorder, quiet=output == "json")
            run_id = run_recording.keep(result, how.assignments, how.command(scenario))
        code = max(code, EXIT_USAGE if result.is_mistake else EXIT_OK if result.passed else EXIT_FAILED)
        document = result.document() | {"run": run_id}
        if scenario.operations:
            document["status"] = status = status_of(scenario.operations, result)
            code = code if status["phase"] == "Succeeded" else max(code, EXIT_FAILED)
        documents.append(document)
        if output == "text":
            show_result(result, scenario.title, run_id)
            if scenario.operations:
                _show_status(document["status"])
    if output == "json":
        print_json(documents)
    return code


def perform_sweep(
    given: tuple[Path, ...],
    scenarios: Sequence[Scenario],
    seeds: range,
    assignments: tuple[str, ...],
    record: Path | None,
    workers: int,
    runs: str,
    output: str,
) -> NoReturn:
    """Run every scenario with every seed, seed by seed, so that a sweep cut short has seen all scenarios."""
    jobs = [Job(scenario.path, assignments, number) for number in seeds for scenario in scenarios]
    outcomes, is_interrupted = sweep(jobs, record, workers, run_job, what="runs", quiet=output == "json")
    failed = failures(outcomes)
    if outcomes:
        keep(runs, partial(_sweep_record, given, scenarios, seeds, assignments, outcomes), Path(scenarios[0].path))
    if output == "json":
        print_json([_element(outcome) for outcome in outcomes])
    else:
        show(outcomes, "runs")
    if is_interrupted:
        raise KeyboardInterrupt
    raise SystemExit(EXIT_FAILED if failed else EXIT_OK)


def _sweep_record(
    given: tuple[Path, ...],
    scenarios: Sequence[Scenario],
    seeds: range,
    assignments: tuple[str, ...],
    outcomes: Sequence[Outcome],
    origin: Origin,
) -> RunRecord:
    """Return the record of a sweep: in sum, and what repeats the first runs that failed."""
    failed = failures(outcomes)
    files = " ".join(shlex.quote(str(path)) for path in given)
    is_one = len(scenarios) == 1
    return RunRecord(
        "",
        "sweep",
        scenarios[0].name if is_one else count_text(len(scenarios), "scenario"),
        "simulated",
        not failed,
        f"keplab run {files} --seed {seeds[0]} --seeds {len(seeds)}{Job('', assignments, 0).sets}",
        origin,
        seed=seeds[0],
        assignments=list(assignments),
        wall_s=round(sum(outcome.wall_s for outcome in outcomes), 3),
        title=scenarios[0].title if is_one else "",
        seeds=list(seeds),
        result={"runs": len(outcomes), "passed": len(outcomes) - len(failed), "failed": failed[:SHOWN_MAX]},
    )


def _element(outcome: Outcome) -> dict[str, Any]:
    """Return a run of a sweep as `-o json` prints it: as any run, but without measures, and with what repeats it."""
    return {
        "scenario": Path(outcome.scenario).stem,
        "path": outcome.scenario,
        "mode": "simulated",
        "seed": outcome.seed,
        "digest": outcome.digest,
        "passed": not outcome.problem,
        "error": outcome.problem,
        "expectations": outcome.expectations,
        "violations": outcome.violations,
        "virtual_s": round(outcome.virtual_s, 6),
        "wall_s": round(outcome.wall_s, 3),
        "command": outcome.command,
    }
