"""`keplab chaos`: a scenario under random faults, many seeds."""

from __future__ import annotations

from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from services.api.switches import SwitchError, Switches
from services.chaos.seeds import Job, Outcome, digest_elsewhere, run_jobs
from services.cli.live import console
from services.cli.output import EXIT_FAILED, fail, output_option, print_json
from services.scenarios.run import load_scenario
from services.scenarios.script.scenario import ScriptError


@click.command(
    "chaos",
    epilog="""\b
Examples:
  keplab chaos experiments/crashes/killed-scheduler.txt --seeds 50
  keplab chaos experiments/runaway/runaway.txt --set kubelet.on_reject=unbind --seeds 1000 --record runs/seeds.jsonl
  keplab chaos experiments/runaway/runaway.txt --seed 17 --seeds 1          (replays one seed)""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seeds", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="how many seeds")
@click.option("--seed", type=int, default=0, show_default=True, help="the first seed")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="set a switch")
@click.option("--no-rest", is_flag=True, help="judge safety only: this arm never comes to rest")
@click.option("--record", type=click.Path(path_type=Path), help="remember finished seeds here, and go on from there")
@click.option("--repeat", type=click.IntRange(0, 1000), default=0, help="compare digests over fresh interpreters")
@output_option
def command(
    file: Path,
    seeds: int,
    seed: int,
    assignments: tuple[str, ...],
    no_rest: bool,
    record: Path | None,
    repeat: int,
    output: str,
) -> None:
    """Tell FILE once a seed while components are killed and links break; judge invariants and rest."""
    try:
        load_scenario(file)
        Switches.parse(assignments)
    except (ScriptError, SwitchError) as error:
        fail(str(error))
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
    jobs = [Job(str(file), tuple(assignments), number, not no_rest) for number in range(seed, seed + seeds)]
    outcomes = _run(jobs, record, quiet=output == "json")
    failed = [o for o in outcomes if o.problem]
    digests = _digests_elsewhere(jobs[0], repeat, quiet=output == "json")
    differs = repeat > 0 and digests != {next(o.digest for o in outcomes if o.seed == seed)}
    if output == "json":
        print_json(
            {
                "scenario": str(file),
                "seeds": len(outcomes),
                "failed": [{"seed": o.seed, "problem": o.problem} for o in failed],
                "digests": sorted(digests),
            }
        )
    else:
        _show(jobs, outcomes, failed)
        if repeat:
            verdict = f"{len(digests)} different digests" if differs else "the same digest each time"
            console.print(f"seed {seed} again in {repeat} fresh interpreters: {verdict}")
    raise SystemExit(EXIT_FAILED if failed or differs else 0)


def _progress(what: str, *, quiet: bool) -> Progress:
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]} failed"))
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=quiet or not console.is_terminal)


def _run(jobs: list[Job], record: Path | None, *, quiet: bool) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with _progress("seeds", quiet=quiet) as progress:
        task = progress.add_task("", total=len(jobs), failed=0)

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            progress.update(task, advance=1, failed=sum(bool(o.problem) for o in outcomes))

        try:
            run_jobs(jobs, record, done)
        except KeyboardInterrupt:
            on = "; the same command goes on from there" if record is not None else ""
            console.print(f"interrupted after {len(outcomes)} of {len(jobs)} seeds{on}", markup=False)
            raise
    return sorted(outcomes, key=lambda o: o.seed)


def _digests_elsewhere(job: Job, repeat: int, *, quiet: bool) -> set[str]:
    digests: set[str] = set()
    if repeat:
        with _progress("again", quiet=quiet) as progress:
            task = progress.add_task("", total=repeat, failed=0)
            for number in range(repeat):
                digests.add(digest_elsewhere(job, number))
                progress.update(task, advance=1, failed=len(digests) - 1)
    return digests


def _show(jobs: list[Job], outcomes: list[Outcome], failed: list[Outcome]) -> None:
    by_seed = {job.seed: job for job in jobs}
    for outcome in failed[:20]:
        console.print(f"seed {outcome.seed}: {outcome.problem}", markup=False)
        console.print(f"  {by_seed[outcome.seed].command}", markup=False)
    virtual, wall = sum(o.virtual_s for o in outcomes), sum(o.wall_s for o in outcomes)
    speed = f", {virtual / wall:.0f} simulated seconds a second" if wall else ""
    faults = sum(o.fault_count for o in outcomes)
    console.print(f"{len(outcomes) - len(failed)} of {len(outcomes)} seeds passed, {faults} faults{speed}")


COMMAND = command
