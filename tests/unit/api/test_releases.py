"""What `emulate.version` does: the defaults of a Kubernetes release, all at once."""

import re
from pathlib import Path

import pytest

from apiserver_fake.rest import discovery
from kubelet.node.definition import NodeDefinition
from kubelet.node.status import NodeReport
from services.api.release import FOLLOWED, KUBERNETES, RELEASES, skew
from services.api.switches import REGISTER, SwitchError, Switches, find

ON, OFF = True, False
DIFFERING = {
    # Gates: the versioned specs of upstream pkg/features/kube_features.go.
    "ResourceHealthStatus": (OFF, OFF, ON, ON),
    "DRAPartitionableDevices": (OFF, OFF, ON, ON),
    "DRADeviceTaints": (OFF, OFF, ON, ON),
    "DRADeviceTaintRules": (OFF, OFF, OFF, ON),
    "DRAConsumableCapacity": (OFF, OFF, ON, ON),
    "DRADeviceBindingConditions": (OFF, OFF, ON, ON),
    "DRAExtendedResource": (OFF, OFF, ON, ON),
    "DRAResourceClaimGranularStatusAuthorization": (OFF, OFF, ON, ON),
    "MutablePodResourcesForSuspendedJobs": (OFF, OFF, ON, ON),
    "MaxUnavailableStatefulSet": (OFF, OFF, OFF, ON),  # on in 1.35.0 to 1.35.3
    "ContainerRestartRules": (OFF, ON, ON, ON),
    "KubeletCrashLoopBackOffMax": (OFF, ON, ON, ON),
    "StorageCapacityScoring": (OFF, OFF, OFF, ON),
    "NominatedNodeNameForExpectation": (OFF, ON, ON, ON),
    "ClearingNominatedNodeNameAfterBinding": (OFF, ON, ON, ON),
    "OpportunisticBatching": (OFF, ON, ON, ON),
    "InPlacePodLevelResourcesVerticalScaling": (OFF, OFF, ON, ON),
    "InPlacePodVerticalScalingInitContainers": (OFF, OFF, ON, ON),
    "NodeDeclaredFeatures": (OFF, OFF, ON, ON),
    "RelaxedServiceNameValidation": (OFF, OFF, ON, ON),
    "RestartAllContainersOnContainerExits": (OFF, OFF, ON, ON),
    "controllers.own_write_gate": (OFF, OFF, ON, ON),  # the gates StaleControllerConsistency*
    # What the code of a release does, without a gate.
    "dra.distinct_attribute": ("upstream", "upstream", "upstream", "correct"),
    "rc.unknown_entry": ("by_mode", "by_mode", "skip", "skip"),
    "balanced.formula": ("v135", "v135", "v136", "v136"),
    "preemption.waiting_victim": ("unschedulable", "unschedulable", "backoff", "backoff"),
    "preemption.pre_bind_victim": ("delete", "delete", "cancel", "cancel"),
    "gang.generation": ("off", "W0", "W1", "W2"),
    "gang.group_preemption": ("off", "off", "per-pod", "cluster"),
    "resize.feasibility": ("node", "node", "admission", "admission"),
}  # fmt: skip
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "releases.md"


def test_every_switch_in_which_releases_differ_is_listed():
    assert {known.name for known in REGISTER if known.by_release} == DIFFERING.keys()


@pytest.mark.parametrize(("name", "release", "value"), [
    (name, release, value)
    for name, values in DIFFERING.items() for release, value in zip(RELEASES, values, strict=True)
])  # fmt: skip
def test_a_release_sets_the_defaults_in_which_it_differs(name, release, value):
    switches = Switches.parse([f"emulate.version={release}"])

    assert value == switches[name]
    assert switches.assignments == (f"emulate.version={release}",)


def test_nothing_changes_when_the_release_is_set_that_is_followed():
    assert dict(Switches()) == dict(Switches.parse([f"emulate.version={FOLLOWED}"]))
    assert [known.name for known in REGISTER if known.default != known.default_in(FOLLOWED)] == []


