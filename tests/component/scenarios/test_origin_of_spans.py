"""What the processes of a run say of where their spans come from. No process runs."""

import pytest

from lab.experiments.execution import ArmJob, run_arm
from lab.scenarios import run as runs
from lab.scenarios.processes.process_mesh import ProcessMesh
from services.runtime.config import MeshError


@pytest.fixture
def resources(monkeypatch):
    """Refuse every mesh of processes, and keep the resource attributes that each would have had."""
    found = []

    def refuse(self):
        found.append(dict(self._supervisor._options.resource))
        raise MeshError("not now")

    monkeypatch.setattr(ProcessMesh, "start", refuse)
    return found


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "two-pods.txt"
    path.write_text("nodes n1\npod p\n")
    return path


def test_a_comparisons_run_names_scenario_arm_and_seed(resources, scenario):
    run_arm(ArmJob(str(scenario), "PodUnbinding=true", (), 3, is_simulated=False))

    assert resources == [{"keplab.scenario": "two-pods", "keplab.seed": "3", "keplab.arm": "PodUnbinding=true"}]


def test_a_run_of_its_own_has_no_arm(resources, scenario, tmp_path):
    with pytest.raises(MeshError):
        runs.run_as_processes(runs.load_scenario(scenario), seed=5, data_dir=tmp_path / "mesh")

    assert resources == [{"keplab.scenario": "two-pods", "keplab.seed": "5"}]
