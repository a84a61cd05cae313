"""Many seeds of faults: one job a seed, and its digest from fresh interpreters.

The same seed is also run in fresh interpreters with different hash seeds: its digest must not change.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass

import msgspec

from services.chaos.run import run_chaos
from services.scenarios.run import load_scenario
from services.scenarios.sweep import Job, Outcome, crashed, outcome_of


@dataclass(frozen=True)
class ChaosJob(Job):
    """One seed of faults for one scenario. `must_rest` False: safety only."""

    must_rest: bool = True

    @property
    def command(self) -> str:
        """What repeats exactly this run."""
        no_rest = "" if self.must_rest else " --no-rest"
        return f"keplab chaos {shlex.quote(self.scenario)} --seed {self.seed} --seeds 1{self.sets}{no_rest}"


def run_job(job: ChaosJob) -> Outcome:
    """Run one job in this interpreter; a crash of the simulator itself is a problem too."""
    try:
        scenario = load_scenario(job.scenario)
        run = run_chaos(scenario, seed=job.seed, overrides=job.overrides, must_rest=job.must_rest)
    except Exception as error:  # a seed that breaks the simulator must be reported, not end the other 999
        return crashed(job, error)
    return outcome_of(job, run.result, run.problem, len(run.faults))


def digest_elsewhere(job: ChaosJob, hash_seed: int) -> str:
    """Return the job's digest from a fresh interpreter with that PYTHONHASHSEED."""
    code = (
        "import sys, msgspec; from services.chaos.seeds import ChaosJob, run_job;"
        "print(run_job(msgspec.json.decode(sys.argv[1], type=ChaosJob)).digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, msgspec.json.encode(job).decode()],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
