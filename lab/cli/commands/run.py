"""`keplab run`: run scenarios, simulated or as processes."""

from collections.abc import Sequence
from pathlib import Path

import click

from lab.cli.command_table import no_collection
from lab.cli.output import fail, output_option, refusing, set_option
from lab.cli.run_options import running_mesh_options, runs_option, sweep_options
from lab.cli.scenario_files import SCENARIO
from lab.scenarios.loading import load_scenario
from lab.scenarios.script.scenario import ScriptError
from services.api.switches import Switches


@click.command(
    "run",
    epilog="""\b
Examples:
  keplab run experiments/first-life/a-pods-first-life.txt
  keplab run experiments/runaway/*.txt --seed 7
  keplab run experiments --seeds 20 --record runs/scenarios.jsonl
  keplab run experiments/crashes/killed-scheduler.txt --processes
  keplab run experiments/runaway/runaway.txt --set kubelet.on_reject=unbind -o json
  keplab run experiments/containers/broken-parts.txt --containers keplab
  keplab run experiments/races/freed-capacity.txt --schedule race.json
  keplab run experiments/runaway/runaway-unbind.txt --recording unbind.keprec""",
)
@click.argument("files", nargs=-1, required=True, type=SCENARIO)
@click.option("--processes", is_flag=True, help="run real processes over gRPC instead of the simulation")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="seed of the run, or the first of --seeds (simulated)"
)
@set_option
@click.option(
    "--engine",
    type=click.Choice(["memory", "sqlite", "etcd"]),
    default="sqlite",
    show_default=True,
    help="storage engine of the API server (processes)",
)
@click.option(
    "--schedule",
    type=click.Path(path_type=Path),
    help="schedule of held messages that `keplab explore --save` wrote; the run takes its seed and switches "
    "(simulated)",
)
@running_mesh_options
@click.option(
    "--seeds", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="number of seeds, from --seed on"
)
@click.option(
    "--recording", type=click.Path(path_type=Path), metavar="FILE.keprec", help="file to record all of one run into"
)
@click.option("--traced", is_flag=True, help="with --recording: also record spans, for `keplab trace` (simulated)")
@runs_option
@sweep_options
@output_option
def run(
    files: tuple[Path, ...],
    processes: bool,
    seed: int,
    seeds: int,
    assignments: tuple[str, ...],
    engine: str,
    schedule: Path | None,
    record: Path | None,
    workers: int,
    server: str,
    containers: str,
    recording: Path | None,
    traced: bool,
    runs: str,
    output: str,
) -> None:
    """Run scenarios and judge expectations and invariants.

    FILE is a scenario, or a folder of which all scenarios are run. With --seeds, --record or --workers the runs are
    spread over the cores, and only failed runs are printed. Each run has a record: `keplab runs` lists the runs, and
    `keplab diff RUN RUN` says where two of them decided differently. --recording writes all of one run into a file:
    every version of every object, every event line and every decision. `keplab get --recording FILE --at RV` and other
    commands read it. The exit code is 1 when an expectation or invariant failed, 2 when a file or switch is wrong.
    """
    Switches.parse(assignments)  # a wrong switch is reported before anything is read
    given, files = files, tuple(_scenario_files(files))
    is_sweep = seeds > 1 or record is not None or workers > 0
    if is_sweep and (processes or schedule is not None):
        fail("--seeds, --record and --workers need the simulation, without --schedule")
    if (server or containers) and (processes or is_sweep or schedule is not None):
        fail("--server and --containers use a mesh that runs already, and make one run after the other")
    if recording is not None and (len(files) != 1 or is_sweep or server or containers):
        fail("--recording records one FILE and one seed, simulated or with --processes; for several use keplab compare")
    if traced and (recording is None or processes):
        fail("--traced needs a simulation with --recording; processes are traced anyway")
    if schedule is not None and (processes or len(files) != 1):
        fail("--schedule needs one FILE, simulated")
    with refusing(ScriptError):
        scenarios = [load_scenario(path) for path in files]
    # Only now is the mesh imported: a mistake in a file is reported before.
    with no_collection():
        from lab.cli.scenario_runs import How, perform_runs, perform_sweep

    if is_sweep:
        perform_sweep(given, scenarios, range(seed, seed + seeds), assignments, record, workers, runs, output)
    how = How.of(seed, assignments, processes, engine, schedule, server, containers, recording, traced)
    raise SystemExit(perform_runs(scenarios, how, runs, output))


def _scenario_files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        below = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
        if not below:
            fail(f"there is no scenario below {path}; they are files that end in .txt")
        files += below
    return files
