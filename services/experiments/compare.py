"""Run every arm with every seed and say what differs: measure by measure and pod by pod.

Arms share seeds, so whatever differs in simulation differs because of the switches: an A/A comparison
shows exactly nothing. Pods of two runs are matched by role (owner and order of creation).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from services.experiments.arms import Arm
from services.scenarios.measures.history import PodHistory
from services.scenarios.result import RunResult

RunOne = Callable[[Arm, int], RunResult]
"""Runs one arm with one seed."""

DIFFERENCES_MAX = 5000


@dataclass(frozen=True)
class PodDifference:
    """One pod role whose fate differs between the first arm and another, for one seed. None: no such pod."""

    seed: int
    arm: str
    pod: str
    first: str | None
    other: str | None


@dataclass
class Comparison:
    """All runs by arm, and how the others differ from the first arm."""

    scenario: str
    mode: str
    arms: list[tuple[Arm, list[RunResult]]] = field(default_factory=list)
    differences: list[PodDifference] = field(default_factory=list)
    difference_count: int = 0

    @property
    def passed(self) -> bool:
        """Whether no run broke an invariant. Expectations belong to the arm the scenario was written for."""
        return all(run.violation_count == 0 and not run.error for _, runs in self.arms for run in runs)

    def document(self, report: str) -> dict[str, Any]:
        """Return the JSON document of `keplab compare -o json`."""
        return {
            "scenario": self.scenario,
            "mode": self.mode,
            "arms": [
                {
                    "name": arm.name,
                    "switches": list(arm.assignments),
                    "runs": [
                        {
                            "seed": run.seed,
                            "digest": run.digest,
                            "measures": run.measures,
                            "passed": run.passed,
                            "violations": run.violation_count,
                            "error": run.error,
                        }
                        for run in runs
                    ],
                }
                for arm, runs in self.arms
            ],
            "differences": [
                {"seed": d.seed, "pod": d.pod, "arm": d.arm, "arm_a": d.first, "arm_b": d.other}
                for d in self.differences
            ],
            "difference_count": self.difference_count,
            "report": report,
        }


def fate(pod: PodHistory, *, exact: bool) -> str:
    """Return a pod's fate as one comparable text; times only when `exact` (simulation)."""
    where = "→".join(pod.nodes) or "nowhere"
    text = f"{pod.outcome} on {where}"
    if pod.unbinds:
        text += f", {pod.unbinds} unbinds"
    if exact and pod.running_s is not None:
        text += f", Running after {pod.running_s - pod.created_s:.3f} s"
    return text


def compare(scenario: str, mode: str, arms: tuple[Arm, ...], seeds: range, run_one: RunOne) -> Comparison:
    """Run arm by arm, seed by seed, and collect the differences from the first arm."""
    made = Comparison(scenario, mode)
    for arm in arms:
        made.arms.append((arm, [run_one(arm, seed) for seed in seeds]))
    first_runs = made.arms[0][1]
    for arm, runs in made.arms[1:]:
        for one, other in zip(first_runs, runs, strict=True):
            _differ(made, arm.name, one, other)
    return made


def _differ(made: Comparison, arm: str, one: RunResult, other: RunResult) -> None:
    exact = made.mode == "simulated"
    left = {pod.role: fate(pod, exact=exact) for pod in one.pods}
    right = {pod.role: fate(pod, exact=exact) for pod in other.pods}
    for role in dict.fromkeys([*left, *right]):
        if left.get(role) == right.get(role):
            continue
        made.difference_count += 1
        if len(made.differences) < DIFFERENCES_MAX:
            made.differences.append(PodDifference(one.seed, arm, role, left.get(role), right.get(role)))
