"""A component restarted with a feature gate off, and on again, as real processes (kep-5194 10, 15.8 to 15.11)."""

from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, run_as_processes

FOLDER = Path(__file__).parents[2] / "experiments" / "kep-5194"


@pytest.mark.parametrize(
    ("name", "shorter"),
    [
        ("mixed", {}),
        ("gate-off-and-on", {"for 60s": "for 10s"}),
        ("old-kubelet", {}),
        ("kubelet-restart", {"for 20s": "for 8s"}),
        ("api-server-gate", {}),
        ("safe-downgrade", {}),
    ],
)
def test_a_gate_goes_off_and_on_again_as_processes(name, shorter, tmp_path):
    text = (FOLDER / f"{name}.txt").read_text()
    for long, short in shorter.items():
        assert long in text
        text = text.replace(long, short)
    for path in FOLDER.glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text())
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(text)

    result = run_as_processes(load_scenario(scenario), seed=1, data_dir=tmp_path / "mesh")

    wrong = [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert [*wrong, *(f"{v.invariant}: {v.objects} {v.detail}" for v in result.violations)] == []
    assert result.error == ""
    assert [each for each in result.failures if "SIGKILL" not in each] == []  # a reboot of a machine is one
