"""Declared features: who declares what, who needs what, what is missing; facts are upstream's registries."""

import msgspec
import pytest

from services.api.features import declared_features as ndf
from services.api.features.declared_features import Feature, KubeletConfiguration
from services.api.kinds.pod import Pod
from services.api.switches import Switches

RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
WEB, LEVEL, INIT, RESTART = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
)


def pod(**spec):
    status = spec.pop("status", {})
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": status}, Pod)


def container(name="c", cpu=None, **fields):
    return {"name": name, **({"resources": {"requests": {"cpu": cpu}}} if cpu else {}), **fields}


@pytest.mark.parametrize(("release", "names"), [
    ("1.34", ()),
    ("1.35", ("GuaranteedQoSPodCPUResize", LEVEL, RESTART)),
    ("1.36", (WEB, LEVEL, INIT, RESTART, "UserNamespacesHostNetworkSupport")),
    ("1.37", ("DRANodeAllocatableResources", "DRAOptionalNodeOperations", WEB, LEVEL, INIT,
              "InPlacePodVerticalScalingMemoryBackedVolumes", RESTART, "UserNamespacesHostNetworkSupport",
              "VolumeBindMountOptions")),
])  # fmt: skip
def test_each_release_knows_its_own_features(release, names):
    assert names == tuple(each.name for each in ndf.registry(release))


def gates(release, **others):
    switches = Switches.parse([f"emulate.version={release}"])
    return ndf.default_gates(release) | {name: switches.flag(name) for name in (LEVEL, INIT, RESTART)} | others


@pytest.mark.parametrize(("release", "names"), [
    ("1.34", ()),
    ("1.36", (WEB, LEVEL, INIT, RESTART)),
    ("1.37", (WEB, LEVEL, INIT, RESTART)),
])  # fmt: skip
def test_a_default_kubelet_declares_what_its_release_has_switched_on(release, names):
    assert names == ndf.declared_names(KubeletConfiguration(gates(release)), release)


@pytest.mark.parametrize(("policy", "has_gate", "is_declared"), [
    ("none", False, True), ("static", False, False), ("static", True, True),
])  # fmt: skip
def test_a_kubelet_of_1_35_resizes_guaranteed_pods_unless_cpus_are_exclusive(policy, has_gate, is_declared):
    own = gates("1.35", InPlacePodVerticalScalingExclusiveCPUs=has_gate)

    found = ndf.declared_names(KubeletConfiguration(own, policy), "1.35")

    assert is_declared == ("GuaranteedQoSPodCPUResize" in found)


def test_a_feature_of_the_runtime_needs_its_gate_and_the_runtime():
    own = gates("1.36", UserNamespacesHostNetworkSupport=True)
    name, runtime = "UserNamespacesHostNetworkSupport", frozenset(("UserNamespacesHostNetwork",))

    assert name not in ndf.declared_names(KubeletConfiguration(own), "1.36")
    assert name not in ndf.declared_names(KubeletConfiguration(gates("1.36"), runtime=runtime), "1.36")
    assert name in ndf.declared_names(KubeletConfiguration(own, runtime=runtime), "1.36")


@pytest.mark.parametrize(("spec", "release", "names"), [
    ({"containers": [container()]}, "1.37", ()),
    ({"containers": [container(restartPolicyRules=[{"action": "Restart"}])]}, "1.36", ()),
    ({"containers": [container(restartPolicyRules=[RULE])]}, "1.36", (RESTART,)),
    ({"containers": [container(restartPolicyRules=[RULE])]}, "1.34", ()),
    ({"initContainers": [container(restartPolicyRules=[RULE])]}, "1.35", (RESTART,)),
    ({"hostNetwork": True, "hostUsers": False}, "1.36", ("UserNamespacesHostNetworkSupport",)),
    ({"hostNetwork": True, "hostUsers": False}, "1.35", ()),
    ({"hostNetwork": True}, "1.36", ()),
    ({"containers": [container(volumeMounts=[{"bindMountOptions": ["noexec"]}])]}, "1.37", ("VolumeBindMountOptions",)),
    ({"containers": [container(volumeMounts=[{"bindMountOptions": ["noexec"]}])]}, "1.36", ()),
])  # fmt: skip
def test_what_a_pod_needs_to_be_scheduled(spec, release, names):
    assert names == ndf.needed_to_schedule(pod(**spec).spec, release)


def sized(size):
    return {"resources": {"requests": {"cpu": size}}}


def volume(size, name="v", medium="Memory"):
    return {"volumes": [{"name": name, "emptyDir": {"medium": medium, "sizeLimit": size}}]}


GUARANTEED = {"status": {"qosClass": "Guaranteed"}}


@pytest.mark.parametrize(("old", "new", "release", "names"), [
    (sized("1"), sized("2"), "1.36", (LEVEL,)),
    (sized("500m"), sized("0.5"), "1.36", ()),
    ({}, sized("1"), "1.35", (LEVEL,)),
    ({"initContainers": [container(cpu="1")]}, {"initContainers": [container(cpu="2")]}, "1.36", (INIT,)),
    ({"initContainers": [container(cpu="1")]}, {"initContainers": [container(cpu="2")]}, "1.35", ()),
    ({"initContainers": [container(cpu="1", restartPolicy="Always")]},
     {"initContainers": [container(cpu="2", restartPolicy="Always")]}, "1.36", ()),
    ({"containers": [container(cpu="1")]}, {"containers": [container(cpu="2")]}, "1.36", ()),
    (GUARANTEED | {"containers": [container(cpu="1")]}, GUARANTEED | {"containers": [container(cpu="2")]}, "1.35",
     ("GuaranteedQoSPodCPUResize",)),
    ({"containers": [container(cpu="1")]}, {"containers": [container(cpu="2")]}, "1.35", ()),
    (volume("1Gi"), volume("2Gi"), "1.37", ("InPlacePodVerticalScalingMemoryBackedVolumes",)),
    (volume("1Gi"), volume("1024Mi"), "1.37", ()),
    (volume("1Gi"), volume("2Gi", name="w"), "1.37", ()),
    (volume("1Gi", medium=""), volume("2Gi", medium=""), "1.37", ()),
    (volume("1Gi"), {}, "1.37", ()),
])  # fmt: skip
def test_what_a_pod_needs_to_be_changed(old, new, release, names):
    assert names == ndf.needed_to_update(pod(**old), pod(**new), release)


def test_what_is_missing_is_sorted_and_unknown_names_on_a_node_do_no_harm():
    assert ("A", "C") == ndf.missing(("C", "B", "A"), ("B", "Anything"))


def test_a_newer_component_does_not_ask_for_what_every_kubelet_has(monkeypatch):
    old = Feature("Old", "1.35", max_version="1.36", needed_to_schedule=lambda spec: True,
                  is_declared=lambda kubelet: True)  # fmt: skip
    monkeypatch.setattr(ndf, "registry", lambda release: (old,))

    assert (
        ("Old",) == ndf.needed_to_schedule(pod().spec, "1.36") == ndf.declared_names(KubeletConfiguration({}), "1.36")
    )
    assert () == ndf.needed_to_schedule(pod().spec, "1.37") == ndf.declared_names(KubeletConfiguration({}), "1.37")
