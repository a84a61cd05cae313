"""DRA drivers as processes, over real sockets, with real kills."""

import json
from pathlib import Path

import pytest

from services.scenarios.run import load_scenario, run_as_processes
from services.scenarios.script.scenario import parse_scenario
from services.scenarios.script.verbs import VERBS

FOLDER = Path(__file__).parents[2] / "experiments" / "devices"
KILLED = """
nodes n1 cpu=8 drivers=gpu.example.com:2:prepare=0.5
limit 120s
apply gpus.yaml
wait 1s
{act}
pod a claim-templates=gpu grace=1
expect within 60s each pods name=a phase == Running
expect each pods name=a status.containerStatuses[0].restartCount == 0
delete pod/a
expect within 30s count pods == 0
expect within 30s count resourceclaims == 0
"""


def went_well(scenario, tmp_path):
    result = run_as_processes(scenario, engine="memory", data_dir=tmp_path / "mesh")
    assert [] == [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert [] == [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations]
    assert result.error == ""
    files = (tmp_path / "mesh" / "events").iterdir()
    return [json.loads(line)["ev"] for file in files if file.is_file() for line in file.read_text().splitlines()]


@pytest.mark.parametrize("name", ["reconcile", "sick-device"])
def test_dra_core_7_drivers_as_processes_do_as_in_simulation(name, tmp_path):
    went_well(load_scenario(FOLDER / f"{name}.txt"), tmp_path)


@pytest.mark.parametrize("act", [
    "kill dra-driver/n1/gpu.example.com at=driver.prepare",
    "kill kubelet/n1 at=kubelet.prepared",
    "dra-driver n1 gpu.example.com crash down=3s",
    "pause dra-driver/n1/gpu.example.com for=5s at=driver.prepare",
])  # fmt: skip
def test_fm_k9_a_driver_or_kubelet_that_dies_or_hangs_at_a_prepare_costs_time_and_nothing_else(act, tmp_path):
    events = went_well(parse_scenario(KILLED.format(act=act), str(FOLDER / "killed.txt"), frozenset(VERBS)), tmp_path)

    assert events.count("kubelet.start") == 1
    assert "driver.unprepare" in events
