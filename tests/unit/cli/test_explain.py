"""`keplab explain`: its document keeps the keys that scripts read (walls 10), and mistakes are named."""

import json
from pathlib import Path

import pytest

from lab.cli.__main__ import run

SCENARIO = """\
# Three pods: one runs, one is too big, one wants a label
limit 20s
nodes n1..n3 cpu=4 labels=disk:hdd
pod big cpu=6
pod ssd cpu=1 node-selector=disk:ssd
pod fine cpu=1
wait 5s
"""
DEVICES = """\
# One has a device, another wants both
limit 20s
nodes n1 cpu=4 drivers=gpu.example.com:2
apply gpus.yaml
wait 1s
pod a claims=one
wait 3s
pod b claims=two
wait 5s
"""
GPUS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one, namespace: default}
spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: two, namespace: default}
spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu, count: 2}}]}}
"""
KEYS = {
    "pod", "node", "pool", "attempts", "feasible", "rejected", "scores", "final", "message", "victims", "nominated_node",
    "wakes_on", "would_fit_if",
}  # fmt: skip


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "three.txt"
    path.write_text(SCENARIO)
    return str(path)


@pytest.fixture
def printed(capsys, scenario):
    def go(*arguments):
        try:
            code = run([*arguments])
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return go


def test_a_pending_pod_is_explained_with_what_would_make_it_fit(printed, scenario):
    code, out, _ = printed("explain", "pod/big", "--run", scenario, "-o", "json")
    found = json.loads(out)

    assert (code, found["pool"], found["attempts"]) == (0, "unschedulable", 1)
    assert KEYS <= found.keys()
    assert found["rejected"] == {"NodeResourcesFit": {"Insufficient cpu": 3}}
    assert [c["change"] for c in found["would_fit_if"]] == ["request at most 4 cpu"]
    assert "NodeResourcesFit: Node/ADD|UPDATE_NODE_ALLOCATABLE" in found["wakes_on"]


def test_a_running_pod_is_explained_with_the_scores_that_decided(printed, scenario):
    code, out, _ = printed("explain", "pod/fine", "--run", scenario, "-o", "json")
    found = json.loads(out)

    assert (code, found["phase"], found["would_fit_if"]) == (0, "Running", [])
    assert found["final"][found["node"]] == max(found["final"].values())
    weights = found["weights"]
    assert found["final"]["n1"] == sum(weights[p] * of["n1"] for p, of in found["scores"].items())


def test_a_gated_pod_is_explained_with_what_its_gate_says(printed, tmp_path):
    scenario = tmp_path / "gated.txt"
    scenario.write_text(
        "# One that no scheduler tries\nlimit 20s\nnodes n1 cpu=4\npod p gates=example.com/g\nwait 2s\n"
    )
    _, out, _ = printed("explain", "pod/p", "--run", str(scenario))

    assert "never by time alone" in out
    assert "gated by: SchedulingGates" in out
    assert "message: " in out
    assert "scheduling gates" in out


def test_the_queue_is_listed_pool_by_pool(printed, scenario):
    code, out, _ = printed("explain", "scheduler/queue", "--run", scenario, "-o", "json")
    found = json.loads(out)

    assert (code, found["counts"]["unschedulable"]) == (0, 2)
    assert [p["pod"] for p in found["pods"]] == ["default/big", "default/ssd"]


def test_people_get_sentences_and_tables(printed, scenario):
    code, out, _ = printed("explain", "pod/ssd", "--run", scenario)

    assert code == 0
    assert "has no node: unschedulable" in out
    assert "label node n1 disk=ssd" in out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("explain", "node/n1"), 2, "want pod/NAME or scheduler/queue"),
        (("explain", "pod/"), 2, "want pod/NAME or scheduler/queue"),
        (("explain", "pod/x", "--data", "nowhere"), 1, "no mesh runs on nowhere"),
        (("explain", "pod/x", "--run", "no-such-file.txt"), 2, "no-such-file.txt"),
    ],
)
def test_mistakes_are_named_and_end_with_their_code(printed, arguments, code, says):
    found, _, err = printed(*arguments)

    assert (found, says in err) == (code, True)


def test_an_unknown_pod_is_a_failure(printed, scenario):
    code, _, err = printed("explain", "pod/none", "--run", scenario)

    assert (code, "no scheduler knows pod default/none; there are big, fine, ssd" in err) == (1, True)


def test_a_glob_explains_every_pod_that_it_matches(printed, scenario):
    code, out, _ = printed("explain", "pod/*i*", "--run", scenario, "-o", "json")

    assert (code, [each["pod"] for each in json.loads(out)]) == (0, ["default/big", "default/fine"])


def test_a_glob_that_matches_none_names_the_pods_that_there_are(printed, scenario):
    code, _, err = printed("explain", "pod/web-*", "--run", scenario)

    assert (code, "no scheduler knows pod default/web-*; there are big, fine, ssd" in err) == (1, True)


def test_the_examples_that_help_prints_explain_something(printed, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[3])

    code, out, _ = printed("explain", "pod/wide", "--run", "experiments/unbinding/no-alternative.txt")

    assert (code, "pod default/wide is on node n1" in out) == (0, True)


def test_a_pod_that_waits_for_devices_is_explained_with_who_has_them(printed, tmp_path):
    path = tmp_path / "devices.txt"
    path.write_text(DEVICES)
    (tmp_path / "gpus.yaml").write_text(GPUS)

    _, out, _ = printed("explain", "pod/b", "--run", str(path))
    lines = [" ".join(line.split()) for line in out.splitlines()]

    assert "default/two g n1 2 1 gpu.example.com/n1/gpu-0: is allocated to claim default/one" in lines


@pytest.mark.parametrize(
    ("driver", "after", "says"),
    [
        ("prepare=100", "wait 20s",
         "DRA driver gpu.example.com to answer NodePrepareResources for ResourceClaim one, at most 45 s (for 19.9 s)"),
        ("prepare=100", "wait 50s",
         ("the next try of NodePrepareResources: NodePrepareResources: rpc error: code = DeadlineExceeded "
         "desc = context deadline exceeded (for 4.9 s, FailedPrepareDynamicResources 1 time, next try in")),
        ("dead=2-200", "wait 20s",
         ("the next try of NodePrepareResources: DRA driver gpu.example.com is not registered (for 19.9 s, "
         "FailedPrepareDynamicResources 2 times, next try in")),
        ("dead=10-200", "wait 12s\ndelete pod/a grace=1\nwait 5s",
         "the next try of NodeUnprepareResources: DRA driver gpu.example.com is not registered (next try in"),
        ("prepare=1", "wait 10s", None),
    ],
)  # fmt: skip
def test_a_pod_with_a_node_is_explained_with_the_driver_it_waits_for(printed, tmp_path, driver, after, says):
    path = tmp_path / "driver.txt"
    path.write_text(
        f"# One driver\nlimit 100s\nnodes n1 cpu=4 drivers=gpu.example.com:2:{driver}\napply gpus.yaml\nwait 3s\n"
        f"pod a claims=one\n{after}\n"
    )
    (tmp_path / "gpus.yaml").write_text(GPUS)

    code, out, _ = printed("explain", "pod/a", "--run", str(path))

    assert code == 0
    assert "pod default/a is on node n1" in out
    if says is None:
        assert "waits for" not in out
    else:
        assert f"waits for: {says}" in out
