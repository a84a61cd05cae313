"""Resizes that take a whole mesh: the scheduler's part and the quota's (acceptance scenarios 9 and 17 of kep-1287)."""

from pathlib import Path

from lab.scenarios.run import load_scenario, simulate

FOLDER = Path(__file__).parents[2] / "experiments" / "resize"


def _observed(name, seed=1):
    return simulate(load_scenario(FOLDER / f"{name}.txt"), seed=seed)


def test_kep_1287_09_resizes_and_the_scheduler_take_turns_on_one_node():
    assert _observed("scheduler-flow").passed


def test_kep_1287_17_a_quota_is_freed_when_the_node_has_taken_it_away():
    first, second = _observed("quota", seed=7), _observed("quota", seed=7)

    assert first.passed
    assert first.digest == second.digest