@pytest.mark.parametrize("known", [known for known in REGISTER if known.by_release], ids=lambda known: known.name)
def test_the_values_of_a_release_are_legal(known):
    for release in RELEASES:
        value = known.default_in(release)

        assert value == known.parse(str(value).lower() if isinstance(value, bool) else str(value))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_is_set_besides_the_release_wins_in_any_order(order):
    words = ["emulate.version=1.34", "OpportunisticBatching=true"]

    switches = Switches.parse(words[i] for i in order)

    assert switches.flag("OpportunisticBatching")
    assert not switches.flag("ContainerRestartRules")


def test_an_arm_sets_the_release_over_what_a_scenario_has_set():
    scenario = Switches.parse(["emulate.version=1.37", "gang.generation=W3"])

    arm = scenario.replace(Switches.parse(["emulate.version=1.35"]).chosen_values)

    assert (arm.choice("balanced.formula"), arm.choice("gang.generation")) == ("v135", "W3")


def test_a_release_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(SwitchError, match=r"want one of 1\.34, 1\.35, 1\.36, 1\.37"):
        Switches.parse(["emulate.version=1.33"])


def test_a_locked_gate_cannot_be_set_otherwise_in_its_release_and_can_before():
    assert not Switches.parse(["NodeDeclaredFeatures=false", "emulate.version=1.36"]).flag("NodeDeclaredFeatures")
    assert Switches.parse(["NodeDeclaredFeatures=true", "emulate.version=1.37"]).flag("NodeDeclaredFeatures")
    with pytest.raises(SwitchError, match=r"NodeDeclaredFeatures=false: locked to true since Kubernetes 1\.37, and em"):
        Switches.parse(["emulate.version=1.37", "NodeDeclaredFeatures=false"])


def test_a_release_from_before_a_gate_does_not_know_it():
    known = find("NodeDeclaredFeatures")

    assert [False, True, True, True] == [known.is_known_in(release) for release in RELEASES]
    assert [False, False, False, True] == [known.is_locked_in(release) for release in RELEASES]


@pytest.mark.parametrize(("kubelet", "apiserver", "why"), [
    ("1.34", "1.37", ""),
    ("1.36", "1.36", ""),
    ("1.37", "1.36", "a kubelet of 1.37 is newer than the API server of 1.36"),
    ("1.33", "1.37", "a kubelet of 1.33 is more than 3 minor releases older than the API server of 1.37"),
])  # fmt: skip
def test_a_kubelet_is_at_most_three_releases_older_and_never_newer(kubelet, apiserver, why):
    assert why == skew(kubelet, apiserver)


def test_the_releases_from_which_on_a_default_is_another_are_listed():
    assert find("gang.group_preemption").since == (("1.34", "off"), ("1.36", "per-pod"), ("1.37", "cluster"))
    assert find("unbind.api").since == ()


@pytest.mark.parametrize(("release", "patch"), RELEASES.items())
def test_the_api_server_and_kubelets_say_that_they_are_the_release(release, patch):
    shown = discovery.version(release)
    node = NodeReport(NodeDefinition(name="n1"), session="s", address="10.0.0.1", port=1, release=release)

    assert (shown["gitVersion"], shown["minor"]) == (f"{patch}+keplab", release.removeprefix("1."))
    assert (shown["emulationMajor"], shown["emulationMinor"]) == ("1", release.removeprefix("1."))
    assert node.version == patch


def test_without_the_switch_they_say_that_they_are_the_one_that_is_followed():
    assert discovery.version()["gitVersion"] == f"{KUBERNETES}+keplab"


def test_the_page_has_the_table_of_the_register():
    def text(value):
        return str(value).lower() if isinstance(value, bool) else str(value)

    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.M)

    assert {name: tuple(cells.split(" | ")) for name, cells in rows} == {
        known.name: tuple(text(value) for value in known.by_release) for known in REGISTER if known.by_release
    }
