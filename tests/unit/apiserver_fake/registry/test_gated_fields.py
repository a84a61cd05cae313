"""What a feature gate that is off takes from a write, and what it leaves (dra-core 0.1)."""

from __future__ import annotations

import copy

import pytest

from apiserver_fake.registry.gated_fields import CLAIM_TEMPLATES, GATED, POD_GROUPS, WORKLOADS, drop_disabled
from services.api.identity import ADMIN
from services.api.kinds.deviceclass import CLASSES
from services.api.kinds.resourceclaim import CLAIMS
from services.api.kinds.resourceslice import SLICES
from services.api.wire import Request

REQUESTS = {
    "requests": [
        {"exactly": {"count": 1, "adminAccess": True, "tolerations": [{}], "capacity": {"requests": {"m": "1"}}}},
        {"firstAvailable": [{"name": "a", "tolerations": [{}], "capacity": {"requests": {"m": "1"}}}]},
    ],
    "constraints": [{"distinctAttribute": "a/b"}],
}
RESULT = {"device": "d", "adminAccess": True, "shareID": "s", "consumedCapacity": {"m": "1"},
          "bindingConditions": ["a"], "bindingFailureConditions": ["b"]}  # fmt: skip
CLAIM_SPEC = {"devices": REQUESTS, "reservedFor": {"name": "j"}}
DEVICE = {
    "name": "d", "taints": [{}], "consumesCounters": [{}], "nodeName": "n", "nodeSelector": {"a": 1}, "allNodes": True,
    "bindingConditions": ["a"], "bindingFailureConditions": ["b"], "bindsToNode": True,
    "allowMultipleAllocations": True, "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}},
    "attributes": {"x": {"ints": [1]}, "y": {"int": 1}},
}  # fmt: skip
FULL = {
    CLAIMS: {
        "spec": CLAIM_SPEC,
        "status": {"allocation": {"devices": {"results": [RESULT]}, "reservedForAnyPod": True},
                   "devices": [{"device": "d", "shareID": "s"}]},
    },
    CLAIM_TEMPLATES: {"spec": {"spec": CLAIM_SPEC}},
    CLASSES: {"spec": {"extendedResourceName": "a/b"}},
    SLICES: {"spec": {"driver": "d", "sharedCounters": [{}], "perDeviceNodeSelection": True, "devices": [DEVICE]}},
    "horizontalpodautoscalers.autoscaling": {"spec": {"behavior": {"scaleUp": {"tolerance": "0.2"}}}},
    POD_GROUPS: {"spec": {"resourceClaims": [{}]}, "status": {"resourceClaimStatuses": [{}]}},
    WORKLOADS: {"spec": {"podGroupTemplates": [{"name": "t", "resourceClaims": [{}]}]}},
}  # fmt: skip
GATES = (
    "DRAAdminAccess", "DRAPrioritizedList", "DRAResourceClaimDeviceStatus", "DRAPartitionableDevices",
    "DRADeviceTaints", "DRAConsumableCapacity", "DRADeviceBindingConditions", "DRAExtendedResource",
    "DRAListTypeAttributes",
)  # fmt: skip


def written(world, resource, new, old=None):
    new = {**new}
    drop_disabled(resource, old, new, world.ctx(ADMIN, Request(verb="update", resource=resource)))
    return new


def all_off(world):
    world.switch(**dict.fromkeys(GATES, False), reserved_for__mode="pods", emulate__version="1.34")


POD = {
    "containers": [{"name": "c", "lifecycle": {"stopSignal": "SIGUSR1", "preStop": {}}}],
    "initContainers": [{"name": "i", "lifecycle": {"stopSignal": "SIGUSR1"}}],
    "volumes": [{"projected": {"sources": [{"clusterTrustBundle": {"name": "b"}}, {"podCertificate": {"path": "p"}}]}}],
}
LEFT_OF_POD = {
    "containers": [{"name": "c", "lifecycle": {"preStop": {}}}],
    "initContainers": [{"name": "i"}],
    "volumes": [{"projected": {"sources": [{}, {}]}}],
}
TOPOLOGY = {"topology": [{"key": "zone"}]}
ELSEWHERE = {"kind": "PersistentVolumeClaim", "name": "c", "namespace": "other"}
UNKNOWN = {
    SLICES: (
        {"spec": {"devices": [{"name": "d", "nodeAllocatableResourceMappings": {"cpu": {}}}]}},
        {"spec": {"devices": [{"name": "d"}]}},
    ),
    POD_GROUPS: ({"spec": {"schedulingConstraints": TOPOLOGY, "a": 1}}, {"spec": {"a": 1}}),
    WORKLOADS: (
        {"spec": {"podGroupTemplates": [{"name": "t", "schedulingConstraints": TOPOLOGY}]}},
        {"spec": {"podGroupTemplates": [{"name": "t"}]}},
    ),
    "csidrivers.storage.k8s.io": (
        {"spec": {"preventPodSchedulingIfMissing": True, "attachRequired": True}},
        {"spec": {"attachRequired": True}},
    ),
    "leases.coordination.k8s.io": (
        {"spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "b", "holderIdentity": "a"}},
        {"spec": {"holderIdentity": "a"}},
    ),
    "persistentvolumeclaims": ({"spec": {"dataSourceRef": ELSEWHERE, "a": 1}}, {"spec": {"a": 1}}),
    "pods": ({"spec": POD}, {"spec": LEFT_OF_POD}),
    "podtemplates": ({"template": {"spec": POD}}, {"template": {"spec": LEFT_OF_POD}}),
    "cronjobs.batch": (
        {"spec": {"jobTemplate": {"spec": {"template": {"spec": POD}}}}},
        {"spec": {"jobTemplate": {"spec": {"template": {"spec": LEFT_OF_POD}}}}},
    ),
    **{
        name: ({"spec": {"template": {"spec": POD}}}, {"spec": {"template": {"spec": LEFT_OF_POD}}})
        for name in ("replicationcontrollers", "deployments.apps", "replicasets.apps", "statefulsets.apps",
                     "daemonsets.apps", "jobs.batch")
    },
}  # fmt: skip


def test_every_kind_with_gated_fields_is_tried():
    assert FULL.keys() | UNKNOWN.keys() == GATED.keys()


@pytest.mark.parametrize("resource", UNKNOWN)
def test_fields_whose_gate_is_off_in_this_release_are_dropped_unless_they_are_stored(world, resource):
    document, left = UNKNOWN[resource]

    assert written(world, resource, document) == left
    assert written(world, resource, document, document) == document


def test_a_reference_within_the_namespace_stays(world):
    document = {"spec": {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "c"}}}

    assert written(world, "persistentvolumeclaims", document) == document


