"""Everything dies at once and comes back in any order (FM-X9, AS-47), and all hosts at once (FM-K7, AS-54)."""

import random
import shutil
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, run_as_processes

CLAIMS = Path(__file__).parents[2] / "experiments" / "claims" / "gpus.yaml"
ROUNDS = 2
EVERYTHING = ("apiserver", "scheduler", "controllers", "claim-controller", "kubelet/n1", "kubelet/n2", "kubelet/n3")


def run(tmp_path, text):
    """Return what a scenario of its own showed as processes on a durable store, and what was answered with 429."""
    scenario, refused, answered = tmp_path / "scenario.txt", [], []
    shutil.copy(CLAIMS, tmp_path)
    scenario.write_text(f"# Short\n# As the acceptance scenario, with fewer objects and rounds.\n{text}")

    def note(line):
        if line.ev == "api.response":
            (refused if line.data["code"] == 429 else answered).append(line.data["code"])

    result = run_as_processes(load_scenario(scenario), data_dir=tmp_path / "mesh", on_line=note)
    wrong = [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]
    wrong += [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations]
    assert answered, "no answer was seen"
    return [*wrong, *([result.error] if result.error else [])], refused


def power_cut(chance):
    """Return the lines that end every process in one instant, to begin again one by one in some order."""
    order = list(EVERYTHING)
    chance.shuffle(order)
    return "\n".join(f"kill {name} down={200 + 150 * place}ms" for place, name in enumerate(order))


@pytest.mark.parametrize("seed", [1])
def test_as_47_all_that_was_acknowledged_goes_on_in_whatever_order_processes_return(tmp_path, seed):
    chance = random.Random(seed)
    cuts = "\n".join(
        f"wait {chance.randrange(100, 900)}ms\n{power_cut(chance)}\nwait 1500ms" for _ in range(ROUNDS)
    )  # fmt: skip
    wrong, _ = run(
        tmp_path,
        f"""set GenericWorkload=true
limit 200s
nodes n1..n3 cpu=32 drivers=gpu.example.com:2
apply gpus.yaml
expect within 20s count resourceslices == 3
deployment web replicas=45 cpu=1
podgroup gang min-count=3
pod gang-1 cpu=1 group=gang
pod a claim-templates=gpu
pod b claim-templates=gpu
pod gang-2 cpu=1 group=gang
pod c claim-templates=gpu
pod gang-3 cpu=1 group=gang
{cuts}
expect within 40s count pods phase=Running == 51
expect within 10s each deployments name=web status.readyReplicas == 45
settle
expect count resourceclaims == 3
expect each pods status.containerStatuses[main].restartCount == 0
expect created pods name=web-* == 45
""",
    )

    assert [] == wrong


def test_as_54_all_kubelets_then_the_server_then_both_return_at_once(tmp_path):
    wrong, refused = run(
        tmp_path,
        """limit 200s
hosts 4
nodes n1..n80 cpu=8
replicaset web replicas=40 cpu=1
expect within 30s count pods phase=Running == 40
expect always count nodes status.conditions[Ready].status=True == 80
kill kubelet/*
wait 5s
kill apiserver
wait 5s
kill *
pod later cpu=1
expect within 30s each pods name=later phase == Running
settle
expect each pods status.containerStatuses[main].restartCount == 0
expect created pods == 41
""",
    )

    assert [] == wrong
    assert [] == refused
