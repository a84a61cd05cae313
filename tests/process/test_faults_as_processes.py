"""Faults of nodes and kubelets as processes: kill, stop, boot, cut off, clocks and disks, with shortened times."""

from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, run_as_processes

FOLDER = Path(__file__).parents[2] / "experiments" / "faults"
SHORT = "set node.grace_s=6 node.lease_duration_s=4\nlimit 90s\n"


def wrong(result):
    """Return everything that is not as it should be."""
    return [
        *(f"{j.text} ({j.seen})" for j in result.expectations if not j.passed),
        *(f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations),
        *([result.error] if result.error else []),
    ]


def missed_by(tmp_path, text):
    """Return what was wrong with a scenario of its own, with a grace period of 6 s."""
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(f"# Short\n{SHORT}{text}")
    return wrong(run_as_processes(load_scenario(scenario), engine="memory", data_dir=tmp_path / "mesh"))


@pytest.mark.parametrize("name", ["fm-k2-start", "fm-k2-unbind", "fm-k3", "fm-k5-missing", "fm-k6"])
def test_fault_scenarios_as_processes_come_true_as_in_simulation(name, tmp_path):
    result = run_as_processes(load_scenario(FOLDER / f"{name}.txt"), engine="memory", data_dir=tmp_path / "mesh")

    assert wrong(result) == []


def test_fm_k4_a_kubelet_stopped_for_longer_than_the_grace_comes_back_as_it_was(tmp_path):
    assert [] == missed_by(
        tmp_path,
        """nodes n1..n3 cpu=16
replicaset web replicas=9 cpu=1
expect within 20s count pods phase=Running == 9
wait 2s
pause kubelet/n1 for=16s
expect for 4s count nodes status.conditions[Ready].status=True == 3
expect within 10s each nodes name=n1 status.conditions[Ready].status == Unknown
expect within 12s count nodes status.conditions[Ready].status=True == 3
expect within 5s count pods status.conditions[Ready].status=True == 9
settle quiet=3s
expect each pods status.containerStatuses[main].restartCount == 0
expect created pods == 9
""",
    )


def test_fm_x7_processes_that_get_a_fifth_of_their_time_lose_no_lease(tmp_path):
    assert [] == missed_by(
        tmp_path,
        """nodes n1..n4 cpu=16
replicaset web replicas=8 cpu=1
expect within 20s count pods phase=Running == 8
expect always count nodes status.conditions[Ready].status=True == 4
expect always count pods name=web-* status.conditions[Ready].status=True == 8
starve * share=0.2 for=5s
replicaset more replicas=4 cpu=1
expect within 15s count pods phase=Running == 12
expect each pods status.containerStatuses[main].restartCount == 0
expect created pods == 12
""",
    )


def test_fm_n3_single_nodes_of_one_process_are_cut_off_one_way(tmp_path):
    assert [] == missed_by(
        tmp_path,
        """hosts 1
nodes n1..n4 cpu=16
replicaset web replicas=8 cpu=1
expect within 20s count pods phase=Running == 8
wait 2s
link node/n1 cut=requests
link node/n2 cut=replies
link node/n3 drop=node-status
pod later cpu=1 node-selector=kubernetes.io/hostname:n4
pod unheard cpu=1 node-selector=kubernetes.io/hostname:n2
expect within 10s each pods name=later phase == Running
expect within 16s each nodes name=n1 status.conditions[Ready].status == Unknown
expect for 8s count nodes status.conditions[Ready].status=True == 3
expect each pods name=unheard phase == Pending
link node/n1
link node/n2
link node/n3
expect within 20s count nodes status.conditions[Ready].status=True == 4
expect within 20s count pods status.conditions[Ready].status=True == 10
settle quiet=3s
expect created pods == 10
""",
    )


def test_fm_a13_clocks_jump_by_an_hour_and_no_node_is_thought_dead(tmp_path):
    assert [] == missed_by(
        tmp_path,
        """nodes n1..n3 cpu=16
replicaset web replicas=9 cpu=1
expect within 20s count pods phase=Running == 9
expect always count nodes status.conditions[Ready].status=True == 3
expect always count pods name=web-* status.conditions[Ready].status=True == 9
clock apiserver by=+1h
clock kubelet/n1 by=-1h
wait 4s
clock * by=-1h
clock kubelet/n2 by=+1h
wait 4s
pod late cpu=1
expect within 10s each pods name=late phase == Running
clock *
settle quiet=3s
""",
    )


def test_a_kubelet_is_stopped_in_the_middle_of_a_start(tmp_path):
    assert [] == missed_by(
        tmp_path,
        """nodes n1..n2 cpu=16
pause kubelet/n1 for=3s at=kubelet.checkpoint
pod web cpu=1 node-selector=kubernetes.io/hostname:n1
expect for 2s each pods name=web phase == Pending
expect within 5s each pods name=web phase == Running
""",
    )
