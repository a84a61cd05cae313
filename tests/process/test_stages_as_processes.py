"""Stages as processes: the same luck as in simulation, and wrong files refused before anything starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from lab.scenarios.run import ScriptError, load_scenario, plan_of, run_as_processes, simulate

FLAKY = (Path(__file__).parents[2] / "experiments" / "stages" / "flaky.yaml").read_text()
SEED = 11
ENDS = {"a": "Failed", "b": "Succeeded", "c": "Succeeded", "d": "Failed"}
"""What the weights of the stages and this seed make of pods of these names."""


def scenario_ending(folder, ends):
    """Return a scenario of four pods, each of which must end so."""
    folder.joinpath("flaky.yaml").write_text(FLAKY.replace("5000", "500"))
    scenario = folder / "scenario.txt"
    scenario.write_text(
        "# Luck\nlimit 60s\nstages flaky.yaml\nnodes n1 cpu=8\n"
        + "".join(f"pod {name} cpu=1\n" for name in ends)
        + "".join(f"expect within 30s each pods name={name} phase == {phase}\n" for name, phase in ends.items())
    )
    return load_scenario(scenario)


def missed(result):
    return [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]


def test_pods_end_as_processes_as_they_end_in_simulation(tmp_path):
    scenario = scenario_ending(tmp_path, ENDS)

    assert missed(simulate(scenario, seed=SEED)) == []
    assert missed(run_as_processes(scenario, seed=SEED, engine="memory", data_dir=tmp_path / "mesh")) == []


def test_a_wrong_stage_of_a_scenario_is_refused_before_it_begins(tmp_path):
    scenario = scenario_ending(tmp_path, ENDS)
    tmp_path.joinpath("flaky.yaml").write_text(FLAKY.replace("Now", "Then"))

    with pytest.raises(ScriptError, match=r"flaky.yaml: stage start: spec.steps\[1\].patch.template: line 2: function"):
        plan_of(scenario, seed=1)


def test_a_wrong_stage_is_refused_before_the_mesh_is_up(tmp_path):
    file = tmp_path / "stages.yaml"
    file.write_text("kind: Stage\n")

    ended = subprocess.run(
        [sys.executable, "-m", "lab.cli", "up", "--data", str(tmp_path / "data"), "--stages", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 2
    assert f"--stages {file}: document 1: want kwok.x-k8s.io/v1alpha1 Stage, found None Stage" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists()
