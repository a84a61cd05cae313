"""Helpers of `keplab run --seeds` and `keplab chaos`: many runs with a progress bar, and their printed results."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lab.cli.live import progress_bar
from lab.cli.output import print_table
from lab.experiments.wording import count_text
from lab.scenarios.observer import Observer
from lab.scenarios.sweep import Job, Outcome, run_jobs

SHOWN_MAX = 20
"""Largest number of failures that are printed; a record and `-o json` have all."""


FAILED = "{task.fields[failed]} failed"


def sweep(
    jobs: Sequence[Job], record: Path | None, workers: int, run: Callable[..., Outcome], *, what: str, quiet: bool
) -> tuple[list[Outcome], bool]:
    """Run the jobs; return the outcomes in the order of jobs, and whether Ctrl-C cut the sweep short."""
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
    outcomes: dict[str, Outcome] = {}
    is_interrupted = False
    with progress_bar(what, FAILED, quiet=quiet) as progress:
        task = progress.add_task("", total=len(jobs), failed=0)

        def on_done(outcome: Outcome) -> None:
            outcomes[outcome.command] = outcome
            progress.update(task, advance=1, failed=sum(bool(o.problem) for o in outcomes.values()))

        try:
            run_jobs(jobs, record, on_done, workers=workers, run=run)
        except KeyboardInterrupt:
            is_interrupted = True
    if is_interrupted:
        on = "; the same command goes on from there" if record is not None else ""
        click.echo(f"interrupted after {len(outcomes)} of {len(jobs)} {what}{on}", err=True)
    return [outcomes[job.command] for job in jobs if job.command in outcomes], is_interrupted


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
    with_faults = f", {count_text(faults, 'fault')}" if faults else ""
    click.echo(f"{len(outcomes) - len(failed)} of {len(outcomes)} {what} passed{with_faults}{speed}")


def workers_of(workers: int, runs: int) -> int:
    """Return the number of workers: those asked for (0: as many as cores), at most one per run."""
    return max(1, min(workers or os.cpu_count() or 1, runs))


class RunsBar:
    """Progress of runs: done, failed, time left; a bar where standard error is a terminal, else a line now and then.

    It writes to standard error, so that the command's output can be piped. `is_alone`: False if the output is only
    a JSON document; then no lines are printed when standard error is no terminal.
    """

    LINE_EVERY_S = 10.0

    def __init__(self, total: int, *, done: int = 0, is_alone: bool = True) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._total, self._done, self._known, self._failed = total, done, done, 0
        self._has_lines = is_alone and not self._console.is_terminal
        self._began_s = self._printed_s = time.perf_counter()
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
        self._bar = Progress(
            TextColumn("runs"),
            *columns,
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=total, completed=done, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, *, is_failed: bool) -> None:
        """Count a finished run."""
        self._done += 1
        self._failed += is_failed
        self._bar.update(self._task, completed=self._done, note=self._note(""))
        self._print("")

    def following(self, name: str) -> Callable[[Observer, str], None]:
        """Return a function that shows the progress of one run in this process.

        It reads this bar's clock, the only one that a simulation does not guard.
        """

        def progress(observer: Observer, _: str) -> None:
            last = observer.history.samples[-1]
            now = f"{name}, {last.at_s:.1f} s: pending {last.pending}, running {last.running}, failed {last.failed}"
            self._bar.update(self._task, note=self._note(now))
            self._print(now)

        return progress

    def _note(self, now: str) -> str:
        failed = f"{self._failed} failed" if self._failed else ""
        return "  ".join(filter(None, (failed, now)))

    def _print(self, now: str) -> None:
        at_s = time.perf_counter()
        if not self._has_lines or at_s - self._printed_s < self.LINE_EVERY_S:
            return
        self._printed_s = at_s
        run_count = self._done - self._known
        left_s = (at_s - self._began_s) / run_count * (self._total - self._done) if run_count else None
        left = f", about {duration_text(left_s)} left" if left_s is not None else ""
        note = self._note(now)
        click.echo(f"{self._done} of {count_text(self._total, 'run')}{left}{'; ' if note else ''}{note}", err=True)


def duration_text(seconds: float) -> str:
    """Return a duration as text in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