def test_fields_whose_gates_are_on_from_the_next_release_stay_in_it(world):
    world.switch(emulate__version="1.37")

    driver, pod = UNKNOWN["csidrivers.storage.k8s.io"][0], UNKNOWN["pods"][0]

    assert written(world, "csidrivers.storage.k8s.io", driver) == driver
    assert written(world, "pods", pod)["spec"]["volumes"] == pod["spec"]["volumes"]
    assert "stopSignal" not in str(written(world, "pods", pod))


NEW_IN_1_35 = {
    "spec": {
        "hostnameOverride": "h",
        "containers": [{"name": "c", "env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "k"}}}, {"name": "B"}]}],
        "volumes": [{"name": "v", "image": {"reference": "i"}}, {"name": "w", "emptyDir": {}}],
    }
}


def test_fields_of_pods_whose_gates_came_on_in_1_35_are_dropped_before(world):
    assert written(world, "pods", NEW_IN_1_35) == NEW_IN_1_35

    world.switch(emulate__version="1.34")

    assert written(world, "pods", NEW_IN_1_35)["spec"] == {
        "containers": [{"name": "c", "env": [{"name": "A", "valueFrom": {}}, {"name": "B"}]}],
        "volumes": [{"name": "v"}, {"name": "w", "emptyDir": {}}],
    }


def test_with_all_gates_off_nothing_is_left_but_what_needs_none(world):
    all_off(world)

    left = {resource: written(world, resource, document) for resource, document in FULL.items()}

    devices = {"requests": [{"exactly": {"count": 1}}, {}], "constraints": [{}]}
    assert left == {
        CLAIMS: {
            "spec": {"devices": devices},
            "status": {"allocation": {"devices": {"results": [{"device": "d"}]}}},
        },
        CLAIM_TEMPLATES: {"spec": {"spec": {"devices": devices}}},
        CLASSES: {"spec": {}},
        SLICES: {"spec": {"driver": "d", "devices": [
            {"name": "d", "capacity": {"m": {"value": "1"}}, "attributes": {"x": {}, "y": {"int": 1}}}]}},
        "horizontalpodautoscalers.autoscaling": {"spec": {"behavior": {"scaleUp": {}}}},
        POD_GROUPS: {"spec": {}, "status": {}},
        WORKLOADS: {"spec": {"podGroupTemplates": [{"name": "t"}]}},
    }  # fmt: skip


@pytest.mark.parametrize("resource", FULL)
def test_what_is_stored_stays_with_its_gate_off(world, resource):
    all_off(world)

    assert written(world, resource, FULL[resource], FULL[resource]) == FULL[resource]


@pytest.mark.parametrize("resource", FULL)
def test_with_the_gates_on_all_is_taken_and_nothing_is_copied(world, resource):
    mode = "kep5729" if resource in (POD_GROUPS, WORKLOADS) else "kep5194"
    world.switch(**dict.fromkeys(GATES, True), reserved_for__mode=mode)

    new = written(world, resource, FULL[resource])

    assert all(new[name] is FULL[resource][name] for name in new)


def test_a_gate_that_is_off_changes_no_document_but_the_one_that_is_written(world):
    all_off(world)
    before = copy.deepcopy(FULL)

    for resource, document in FULL.items():
        written(world, resource, document)

    assert before == FULL


def test_one_gate_takes_its_own_fields_alone(world):
    world.switch(DRAListTypeAttributes=True, DRADeviceTaints=False)

    (device,) = written(world, SLICES, FULL[SLICES])["spec"]["devices"]

    assert device == {name: value for name, value in DEVICE.items() if name != "taints"}


def test_binding_conditions_need_reports_on_devices(world):
    world.switch(DRAListTypeAttributes=True, DRAResourceClaimDeviceStatus=False)

    (device,) = written(world, SLICES, FULL[SLICES])["spec"]["devices"]

    assert DEVICE.keys() - device.keys() == {"bindingConditions", "bindingFailureConditions", "bindsToNode"}
