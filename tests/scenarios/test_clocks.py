"""FM-A13: a wall clock that a scenario moves is off by exactly so much, for that component alone, and seconds go on."""

from datetime import datetime
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
HOUR_S = 3600.0
JUMPS = {
    "faults/fm-a13-apiserver": {
        "apiserver": [0.0, 30.0, -30.0, HOUR_S, -HOUR_S, HOUR_S, -HOUR_S, 0.0],
        "scheduler": [0.0, HOUR_S, -HOUR_S],
    },
    "faults/fm-a13-kubelet": {"kubelet/h0": [0.0, 30.0, HOUR_S, -HOUR_S], "kubelet/h1": [0.0], "apiserver": [0.0]},
    "unbinding/clocks": {"scheduler": [0.0, 5.0, -5.0], "apiserver": [0.0], "kubelet/h0": [0.0]},
}


def skews(lines, component):
    """How far the component's wall clock was off when it wrote a line, in order, repetitions left out."""
    found = []
    for line in lines:
        if line.comp == component:
            wall = datetime.fromisoformat(line.wall).timestamp()
            skew = round(wall - line.mono_ns / 1e9, 3)
            if found[-1:] != [skew]:
                found.append(skew)
    return [round(skew - found[0], 3) for skew in found]


@pytest.mark.parametrize("name", JUMPS)
def test_the_clocks_that_a_scenario_moves_are_off_by_what_it_says(name):
    lines = []
    result = simulate(load_scenario(EXPERIMENTS / f"{name}.txt"), on_line=lines.append)

    assert result.passed
    assert {component: skews(lines, component) for component in JUMPS[name]} == JUMPS[name]
