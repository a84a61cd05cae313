"""Run one arm with one seed, in this interpreter or in a worker, and keep what a comparison needs of the result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab.experiments.bands import rows_of
from lab.experiments.decisions import DecisionsDigest
from lab.experiments.document import ArmRun, Run
from lab.experiments.fates import fate_of
from lab.recordings.writer import NotRecordable
from lab.scenarios.loading import load_scenario
from lab.scenarios.processes.access import Access
from lab.scenarios.recording import RunRecorder, run_recorder
from lab.scenarios.result import RunResult
from lab.scenarios.run import run_against, run_as_processes, simulate
from lab.scenarios.runner import Progress
from lab.scenarios.script.scenario import Scenario, ScriptError
from services.api.switches import SwitchError, Switches
from services.runtime.config import MeshError

PROBLEMS_MAX = 3


@dataclass(frozen=True)
class ArmJob:
    """One run: the scenario's file, the arm's name, the switches set besides the scenario's own, and the seed."""

    scenario: str
    arm: str
    assignments: tuple[str, ...]
    seed: int
    is_simulated: bool = True
    access: Access | None = None
    """Access to a mesh that already runs; such a mesh has one run at a time, in this process."""
    recording: str = ""
    """Path of the recording of the whole run; empty for none. A run on a mesh that already runs is not recorded."""


def run_arm(job: ArmJob) -> ArmRun:
    """Run one job. An error that ends the run is stored in the result and ends no other run."""
    return run_arm_showing(job, None)


def run_arm_showing(job: ArmJob, progress: Progress | None) -> ArmRun:
    """Run one job, and report its progress."""
    decisions = DecisionsDigest()
    run: Callable[..., RunResult] = simulate if job.is_simulated else partial(run_as_processes, arm=job.arm)
    try:
        scenario = load_scenario(job.scenario)
        overrides = Switches.parse(job.assignments).chosen_values
        with _recorder(job, scenario) as recorder:
            if job.access is not None:
                result = run_against(scenario, job.access, seed=job.seed, overrides=overrides, progress=progress)
            else:
                result = run(
                    scenario,
                    seed=job.seed,
                    overrides=overrides,
                    progress=progress,
                    on_line=decisions.take,
                    recorder=recorder,
                )
    except (ScriptError, SwitchError, NotRecordable) as error:
        return ArmRun(job.arm, Run(job.seed, passed=False, error=str(error)), is_mistake=True)
    except MeshError as error:
        what = "the mesh could not start" if job.access is None else "the running mesh"
        return ArmRun(job.arm, Run(job.seed, passed=False, error=f"{what}: {error}"))
    except Exception as error:  # a seed that breaks the simulator must be reported, not end the other 199
        return ArmRun(job.arm, Run(job.seed, passed=False, error=f"{type(error).__name__}: {error}"))
    return arm_run(job.arm, result, decisions)


@contextmanager
def _recorder(job: ArmJob, scenario: Scenario) -> Iterator[RunRecorder | None]:
    """Record the run, if that is wanted. Raises: NotRecordable."""
    if not job.recording:
        yield None
        return
    with run_recorder(Path(job.recording), scenario, seed=job.seed, arm=job.arm) as recorder:
        yield recorder


def arm_run(arm: str, result: RunResult, decisions: DecisionsDigest) -> ArmRun:
    """Return the part of a run's result that a comparison keeps."""
    broken = [
        f"{v.invariant} at {v.at:.3f} s: {', '.join(v.objects)}: {v.detail}" for v in result.violations[:PROBLEMS_MAX]
    ]
    run = Run(
        result.seed,
        result.digest,
        result.measures,
        result.passed,
        result.violation_count,
        [*broken, *result.failures[:PROBLEMS_MAX]],
        result.measure_errors,
        result.error,
        len(result.pods),
        decisions.count,
        decisions.digest,
        round(result.virtual_s, 6),
        round(result.wall_s, 3),
    )
    exact = result.mode == "simulated"
    fates = {pod.role: fate_of(pod, exact=exact) for pod in result.pods}
    return ArmRun(arm, run, fates, rows_of(result.samples), result.is_mistake)
