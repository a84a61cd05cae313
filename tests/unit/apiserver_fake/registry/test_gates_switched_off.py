"""An object written with a feature gate on is updated with it off: what it had stays, what is new is refused or dropped.

A row a gate of `resource.k8s.io`: whole writes, so that validation, which may not know the gate, is asked as well.
Source: upstream `dropDisabledFields` and the validation of updates in pkg/registry/resource and pkg/apis/resource (v1.36).
"""

from __future__ import annotations

import copy

import pytest

from apiserver_fake.registry.gated_fields import CLAIM_TEMPLATES
from services.api.kinds.deviceclass import CLASSES
from services.api.kinds.resourceslice import SLICES
from services.api.switches import REGISTER

POOL = {"name": "p", "generation": 1, "resourceSliceCount": 1}
ON_NODE = {"driver": "d.example", "pool": POOL, "nodeName": "n1"}


def a_slice(*devices, **spec):
    return {"metadata": {"name": "s"}, "spec": {**ON_NODE, "devices": list(devices), **spec}}


def device(**parts):
    return {"name": "d0", **parts}


def a_template(request, **devices):
    spec = {"devices": {"requests": [{"name": "r", **request}], **devices}}
    return {"metadata": {"name": "t"}, "spec": {"spec": spec}}


def exactly(**parts):
    return {"exactly": {"deviceClassName": "c", **parts}}


def a_class(**spec):
    return {"metadata": {"name": "c"}, "spec": spec}


def selector(expression):
    return {"cel": {"expression": expression}}


TAINT = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
ROWS = {
    "DRAAdminAccess": (CLAIM_TEMPLATES, a_template(exactly(adminAccess=True))),
    "DRAPrioritizedList": (
        CLAIM_TEMPLATES, a_template({"firstAvailable": [{"name": "a", "deviceClassName": "c"}]}),
    ),
    "DRAPartitionableDevices": (
        SLICES,
        {"metadata": {"name": "s"}, "spec": {
            "driver": "d.example", "pool": POOL, "perDeviceNodeSelection": True,
            "devices": [device(nodeName="n1")]}},
    ),
    "DRADeviceTaints": (SLICES, a_slice(device(taints=[TAINT]))),
    "DRAConsumableCapacity": (SLICES, a_slice(device(allowMultipleAllocations=True))),
    "DRADeviceBindingConditions": (
        SLICES, a_slice(device(bindingConditions=["a"], bindingFailureConditions=["b"], bindsToNode=True)),
    ),
    "DRAExtendedResource": (CLASSES, a_class(extendedResourceName="example.com/gpu")),
    "DRAListTypeAttributes": (SLICES, a_slice(device(attributes={"x": {"ints": [1, 2]}}))),
}  # fmt: skip
ELSEWHERE = {
    "DRADeviceTaintRules": "a whole kind: test_device_taint_rules, and test_device_claims_over_rest",
    "DRAResourceClaimDeviceStatus": "a claim's status: below, and test_gated_fields",
    "DRAResourceClaimGranularStatusAuthorization": "who may write, not what: test_claim_status_authorization",
}


def test_every_gate_of_the_api_has_a_row():
    fields = {each.name for each in REGISTER if each.name.startswith("DRA")}
    known = ROWS.keys() | ELSEWHERE.keys()
    assert known <= fields
    assert {name for name in fields if name in known or name.startswith("DRAResourceClaim")} == known


@pytest.fixture(autouse=True)
def admin_namespace(world):
    labels = {"resource.kubernetes.io/admin-access": "true"}
    world.put("namespaces", {"metadata": {"name": "default", "labels": labels}})


@pytest.mark.parametrize("gate", ROWS)
def test_fields_of_a_gate_stay_in_an_update_once_they_are_stored(world, gate):
    resource, document = ROWS[gate]
    world.switch(**{gate: True})
    stored = world.create(resource, copy.deepcopy(document))
    world.switch(**{gate: False})

    changed = copy.deepcopy(stored)
    changed["metadata"]["labels"] = {"changed": "yes"}
    causes, new = world.try_update(resource, stored, changed)
    assert (causes, new["spec"]) == ([], stored["spec"])


@pytest.mark.parametrize("gate", ROWS)
def test_fields_of_a_gate_do_not_come_with_an_object_made_without_it(world, gate):
    resource, document = ROWS[gate]
    world.switch(**{gate: False})

    causes, new = world.try_create(resource, copy.deepcopy(document))
    # Without its field an object may not be whole; then that is why it is refused.
    assert bool(causes) is (gate in ("DRAPrioritizedList", "DRAPartitionableDevices", "DRAListTypeAttributes"))
    assert new["spec"] != {**new["spec"], **document["spec"]}


@pytest.mark.parametrize(
    ("gate", "expression"),
    [
        ("DRAListTypeAttributes", 'device.attributes["d.example"].models.exists(each, each == "a")'),
        ("DRAListTypeAttributes", 'device.attributes["d.example"].models.includes("a")'),
        ("DRAConsumableCapacity", "device.allowMultipleAllocations"),
    ],
)
def test_selectors_that_are_as_they_were_are_not_compiled_anew(world, gate, expression):
    world.switch(**{gate: True})
    stored = world.create(CLASSES, a_class(selectors=[selector(expression), selector("true")]))
    world.switch(**{gate: False})

    changed = copy.deepcopy(stored)
    changed["spec"]["config"] = [{"opaque": {"driver": "d.example", "parameters": {"a": 1}}}]
    causes, new = world.try_update(CLASSES, stored, changed)
    assert (causes, new["spec"]["selectors"]) == ([], stored["spec"]["selectors"])

    turned = copy.deepcopy(stored)
    turned["spec"]["selectors"].reverse()
    causes, _ = world.try_update(CLASSES, stored, turned)
    assert [cause.path for cause in causes] == ["spec.selectors[1].cel.expression"]
