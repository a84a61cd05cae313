"""How long a container that ended waits: the bounds of back-off and who sets them (KEP-4603)."""

import pytest

from kubelet.node.definition import NodeDefinition
from kubelet.pod.context import Policy
from kubelet.pod.restarts import crashloop_bounds
from tests.unit.kubelet.pod.test_pod import Life


@pytest.mark.parametrize(
    ("given", "bounds"),
    [({}, (10, 300)), ({"is_reduced": True}, (1, 60)), ({"node_max_s": 30}, (10, 30)), ({"node_max_s": 4}, (4, 4)),
     ({"is_reduced": True, "node_max_s": 300}, (1, 300)), ({"is_reduced": True, "node_max_s": 1}, (1, 1))],
)  # fmt: skip
def test_back_off_goes_from_10_to_300_s_unless_reduced_or_the_node_says_otherwise(given, bounds):
    assert crashloop_bounds(0.0, 0.0, **{"is_reduced": False, **given}) == bounds


def test_a_host_may_set_both_bounds_for_all_its_nodes():
    assert crashloop_bounds(2.0, 20.0, is_reduced=False) == (2, 20)
    assert crashloop_bounds(2.0, 20.0, is_reduced=False, node_max_s=5) == (2, 5)


def test_reduced_back_off_restarts_at_once_and_then_after_1_2_4_8_seconds(a_pod):
    initial_s, max_s = crashloop_bounds(0.0, 0.0, is_reduced=True)
    life = Life(a_pod(run="crash"), policy=Policy(crashloop_initial_s=initial_s, crashloop_max_s=max_s)).run(16)

    assert life.recorded("Started") == [0, 0, 1, 3, 7, 15]


def test_a_nodes_own_maximum_is_from_1_to_300_seconds():
    NodeDefinition.parse({"name": "n", "maxContainerRestartPeriod": 30})
    with pytest.raises(ValueError, match="want 1 to 300"):
        NodeDefinition.parse({"name": "n", "maxContainerRestartPeriod": 301})


def one(a_pod, run, policy="Never", **own):
    return a_pod(containers=[{"name": "main", "image": "i", **own}], run=run, spec={"restartPolicy": policy})


def rule(operator, *values):
    return {"action": "Restart", "exitCodes": {"operator": operator, "values": list(values)}}


@pytest.mark.parametrize(
    ("run", "own", "restarts"),
    [("exit 42", {"restartPolicyRules": [rule("In", 42)]}, True), ("exit 1", {"restartPolicyRules": [rule("In", 42)]}, False),
     ("exit 1", {"restartPolicyRules": [rule("NotIn", 42)]}, True), ("exit 0", {"restartPolicyRules": [rule("In", 0)]}, True),
     ("exit 1", {"restartPolicy": "OnFailure"}, True), ("exit 0", {"restartPolicy": "OnFailure"}, False)],
)  # fmt: skip
def test_a_containers_own_rules_and_policy_come_before_its_pods(a_pod, run, own, restarts):
    life = Life(one(a_pod, run, **({"restartPolicy": "Never"} | own))).run(5)

    assert (life.container()["restartCount"] == 1) is restarts


def test_a_container_that_may_not_restart_ends_in_a_pod_that_may(a_pod):
    containers = [{"name": "once", "restartPolicy": "Never"}, {"name": "main"}]
    notes = {"annotations": {"keplab.dev/run.once": "exit 3 after 5s"}}
    life = Life(a_pod(containers=containers, metadata=notes)).run(60)

    assert life.container("once")["state"]["terminated"]["exitCode"] == 3
    assert life.container("main")["restartCount"] == 0
    assert life.status["phase"] == "Running"


def test_an_init_container_with_a_policy_of_its_own_fails_the_pod(a_pod):
    init = [{"name": "i", "command": ["false"], "restartPolicy": "Never"}]

    assert Life(a_pod(spec={"initContainers": init})).run(60).status["phase"] == "Failed"
