"""Every scenario below experiments/ comes true in simulation, and no invariant breaks."""

import re
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate
from tests.scenarios.outcome import wrong_in

SCENARIOS = sorted(Path(__file__).parents[2].joinpath("experiments").rglob("*.txt"))
ELSEWHERE = {
    "test_claim_controller.py": (
        "downgrade", "emptied", "job-deleted", "no-execute", "owner-gone", "pod-group", "released", "tainted", "taint-lifted", "what-if",
    ),
    "test_device_claims.py": ("full-list",),
    "test_kep_5194.py": ("api-server-gate", "one-entry", "progress-deadline", "scheduler-gate"),
}  # fmt: skip
"""By file, scenarios that a test there runs as they are, with this seed, and holds `wrong_in` of: a second run would be the same."""
HERE = [path for path in SCENARIOS if path.stem not in chain.from_iterable(ELSEWHERE.values())]


@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_the_scenario_comes_true(path):
    scenario = load_scenario(path)

    assert wrong_in(scenario, simulate(scenario, seed=1)) == []


@pytest.mark.parametrize(("file", "stem"), [(file, stem) for file, stems in ELSEWHERE.items() for stem in stems])
def test_what_is_not_run_here_is_there_and_is_run_by_the_file_that_is_named(file, stem):
    text = Path(__file__).with_name(file).read_text()

    assert stem in [path.stem for path in SCENARIOS]
    assert re.search(rf"\"([a-z0-9-]+/)?{stem}\"", text)
    assert "wrong_in(" in text


def test_there_are_at_least_eight_scenarios():
    assert len(SCENARIOS) >= 8


def test_every_scenario_has_a_name_of_its_own():
    counted = Counter(path.stem for path in SCENARIOS)

    assert [] == [name for name, count in counted.items() if count > 1]
