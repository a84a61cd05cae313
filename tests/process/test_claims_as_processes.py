"""The claim controller as a process: killed at its writes (FM-D1, AS-32; dra-core, acceptance scenario 20), and pods on tainted devices."""

from collections import Counter
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, run_as_processes
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize("name", ["faults/fm-d1", "devices/no-execute", "claims/killed"])
def test_a_scenario_of_the_claim_controller_comes_true_as_processes(name, tmp_path):
    text = (FOLDER / f"{name}.txt").read_text().partition("# Devices that stay prepared")[0]
    folder = (FOLDER / name).parent
    for path in folder.glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text())
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(text)

    result = run_as_processes(load_scenario(scenario), seed=1, engine="memory", data_dir=tmp_path / "mesh")

    wrong = [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert [*wrong, *(f"{v.invariant}: {v.objects} {v.detail}" for v in result.violations)] == []
    assert result.error == ""


ROUND = """
scale deployment/web replicas=0
wait 0.4s
scale deployment/web replicas=4
expect within 40s count pods == 4
expect within 20s count pods phase=Running == 4
expect within 10s each resourceclaims name=net status.reservedFor[0].name == web
expect each resourceclaims name=net status.allocation.reservedForAnyPod == true
wait 1.5s
expect each resourceclaims name=net status.reservedFor[0].name == web
"""
ROUNDS = 5


def test_kep_5194_06_scaled_to_zero_and_back_again_and_again_no_pod_runs_without_devices(tmp_path):
    """In one mesh, with what the claim controller sends and gets half a second late."""
    lines = []
    began = (FOLDER / "kep-5194" / "scale-race.txt").read_text().partition("scale deployment/web replicas=0")[0]
    path = FOLDER / "kep-5194" / "own.txt"
    scenario = parse_scenario(began + ROUND * ROUNDS, str(path), VERBS)

    result = run_as_processes(scenario, seed=1, engine="memory", data_dir=tmp_path / "mesh", on_line=lines.append)

    assert [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed] == []
    assert [f"{v.invariant}: {v.objects} {v.detail}" for v in result.violations] == []
    writers = ("system:controller:deployment", "system:serviceaccount:kube-system:resource-claim-controller")
    refused = [
        line for line in lines
        if line.ev == "api.response" and line.data["code"] == 409 and line.identity in writers
        and line.data["path"].startswith("resourceclaims")
    ]  # fmt: skip
    assert len(refused) <= ROUNDS
    freed = [
        line for line in lines
        if line.ev == "store.commit" and line.obj["kind"] == "ResourceClaim" and line.identity == writers[0]
    ]  # fmt: skip
    assert len(freed) >= 1, "the Deployment's controller gave the claim back at least once"


def test_kep_5194_02_of_300_pods_on_one_claim_256_run_and_each_of_the_others_is_refused_at_least_three_times(tmp_path):
    lines = []

    result = run_as_processes(
        load_scenario(FOLDER / "kep-5194" / "full-list.txt"),
        seed=1,
        engine="memory",
        data_dir=tmp_path / "mesh",
        on_line=lines.append,
    )

    assert [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed] == []
    assert (result.violations, result.error) == ([], "")
    refused = Counter(
        line.obj["name"] for line in lines
        if line.ev == "sched.attempt" and "Too many: 257" in line.data.get("message", "")
    )  # fmt: skip
    assert (len(refused), min(refused.values()) >= 3) == (44, True)
