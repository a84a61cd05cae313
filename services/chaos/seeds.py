"""Many seeds: run them over the machine's cores, remember which are done, say how to replay a failure.

Progress is kept as one JSON line a seed, so an interrupted run goes on where it stopped. The same seed
is also run in fresh interpreters with different hash seeds: its digest must not change.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import msgspec

from services.api.switches import Switches
from services.chaos.run import run_chaos
from services.scenarios.run import load_scenario


@dataclass(frozen=True)
class Job:
    """One seed of one arm of one scenario."""

    scenario: str
    assignments: tuple[str, ...]
    seed: int
    must_rest: bool = True

    @property
    def command(self) -> str:
        """What replays exactly this run."""
        sets = "".join(f" --set {text}" for text in self.assignments)
        return (
            f"keplab chaos {self.scenario} --seed {self.seed} --seeds 1{sets}{'' if self.must_rest else ' --no-rest'}"
        )


class Outcome(msgspec.Struct):
    """What became of one job. `problem` is empty when it passed."""

    scenario: str
    assignments: tuple[str, ...]
    seed: int
    digest: str
    problem: str
    wall_s: float
    virtual_s: float
    fault_count: int = 0
    must_rest: bool = True


def run_job(job: Job) -> Outcome:
    """Run one job in this interpreter; a crash of the simulator itself is a problem too."""
    try:
        switches = Switches.parse(job.assignments)
        overrides = {text.partition("=")[0]: switches[text.partition("=")[0]] for text in switches.assignments}
        run = run_chaos(load_scenario(job.scenario), seed=job.seed, overrides=overrides, must_rest=job.must_rest)
    except Exception as error:  # a seed that breaks the simulator must be reported, not end the other 999
        problem = f"{type(error).__name__}: {error}"
        return Outcome(job.scenario, job.assignments, job.seed, "", problem, 0.0, 0.0, 0, job.must_rest)
    result = run.result
    return Outcome(
        job.scenario, job.assignments, job.seed, result.digest, run.problem, result.wall_s, result.virtual_s,
        len(run.faults), job.must_rest,
    )  # fmt: skip


def run_jobs(jobs: Sequence[Job], record: Path | None, done: Callable[[Outcome], None], *, workers: int = 0) -> None:
    """Run what the record does not hold yet; call `done` for each outcome, those of the record first.

    An interrupt ends the workers at once; what they had finished is in the record.
    """
    known = _read(record)
    left = []
    for job in jobs:
        outcome = known.get((job.scenario, job.assignments, job.seed, job.must_rest))
        if outcome is None:
            left.append(job)
        else:
            done(outcome)
    pool = ProcessPoolExecutor(workers or os.cpu_count() or 1, get_context("spawn"))
    # Workers, who begin now, inherit this and leave interrupts to us: their tracebacks would say nothing useful.
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        futures = [pool.submit(run_job, job) for job in left]
    finally:
        signal.signal(signal.SIGINT, ours)
    try:
        for future in as_completed(futures):
            outcome = future.result()
            if record is not None:
                with record.open("ab") as file:
                    file.write(msgspec.json.encode(outcome) + b"\n")
            done(outcome)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in active_children():
            worker.terminate()
        raise
    pool.shutdown()


def _read(record: Path | None) -> dict[Any, Outcome]:
    if record is None or not record.exists():
        return {}
    if not record.read_bytes().endswith(b"\n"):
        with record.open("ab") as file:
            file.write(b"\n")  # a torn line must not swallow the next one
    known = {}
    for line in record.read_bytes().splitlines():
        try:
            outcome = msgspec.json.decode(line, type=Outcome)
        except msgspec.DecodeError:
            continue
        if not outcome.problem:
            known[(outcome.scenario, outcome.assignments, outcome.seed, outcome.must_rest)] = outcome
    return known


def digest_elsewhere(job: Job, hash_seed: int) -> str:
    """Return the job's digest from a fresh interpreter with that PYTHONHASHSEED."""
    code = (
        "import sys, msgspec; from services.chaos.seeds import Job, run_job;"
        "print(run_job(msgspec.json.decode(sys.argv[1], type=Job)).digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, msgspec.json.encode(job).decode()],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
