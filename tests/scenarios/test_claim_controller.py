"""The claim controller in a mesh: killed at every write, cut off, and evicting pods from tainted devices."""

from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from tests.scenarios.outcome import wrong_in

FOLDER = Path(__file__).parents[2] / "experiments"
WRITES = ("resourceclaims.resource.k8s.io", "resourceclaims.resource.k8s.io/status", "pods/status")
KILLED = """
nodes n1..n4 cpu=64 drivers=gpu.example.com:5
apply gpus.yaml
wait 1s
kill claim-controller at={site} count={count}
job work completions=20 parallelism=20 claim-templates=gpu run="exit 0 after 4s" grace=1
wait 2s
delete pod/work-*
delete pod/work-*
expect within 60s each jobs name=work status.conditions[Complete].status == True
expect within 60s count resourceclaims == 0
expect created resourceclaims <= 22
"""
SHARED = """
set reserved_for.max=8
nodes n1 cpu=64 drivers=gpu.example.com:1
apply gpus.yaml
apply shared-gpu.yaml
wait 1s
{pods}
expect within 30s count pods phase=Running == 8
expect for 20s count pods phase=Running == 8
kill claim-controller at=after:resourceclaims.resource.k8s.io/status
delete pod/p0
gone pod/p0
expect within 60s each pods phase == Running
expect count pods == 8
expect each resourceclaims name=shared status.allocation.devices.results[0].device == gpu-0
"""
LATER = """
kill claim-controller
wait 19s
expect within 3s each pods name=patient status.conditions[DisruptionTarget].reason == DeletionByDeviceTaintManager
wait 110s
"""


def observe(scenario, seed=1, **overrides):
    lines = []
    result = simulate(
        scenario, seed=seed, overrides={k.replace("__", "."): v for k, v in overrides.items()}, on_line=lines.append
    )
    return wrong_in(scenario, result), lines


def starts(lines):
    return len([line for line in lines if line.ev == "proc.start" and line.comp == "claim-controller"])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fm_d1_killed_at_each_of_its_writes_the_controller_makes_no_second_claim_and_leaves_none(seed):
    wrong, lines = observe(load_scenario(FOLDER / "faults/fm-d1.txt"), seed)

    assert wrong == []
    assert starts(lines) == 5


@pytest.mark.parametrize("count", [1, 7, 15])
@pytest.mark.parametrize("site", [f"{when}:{write}" for write in WRITES for when in ("before", "after")])
def test_as_32_pods_that_are_deleted_while_the_controller_is_killed_leave_no_claim(site, count):
    text = KILLED.format(site=site, count=count)

    wrong, _ = observe(parse_scenario(text, str(FOLDER / "claims" / "killed.txt"), VERBS))

    assert wrong == []


def test_as_32_one_consumer_too_many_waits_until_another_is_gone():
    text = SHARED.format(pods="\n".join(f"pod p{number} claims=shared grace=1" for number in range(9)))

    wrong, _ = observe(parse_scenario(text, str(FOLDER / "claims" / "shared.txt"), VERBS))

    assert wrong == []


@pytest.mark.parametrize("name", ["no-execute", "taint-lifted", "what-if"])
def test_dra_core_12_and_13_pods_on_tainted_devices_go_when_their_tolerations_run_out(name):
    wrong, _ = observe(load_scenario(FOLDER / f"devices/{name}.txt"))

    assert wrong == []


def test_dra_core_12_the_deadline_outlives_the_controller_that_set_it():
    text = (FOLDER / "devices/no-execute.txt").read_text().partition("\nwait 16s\n")[0]
    scenario = f"{text}{LATER}"

    wrong, lines = observe(parse_scenario(scenario, str(FOLDER / "devices" / "killed.txt"), VERBS))

    assert wrong == []
    assert starts(lines) == 2


@pytest.mark.parametrize(
    "name", ["owner-gone", "job-deleted", "downgrade", "emptied", "released", "tainted", "pod-group"]
)
def test_kep_5194_the_claim_controllers_part_of_the_designs_comes_true(name):
    wrong, _ = observe(load_scenario(FOLDER / f"kep-5194/{name}.txt"))

    assert wrong == []


REFUSED = """
limit 900s
nodes n1 cpu=16 drivers=gpu.example.com:4
apply gpus.yaml
as admin create resourcequotas {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "0"}}} -> 201
wait 2s
pod p claim-templates=gpu
wait 600s
expect count events reason=FailedResourceClaimCreation == 10
expect count events reason=FailedResourceClaimCreation count=1 == 9
expect each events reason=FailedResourceClaimCreation message ~ "exceeded quota: none, requested: gpu"
"""


def test_claims_that_a_quota_refuses_are_reported_as_upstreams_recorder_does():
    """Each try has another generated name, and the message names it; from the tenth on they are one event."""
    wrong, _ = observe(parse_scenario(REFUSED, str(FOLDER / "claims" / "own.txt"), VERBS))

    assert wrong == []
