"""Every scenario below experiments/ comes true in simulation, and no invariant breaks."""

from collections import Counter
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate

SCENARIOS = sorted(Path(__file__).parents[2].joinpath("experiments").rglob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_scenario_comes_true(path):
    scenario = load_scenario(path)
    result = simulate(scenario, seed=1)

    assert [] == [f"line {j.line}: {j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert [] == [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations]
    assert result.error == ""
    ends = sum(step.verb == "ended" for step in scenario.steps)
    assert len(result.failures) == ends, result.failures


def test_there_are_at_least_eight_scenarios():
    assert len(SCENARIOS) >= 8


def test_every_scenario_has_a_name_of_its_own():
    counted = Counter(path.stem for path in SCENARIOS)

    assert [] == [name for name, count in counted.items() if count > 1]
