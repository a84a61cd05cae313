"""Runs of many scenarios and seeds on all cores of the machine, with a record of passed runs and commands to
replay failures.

Outcomes are stored as one JSON line each, so an interrupted sweep resumes where it stopped. A run is
identified, in the record and for people, by the command that repeats it.
"""

import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import TypeVar

import msgspec

from lab.scenarios.invariants import Violation
from lab.scenarios.result import Judgement, RunResult
from services.api.errors import UNREADABLE
from services.api.switches import Switches, Value

A = TypeVar("A")
B = TypeVar("B")

AHEAD = 8
"""Number of runs per worker that are submitted before the first result is taken: enough to keep it busy, few
to discard.
"""


@dataclass(frozen=True)
class Job:
    """One seed of one scenario with some switches."""

    scenario: str
    assignments: tuple[str, ...]
    seed: int

    @property
    def command(self) -> str:
        """Command line that repeats exactly this run."""
        return f"keplab run {shlex.quote(self.scenario)} --seed {self.seed}{self.sets}"

    @property
    def sets(self) -> str:
        """Command-line options that set the switches."""
        return "".join(f" --set {shlex.quote(text)}" for text in self.assignments)

    @property
    def overrides(self) -> dict[str, Value]:
        """The switches that were set. Raises: SwitchError."""
        return Switches.parse(self.assignments).chosen_values


class Outcome(msgspec.Struct):
    """Outcome of one job. `problem` is empty when it passed; expectations and violations are those of a run."""

    scenario: str
    seed: int
    command: str
    digest: str = ""
    problem: str = ""
    wall_s: float = 0.0
    virtual_s: float = 0.0
    fault_count: int = 0
    expectations: list[Judgement] = []
    violations: list[Violation] = []


def crash_outcome(job: Job, error: Exception) -> Outcome:
    """Return the outcome of a job that ended with an exception."""
    return Outcome(job.scenario, job.seed, job.command, problem=f"{type(error).__name__}: {error}")


def outcome_of(job: Job, result: RunResult, problem: str, fault_count: int = 0) -> Outcome:
    """Return the outcome of a finished job."""
    took_s = (result.wall_s, result.virtual_s)
    return Outcome(job.scenario, job.seed, job.command, result.digest, problem, *took_s, fault_count)


def problem_of(result: RunResult) -> str:
    """Return the problem of a run: an error, else the first failed expectations and invariants; empty if there
    is none.
    """
    if result.error:
        return result.error
    missed = [f"line {j.line}: {j.text} ({j.seen})" for j in result.expectations if not j.passed]
    broken = [f"{v.invariant}: {' '.join((*v.objects, v.detail))}" for v in result.violations]
    return "; ".join([*missed[:3], *broken[:3]])


def run_jobs(
    jobs: Sequence[Job],
    record: Path | None,
    done: Callable[[Outcome], None],
    *,
    workers: int,
    run: Callable[..., Outcome],
) -> None:
    """Run the jobs that the record does not hold as passed; call `done` for each outcome, those of the record
    first.

    `workers`: 0 for as many as there are cores. An interrupt ends them at once; every outcome in the record
    was passed to `done`.
    """
    passed = _passed_outcomes(record)
    for job in jobs:
        if job.command in passed:
            done(passed[job.command])
    left = [job for job in jobs if job.command not in passed]
    for outcome in runs_of(run, left, workers, in_order=False):
        # First: an interrupt between the two may have a run repeated, but never one recorded and not shown.
        done(outcome)
        if record is not None:
            with record.open("ab") as file:
                file.write(msgspec.json.encode(outcome) + b"\n")


def _passed_outcomes(record: Path | None) -> dict[str, Outcome]:
    if record is None or not record.exists():
        return {}
    if not record.read_bytes().endswith(b"\n"):
        with record.open("ab") as file:
            file.write(b"\n")  # a torn line must not swallow the next one
    known = {}
    for line in record.read_bytes().splitlines():
        try:
            outcome = msgspec.json.decode(line, type=Outcome)
        except UNREADABLE:
            continue
        if not outcome.problem:
            known[outcome.command] = outcome
    return known


def runs_of(run: Callable[[A], B], inputs: Iterable[A], workers: int = 0, *, in_order: bool = True) -> Iterator[B]:
    """Yield `run(input)` for each input, in the order of inputs or as soon as each is ready.

    `workers`: 0 for as many as there are cores; 1 is this process itself. A caller that stops iterating,
    because of an interrupt or because it needs no more, ends the workers at once.
    """
    count = workers or os.cpu_count() or 1
    left = iter(inputs)
    if count == 1:
        yield from map(run, left)
        return
    with _pool(count) as pool:
        asked = _submit(pool, run, islice(left, AHEAD * count))
        while asked:
            done = wait(asked, return_when=FIRST_COMPLETED).done if not in_order else asked[:1]
            first = next(future for future in asked if future in done)
            asked.remove(first)
            asked += [pool.submit(run, each) for each in islice(left, 1)]
            yield first.result()


@contextmanager
def _pool(count: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=_begin_worker)
    try:
        yield pool
    except BaseException:
        for worker in active_children():
            worker.terminate()
        # Waited for: the interpreter's exit wakes a thread of the pool without the lock it closes its pipe under.
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _begin_worker() -> None:
    """Leave interrupts to the parent, and end with it, however that ends: an idle worker would wait for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True, name="end-with-parent").start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])  # readable when the parent's end of a pipe is closed, which SIGKILL does, too
    os._exit(1)


def _submit(pool: ProcessPoolExecutor, run: Callable[[A], B], inputs: Iterable[A]) -> list[Future[B]]:
    # Workers, who begin now, inherit this and leave interrupts to us: their tracebacks would say nothing useful.
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return [pool.submit(run, each) for each in inputs]
    finally:
        signal.signal(signal.SIGINT, ours)
