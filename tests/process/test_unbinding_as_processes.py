"""Unbinding as processes: over gRPC, with real kills, late watches and each form of the operation."""

from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, run_as_processes

FOLDER = Path(__file__).parents[2] / "experiments" / "unbinding"


@pytest.mark.parametrize(
    "name",
    [
        "killed-mid-unbind", "by-condition", "binding-delete", "late-scheduler", "crash-points", "job", "same-node",
        "old-scheduler-exits",
    ],
)  # fmt: skip
def test_unbinding_as_processes_comes_true_as_in_simulation(name, tmp_path):
    result = run_as_processes(load_scenario(FOLDER / f"{name}.txt"), engine="memory", data_dir=tmp_path / "mesh")

    assert [] == [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert [] == [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations]
    assert result.error == ""
