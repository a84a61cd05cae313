"""DRA drivers as processes, over real sockets, with real kills."""

import json
import os
from pathlib import Path

import pytest

from kubelet.dra.emulated.serving import DriverConfig, build
from lab.scenarios.run import load_scenario, run_as_processes, simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from services.runtime.config import EXIT_LOCKED, StartError
from services.runtime.mesh_directory import hold

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
    assert "kubelet.driver_registered" in went_well(load_scenario(FOLDER / f"{name}.txt"), tmp_path)


@pytest.mark.parametrize("act", [
    "kill dra-driver/n1/gpu.example.com at=driver.prepare",
    "kill kubelet/n1 at=kubelet.prepared",
    "dra-driver n1 gpu.example.com crash down=3s",
    "pause dra-driver/n1/gpu.example.com for=5s at=driver.prepare",
])  # fmt: skip
def test_fm_k9_a_driver_or_kubelet_that_dies_or_hangs_at_a_prepare_costs_time_and_nothing_else(act, tmp_path):
    events = went_well(parse_scenario(KILLED.format(act=act), str(FOLDER / "killed.txt"), VERBS), tmp_path)

    assert events.count("kubelet.start") == 1
    assert "driver.unprepare" in events


def test_a_second_copy_of_a_driver_does_not_start_and_names_the_first(tmp_path):
    folder = tmp_path / "dra-driver" / "n1" / "gpu.example.com"
    first = hold(folder, "DRA driver gpu.example.com of node n1")
    try:
        config = DriverConfig(node="n1", definition="gpu.example.com:1", data_dir=str(folder))
        with pytest.raises(StartError) as found:
            build(config, None)
    finally:
        os.close(first)

    assert (
        found.value.message
        == f"DRA driver gpu.example.com of node n1 runs already (pid {os.getpid()}): it holds {folder}"
    )
    assert found.value.exit_code == EXIT_LOCKED


ATTACHED = """
nodes n1 cpu=8 drivers=gpu.example.com:1:{conditions}:binding-delay=12
nodes n2 cpu=8 drivers=gpu.example.com:2:{conditions}:binding-delay=2:fail-binding=gpu-0
limit 120s
apply gpus.yaml
wait 1s
pod a claim-templates=gpu grace=1 node-selector=kubernetes.io/hostname:n1
pod b claim-templates=gpu grace=1 node-selector=kubernetes.io/hostname:n2
wait 10s
expect each pods name=a spec.nodeName == ""
expect within 9s each pods name=a spec.nodeName == n1
expect within 40s each pods phase == Running
expect count resourceclaims status.allocation.devices.results[0].device=gpu-1 == 1
delete pod/a
delete pod/b
expect within 30s count resourceclaims == 0
""".format(conditions="binding-condition=x.io/attached:binding-failure-condition=x.io/broken")


def test_dra_core_14_drivers_as_processes_report_binding_conditions(tmp_path):
    events = went_well(parse_scenario(ATTACHED, str(FOLDER / "attached.txt"), VERBS), tmp_path)

    assert events.count("driver.binding") == 3


PUBLISHED = """
nodes n1 cpu=8 drivers=card.yaml+nic.yaml:fail-prepare=0
limit 120s
apply classes.yaml
expect within 10s count resourceslices == 3
pod a claim-templates=half grace=1
pod b claim-templates=nic-4gi grace=1
pod c claim-templates=nic-4gi grace=1
expect within 20s count pods phase=Running == 3
pod w claim-templates=whole grace=1
wait 2s
expect each pods name=w status.conditions[PodScheduled].message ~ "cannot allocate all claims"
delete pod/a
expect within 20s each pods name=w phase == Running
delete pod/w
delete pod/b
delete pod/c
expect within 30s count resourceclaims == 0
"""


def test_dra_core_09_and_10_drivers_as_processes_publish_what_their_files_say(tmp_path):
    path = str(FOLDER.parent / "drivers" / "published.txt")
    events = went_well(parse_scenario(PUBLISHED, path, VERBS), tmp_path)

    assert events.count("driver.unprepare") == 4


