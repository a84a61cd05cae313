"""What a node declares: what its kubelet's release and gates give, unless its definition says otherwise."""

import pytest

from kubelet.node.definition import apply_switches, node_switches
from kubelet.node.status import NodeReport
from kubelet.switches import KubeletSwitches
from services.api.switches import SwitchError, Switches

FOUR = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
)


def declares(node, *assignments):
    return node.declares(node_switches(node, Switches.parse(assignments)).of(KubeletSwitches))


@pytest.mark.parametrize(("fields", "assignments", "names"), [
    ({}, (), FOUR),
    ({}, ("emulate.version=1.37",), FOUR),
    ({}, ("emulate.version=1.34",), None),
    ({"version": "1.35"}, (), None),
    ({"version": "1.36"}, ("emulate.version=1.37",), FOUR),
    ({"version": "1.35"}, ("NodeDeclaredFeatures=true",), ("GuaranteedQoSPodCPUResize",)),
    ({"version": "1.35", "cpuPolicy": "static"}, ("NodeDeclaredFeatures=true",), ()),
    ({"featureGates": {"NodeDeclaredFeatures": False}}, (), None),
    ({"featureGates": {"RestartAllContainersOnContainerExits": False}}, (), FOUR[:3]),
    ({"featureGates": {"UserNamespacesHostNetworkSupport": True}}, (), (*FOUR, "UserNamespacesHostNetworkSupport")),
    ({"declaredFeatures": []}, (), ()),
    ({"declaredFeatures": [FOUR[3], FOUR[0], FOUR[0]]}, (), (FOUR[0], FOUR[3])),
    ({"declaredFeatures": list(FOUR), "featureGates": {"NodeDeclaredFeatures": False}}, (), None),
])  # fmt: skip
def test_a_node_declares_what_its_release_gates_and_definition_give(a_node, fields, assignments, names):
    assert names == declares(a_node(**fields), *assignments)


def test_a_gate_that_the_nodes_release_has_locked_cannot_be_off_there(a_node):
    node = a_node(version="1.37", featureGates={"NodeDeclaredFeatures": False})

    with pytest.raises(ValueError, match=r"node n1: switch NodeDeclaredFeatures=false: locked to true since Kubern"):
        apply_switches(node, Switches())
    with pytest.raises(SwitchError, match="locked"):
        node_switches(node, Switches())


def test_a_release_of_its_own_sets_the_gates_that_nothing_else_sets(a_node):
    switches = node_switches(a_node(version="1.34"), Switches.parse(["ResourceHealthStatus=true"]))

    assert not switches.flag("KubeletCrashLoopBackOffMax")
    assert switches.flag("ResourceHealthStatus")


@pytest.mark.parametrize(("declared", "shown"), [(FOUR, list(FOUR)), ((), None), (None, None)])
def test_every_status_says_the_whole_list_so_that_nothing_else_stays(a_node, declared, shown):
    report = NodeReport(a_node(), session="s", address="10.0.0.1", port=1, declared=declared)

    assert shown == report.status(0.0)["declaredFeatures"]
