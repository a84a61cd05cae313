"""Device plugins as processes, over real sockets, with real kills."""

from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, run_as_processes

FOLDER = Path(__file__).parents[2] / "experiments" / "devices"


@pytest.mark.parametrize("name", ["plugin-gone", "ill-device", "plugin-hangs"])
def test_kubelet_13_device_plugins_as_processes_do_as_in_simulation(name, tmp_path):
    result = run_as_processes(load_scenario(FOLDER / f"{name}.txt"), engine="memory", data_dir=tmp_path / "mesh")

    assert [] == [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert [] == [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations]
    assert result.error == ""
