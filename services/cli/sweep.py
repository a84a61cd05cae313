"""What `keplab run --seeds` and `keplab chaos` share: many runs with a progress bar, and what to print of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from services.cli.live import progress_bar
from services.cli.output import F, print_table
from services.scenarios.sweep import Job, Outcome, run_jobs

SHOWN_MAX = 20
"""So many failures are printed; a record and `-o json` have all."""


def workers_option(command: F) -> F:
    """Give a command `--workers`."""
    count = click.IntRange(0, 64)
    return click.option("--workers", type=count, default=0, help="processes; 0: as many as cores")(command)


def sweep_options(command: F) -> F:
    """Give a command `--record` and `--workers`."""
    where = "remember what passed here, and go on from there"
    return click.option("--record", type=click.Path(path_type=Path), help=where)(workers_option(command))


FAILED = "{task.fields[failed]} failed"


def sweep(
    jobs: Sequence[Job], record: Path | None, workers: int, run: Callable[..., Outcome], *, what: str, quiet: bool
) -> tuple[list[Outcome], bool]:
    """Return the outcomes in the order of jobs, and whether Ctrl-C cut the sweep short."""
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Outcome] = {}
    is_interrupted = False
    with progress_bar(what, FAILED, quiet=quiet) as progress:
        task = progress.add_task("", total=len(jobs), failed=0)

        def done(outcome: Outcome) -> None:
            found[outcome.command] = outcome
            progress.update(task, advance=1, failed=sum(bool(o.problem) for o in found.values()))

        try:
            run_jobs(jobs, record, done, workers=workers, run=run)
        except KeyboardInterrupt:
            is_interrupted = True
    if is_interrupted:
        on = "; the same command goes on from there" if record is not None else ""
        click.echo(f"interrupted after {len(found)} of {len(jobs)} {what}{on}", err=True)
    return [found[job.command] for job in jobs if job.command in found], is_interrupted


def failures(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the runs that failed, each with the command that repeats it."""
    failed = [outcome for outcome in outcomes if outcome.problem]
    return [{"scenario": o.scenario, "seed": o.seed, "problem": o.problem, "command": o.command} for o in failed]


def show(outcomes: Sequence[Outcome], what: str) -> None:
    """Print which runs failed and how to repeat each, and how many passed."""
    failed = [outcome for outcome in outcomes if outcome.problem]
    if failed:
        rows = [(o.scenario, o.seed, o.problem, o.command) for o in failed[:SHOWN_MAX]]
        print_table(("SCENARIO", "SEED", "PROBLEM", "AGAIN"), rows)
    if len(failed) > SHOWN_MAX:
        click.echo(f"… {len(failed) - SHOWN_MAX} more failed")
    virtual, wall = sum(o.virtual_s for o in outcomes), sum(o.wall_s for o in outcomes)
    speed = f", {virtual / wall:.0f} simulated seconds a second" if wall else ""
    faults = sum(o.fault_count for o in outcomes)
    with_faults = f", {faults} faults" if faults else ""
    click.echo(f"{len(outcomes) - len(failed)} of {len(outcomes)} {what} passed{with_faults}{speed}")
