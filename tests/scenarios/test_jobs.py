"""Jobs observed as scenarios, with the figures of the acceptance scenarios read from the event log."""

from itertools import pairwise
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate

FOLDER = Path(__file__).parents[2] / "experiments"


def _observed(name, seed=1, **overrides):
    """Run a scenario; return its result and the event log's lines."""
    lines = []
    overrides = {switch.replace("__", "."): value for switch, value in overrides.items()}
    scenario = load_scenario(FOLDER / f"{name}.txt")
    return simulate(scenario, seed=seed, overrides=overrides, on_line=lines.append), lines


def _births(lines, prefix):
    """Return when each pod was created, in seconds from the first."""
    at_s = [
        line.mono_ns / 1e9
        for line in lines
        if line.ev == "store.commit"
        and line.obj["kind"] == "Pod"
        and line.obj["name"].startswith(prefix)
        and line.data["type"] == "ADDED"
        and not line.data.get("replayed")
    ]
    return [at - at_s[0] for at in at_s]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_controllers_09_fifty_ends_are_counted_exactly_while_the_controllers_are_killed_five_times(seed):
    result, lines = _observed("jobs/counted-once", seed)

    assert result.passed, [(j.text, j.seen) for j in result.expectations if not j.passed]
    assert len([line for line in lines if line.ev == "fault.inject"]) == 5
    assert "I19" not in result.not_judged


def test_controllers_09_nor_does_a_cache_behind_our_own_writes_count_twice():
    result, _ = _observed("jobs/counted-once", 4, controllers__own_write_gate=False)

    assert result.passed


def test_controllers_10_the_gaps_between_pods_that_fail_double_and_the_fourth_failure_is_the_last():
    result, lines = _observed("jobs/back-off")
    births = _births(lines, "work-")

    assert result.passed
    assert len(births) == 4
    # A pod lives for a second; a second more passes until the controller has looked.
    gaps = [later - earlier for earlier, later in pairwise(births)]
    assert gaps == [pytest.approx(10.0 * 2**n, abs=3.0) for n in range(3)]


def test_controllers_11_an_eviction_is_ignored_and_exit_code_42_fails_the_job():
    assert _observed("jobs/failure-policy")[0].passed


def test_controllers_12_and_kubelet_unbinding_18_a_rejection_fails_a_job_unless_the_pod_is_given_back():
    unbound, _ = _observed("unbinding/job")
    failed, _ = _observed("unbinding/job-fail")

    assert unbound.passed
    assert failed.passed


def test_kubelet_unbinding_18_a_job_with_no_patience_is_complete_after_a_rejection():
    result, lines = _observed("unbinding/job")
    counts = [line.data["job"] for line in lines if line.ev == "store.commit" and line.obj["kind"] == "Job"]

    assert counts[-1] == {
        "succeeded": 1,
        "failed": 0,
        "uncounted": [],
        "finished": True,
        "complete": True,
        "exact": True,
    }
    assert max(each["failed"] for each in counts) == 0
    assert len(_births(lines, "work-")) == 1
    assert result.measures["unbinds"] == 1


def test_kubelet_unbinding_18_with_todays_kubelet_it_has_failed():
    _, lines = _observed("unbinding/job-fail")
    counts = [line.data["job"] for line in lines if line.ev == "store.commit" and line.obj["kind"] == "Job"]

    assert counts[-1] == {
        "succeeded": 0,
        "failed": 1,
        "uncounted": [],
        "finished": True,
        "complete": False,
        "exact": True,
    }


def test_a_job_scenario_is_the_same_run_for_the_same_seed():
    assert _observed("jobs/counted-once", 5)[0].digest == _observed("jobs/counted-once", 5)[0].digest
