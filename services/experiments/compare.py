"""Run every arm with every seed and say what differs: measure by measure and pod by pod.

Arms share seeds, so whatever differs in simulation differs because of the switches: an A/A comparison
shows exactly nothing. Pods of two runs are matched by role (owner and order of creation).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.api.switches import SwitchError, Switches, Value, find
from services.scenarios.measures.history import PodHistory
from services.scenarios.result import RunResult

DIFFERENCES_MAX = 5000


@dataclass(frozen=True)
class Arm:
    """One alternative. An arm without switches is the scenario as it stands (an A/A comparison has two)."""

    name: str
    switches: Mapping[str, Value]

    @property
    def assignments(self) -> tuple[str, ...]:
        """`NAME=VALUE` texts, sorted."""
        return Switches(self.switches).assignments


def parse_arm(text: str) -> Arm:
    """Read `NAME` or `NAME:SWITCH=VALUE[,SWITCH=VALUE]`. Raises: SwitchError naming the arm and what was wrong."""
    name, _, rest = text.partition(":")
    if not name or not name.replace("-", "").replace("_", "").isalnum():
        raise SwitchError(f"arm {text!r}: want NAME:SWITCH=VALUE[,SWITCH=VALUE]")
    values: dict[str, Value] = {}
    for part in filter(None, rest.split(",")):
        switch, sign, value = part.partition("=")
        if not sign:
            raise SwitchError(f"arm {name}: {part!r}: want SWITCH=VALUE")
        values[switch.strip()] = find(switch.strip()).parse(value.strip())
    return Arm(name, values)


def parse_arms(texts: tuple[str, ...]) -> tuple[Arm, ...]:
    """Read several arms with different names. Raises: SwitchError."""
    arms = tuple(parse_arm(text) for text in texts)
    names = [arm.name for arm in arms]
    for name in names:
        if names.count(name) > 1:
            raise SwitchError(f"two arms are called {name!r}")
    return arms


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
    arms: list[tuple[Arm, list[RunResult]]]
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


def compare(
    scenario: str, mode: str, arms: tuple[Arm, ...], seeds: range, run_one: Callable[[Arm, int], RunResult]
) -> Comparison:
    """Run arm by arm, seed by seed (`run_one`), and collect the differences from the first arm."""
    made = Comparison(scenario, mode, [(arm, [run_one(arm, seed) for seed in seeds]) for arm in arms])
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