AWAY = """
set kubelet.dra_wipe_delay_s=8
nodes n1 cpu=8 drivers=gpu.example.com:1
nodes n2 cpu=8 drivers=nic.example.com:1
limit 120s
apply gpus.yaml
apply nics.yaml
wait 1s
pod a claim-templates=gpu grace=1
pod b claim-templates=nic grace=1
expect within 20s count pods phase=Running == 2
dra-driver n1 gpu.example.com crash down=4s
dra-driver n2 nic.example.com crash down=16s
expect for 5s count resourceslices == 2
expect within 8s count resourceslices == 1
expect each resourceslices spec.driver == gpu.example.com
pod c claim-templates=nic grace=1
expect within 4s each pods name=c status.conditions[PodScheduled].message ~ "cannot allocate all claims"
expect count pods phase=Running == 2
expect within 20s count resourceslices == 2
expect each pods phase=Running status.containerStatuses[0].restartCount == 0
delete pod/b
expect within 20s each pods name=c phase == Running
expect each pods name=a status.containerStatuses[0].restartCount == 0
"""


def test_dra_core_19_slices_outlive_a_short_absence_of_their_driver_and_go_when_a_long_one_has_lasted_the_delay(
    tmp_path,
):
    """Half a minute, as Kubernetes has it, is 8 s here: a driver away for half as long, and one for twice as long."""
    lines = []
    scenario = parse_scenario(AWAY, str(FOLDER.parent / "claims" / "own.txt"), VERBS)

    result = run_as_processes(scenario, engine="memory", data_dir=tmp_path / "mesh", on_line=lines.append)

    assert [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed] == []
    assert [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations] == []
    away = "dra-driver/n2/nic.example.com"
    (killed_ns,) = (line.mono_ns for line in lines if line.ev == "fault.inject" and line.data["target"] == away)
    (gone_ns,) = (
        line.mono_ns
        for line in lines
        if line.ev == "store.commit" and line.obj["kind"] == "ResourceSlice" and line.data["type"] == "DELETED"
    )
    assert 6.0 <= (gone_ns - killed_ns) / 1e9 <= 10.0
    assert len([line for line in lines if line.ev == "kubelet.start"]) == 3


TAKEN_FROM_A_POD_THAT_RUNS = """
nodes n1 cpu=8 drivers=gpu.example.com:1
limit 60s
apply gpus.yaml
apply shared-gpu.yaml
wait 1s
pod a claims=shared grace=1
expect within 20s each pods name=a phase == Running
kill claim-controller down=60s
as scheduler patch resourceclaims/shared/status {"status": {"reservedFor": null, "allocation": null}} -> 200
apply other.yaml
pod b claims=other grace=1
expect within 20s each pods name=b phase == Running
"""
OTHER = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: other, namespace: default}
spec:
  devices:
    requests: [{name: gpu, exactly: {deviceClassName: gpu}}]
"""


@pytest.mark.parametrize("is_simulated", [True, False])
def test_i7_a_device_that_is_prepared_for_two_claims_fails_the_run_with_both_pods(is_simulated, tmp_path):
    """A client takes the device from a pod that runs; the driver has no guard and prepares it again."""
    for name in ("gpus.yaml", "shared-gpu.yaml"):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    (tmp_path / "other.yaml").write_text(OTHER)
    scenario = parse_scenario(TAKEN_FROM_A_POD_THAT_RUNS, str(tmp_path / "taken.txt"), VERBS)

    if is_simulated:
        result = simulate(scenario, seed=1)
    else:
        result = run_as_processes(scenario, engine="memory", data_dir=tmp_path / "mesh")

    assert not result.passed
    (found,) = (violation for violation in result.violations if violation.invariant == "I7")
    assert found.objects == ("ResourceClaim default/other",)
    assert "device gpu.example.com/n1/gpu-0 is prepared for claim" in found.detail
    assert "(pod b, prepared at" in found.detail
    assert "(pod a, prepared at" in found.detail
