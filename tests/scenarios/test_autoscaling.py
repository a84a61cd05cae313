"""The scenarios of experiments/autoscaling show autoscalers: without theirs, an expectation of each fails."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate

FOLDER = Path(__file__).parents[2] / "experiments" / "autoscaling"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_an_expectation_fails_without_autoscalers(path):
    scenario = load_scenario(path)
    steps = tuple(
        step
        for step in scenario.steps
        if step.verb != "autoscaler" and not any(word.startswith("hpa/") for word in step.args)
    )
    result = simulate(replace(scenario, steps=steps), seed=1)

    assert len(steps) < len(scenario.steps)
    assert [judgement.text for judgement in result.expectations if not judgement.passed] != []
