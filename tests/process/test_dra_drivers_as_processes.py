"""DRA drivers as processes, over real sockets, with real kills."""

from pathlib import Path

import pytest

from services.scenarios.run import load_scenario, run_as_processes

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def went_well(scenario, tmp_path):
    result = run_as_processes(scenario, engine="memory", data_dir=tmp_path / "mesh")
    assert [] == [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert [] == [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations]
    assert result.error == ""


@pytest.mark.parametrize("name", ["devices/reconcile", "devices/sick-device"])
def test_dra_core_7_drivers_as_processes_do_as_in_simulation(name, tmp_path):
    went_well(load_scenario(EXPERIMENTS / f"{name}.txt"), tmp_path)
