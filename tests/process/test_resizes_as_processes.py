"""Preemption for deferred resizes as processes: a race and both its ends, a replaced request, opt-out, a restart (KEP-5836).

Time is real here: the longest of these scenarios takes two thirds of a minute.
"""

from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, run_as_processes

SCENARIOS = Path(__file__).parents[2] / "experiments" / "kep-5836"


@pytest.mark.parametrize(
    "name",
    [
        "one-victim",
        "competing-resize",
        "competing-resize-woken",
        "superseded-mid-preemption",
        "opt-out-condition",
        "restart-guarded",
    ],
)
def test_kep_5836_the_scenario_comes_true_as_processes(name, tmp_path):
    result = run_as_processes(
        load_scenario(SCENARIOS / f"{name}.txt"), seed=1, engine="memory", data_dir=tmp_path / "mesh"
    )

    assert [] == [f"line {j.line}: {j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert [] == [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations]
    assert result.error == ""
