"""`keplab run`: run scenarios, simulated or as processes."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from services.api.switches import SwitchError, Switches
from services.cli import completing
from services.cli.live import PodsView
from services.cli.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail, output_option, print_json, refusing, remark
from services.cli.results import show_result
from services.cli.scenario_files import SCENARIO
from services.cli.sweep import failures, show, sweep, sweep_options
from services.explore.recorder import Recorder, Trial
from services.explore.replay import ReplayError, read_replay
from services.scenarios.run import load_scenario, run_as_processes, run_job, simulate
from services.scenarios.script.scenario import Scenario, ScriptError
from services.scenarios.sweep import Job


@click.command(
    "run",
    epilog="""\b
Examples:
  keplab run experiments/first-life/a-pods-first-life.txt
  keplab run experiments/runaway/*.txt --seed 7
  keplab run experiments --seeds 20 --record runs/scenarios.jsonl
  keplab run experiments/crashes/killed-scheduler.txt --processes
  keplab run experiments/runaway/runaway.txt --set kubelet.on_reject=unbind -o json
  keplab run experiments/races/freed-capacity.txt --schedule race.json""",
)
@click.argument("files", nargs=-1, required=True, type=SCENARIO)
@click.option("--processes", is_flag=True, help="real processes over gRPC instead of the simulation")
@click.option("--seed", type=int, default=0, show_default=True, help="one seed, one run (simulated)")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    shell_complete=completing.assignments,
    metavar="NAME=VALUE",
    help="set a switch; see `keplab switches`",
)
@click.option(
    "--engine",
    type=click.Choice(["memory", "sqlite", "etcd"]),
    default="sqlite",
    show_default=True,
    help="the API server's store, as processes",
)
@click.option(
    "--schedule",
    type=click.Path(path_type=Path),
    help="hold messages back as `keplab explore --save` wrote it; with its seed and switches (simulated)",
)
@click.option("--seeds", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="so many from --seed on")
@sweep_options
@output_option
def COMMAND(  # noqa: N802
    files: tuple[Path, ...],
    processes: bool,
    seed: int,
    seeds: int,
    assignments: tuple[str, ...],
    engine: str,
    schedule: Path | None,
    record: Path | None,
    workers: int,
    output: str,
) -> None:
    """Run scenarios and judge expectations and invariants.

    FILE is a scenario or a folder, of which all are run. With --seeds, --record or --workers the runs are spread over
    the cores, and only those that failed are printed. The exit code is 1 when an expectation or invariant failed, 2
    when a file or switch is wrong.
    """
    overrides = Switches.parse(assignments).chosen
    files = tuple(_scenario_files(files))
    is_sweep = seeds > 1 or record is not None or workers > 0
    if is_sweep and (processes or schedule is not None):
        fail("--seeds, --record and --workers are for the simulation, without --schedule")
    saved = Trial("", seed)
    if schedule is not None:
        saved = _scheduled(schedule, files, processes=processes)
        overrides = Switches.parse(saved.switches).chosen | overrides
    with refusing(ScriptError):
        scenarios = [load_scenario(path) for path in files]
    if is_sweep:
        _sweep(scenarios, range(seed, seed + seeds), assignments, record, workers, output)
    documents, code = [], EXIT_OK
    for scenario in scenarios:
        with PodsView(scenario.name, quiet=output == "json") as view, refusing(ScriptError, SwitchError):
            if not scenario.has_skew:  # else a component of the scenario may have the other switch
                remark(Switches.parse(scenario.switches).replace(overrides), scenario.name)
            show = view.progress
            if processes:
                result = run_as_processes(scenario, seed=seed, overrides=overrides, progress=show, engine=engine)
            else:
                traffic = Recorder(saved.schedule).carry if saved.schedule else None
                result = simulate(scenario, seed=saved.seed, overrides=overrides, progress=show, traffic=traffic)
        code = max(code, EXIT_USAGE if result.is_mistake else EXIT_OK if result.passed else EXIT_FAILED)
        documents.append(result.document())
        if output == "text":
            show_result(result, scenario.title)
    if output == "json":
        print_json(documents)
    raise SystemExit(code)


def _scenario_files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        below = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
        if not below:
            fail(f"there is no scenario below {path}; they are files that end in .txt")
        found += below
    return found


def _sweep(
    scenarios: Sequence[Scenario],
    seeds: range,
    assignments: tuple[str, ...],
    record: Path | None,
    workers: int,
    output: str,
) -> NoReturn:
    """Run every scenario with every seed, seed by seed, so that a sweep cut short has seen all scenarios."""
    jobs = [Job(scenario.path, assignments, number) for number in seeds for scenario in scenarios]
    outcomes, is_interrupted = sweep(jobs, record, workers, run_job, what="runs", quiet=output == "json")
    failed = failures(outcomes)
    if output == "json":
        print_json(
            {
                "scenarios": [scenario.path for scenario in scenarios],
                "seeds": list(seeds),
                "runs": len(outcomes),
                "passed": len(outcomes) - len(failed),
                "failed": failed,
                "interrupted": is_interrupted,
            }
        )
    else:
        show(outcomes, "runs")
    if is_interrupted:
        raise KeyboardInterrupt
    raise SystemExit(EXIT_FAILED if failed else EXIT_OK)


def _scheduled(path: Path, files: tuple[Path, ...], *, processes: bool) -> Trial:
    """Return the saved schedule, which is one scenario's and needs virtual time."""
    if processes or len(files) != 1:
        fail("--schedule is for one FILE, simulated")
    with refusing(ReplayError):
        return read_replay(path)
