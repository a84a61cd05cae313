"""What claims may ask for beyond one kind of device: alternatives, devices in use, tolerations, shares (dra-core 1.3)."""

from __future__ import annotations

import pytest

from services.api.kinds.resourceclaim import ADMIN_NAMESPACE_LABEL, CLAIMS

TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
BOTH = "exactly one of `exactly` or `firstAvailable` is required"
NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
GPU = {"deviceClassName": "gpu"}


def claim(*requests, **devices):
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [*requests], **devices}}}


def first(*names, **more):
    return {"name": "r", "firstAvailable": [{"name": name, **GPU} for name in names], **more}


def causes_of(world, document, resource=CLAIMS):
    found, _ = world.try_create(resource, document)
    return [(cause.path, cause.message) for cause in found]


def paths_of(world, document):
    return [path for path, _ in causes_of(world, document)]


def test_alternatives_are_completed_one_by_one(world):
    stored = world.create(CLAIMS, claim(first("big", "small")))

    alternatives = stored["spec"]["devices"]["requests"][0]["firstAvailable"]
    assert [(each["allocationMode"], each["count"]) for each in alternatives] == [("ExactCount", 1)] * 2


AT = "spec.devices.requests[0]"


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        ({"name": "r"}, [(AT, f"Required value: {BOTH}")]),
        (first("a", exactly=GPU), [(AT, f"Invalid value: null: {BOTH}, but multiple fields are set")]),
        (first("a", "a"), [(f"{AT}.firstAvailable[1]", 'Duplicate value: "a"')]),
        (first(*"abcdefghi"), [(f"{AT}.firstAvailable", "Too many: 9: must have at most 8 items")]),
        ({"name": "r", "firstAvailable": [{"name": "a"}]},
         [(f"{AT}.firstAvailable[0].deviceClassName", "Required value")]),
        ({"name": "r", "firstAvailable": [{"name": "a", **GPU, "allocationMode": "All", "count": 1}]},
         [(f"{AT}.firstAvailable[0].count",
           "Invalid value: 1: must not be specified when allocationMode is 'All'")]),
    ],
)  # fmt: skip
def test_a_request_is_one_of_two_kinds_and_has_no_two_alternatives_of_one_name(world, request_, found):
    assert causes_of(world, claim(request_)) == found


@pytest.mark.parametrize(("name", "is_known"), [("r", True), ("r/a", True), ("r/x", False), ("x", False)])
def test_constraints_refer_to_a_request_or_to_one_of_its_alternatives(world, name, is_known):
    constraint = {"requests": [name], "matchAttribute": "gpu.example/root"}

    found = causes_of(world, claim(first("a", "b"), constraints=[constraint]))

    text = f'Invalid value: "{name}": {NOT_A_REQUEST}'
    assert found == ([] if is_known else [("spec.devices.constraints[0].requests[0]", text)])


def test_a_reference_has_one_slash_at_most(world):
    config = {"requests": ["r/a/b"], "opaque": {"driver": "gpu.example", "parameters": {"a": 1}}}

    assert paths_of(world, claim(first("a"), config=[config])) == ["spec.devices.config[0].requests[0]"]


def test_an_attribute_is_either_equal_or_different(world):
    both = {"matchAttribute": "gpu.example/root", "distinctAttribute": "gpu.example/slot"}

    assert paths_of(world, claim(first("a"), constraints=[both, {}])) == [
        "spec.devices.constraints[0]", "spec.devices.constraints[1]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("toleration", "path", "message"),
    [
        ({"key": "k", "operator": "Exists", "value": "v"}, "value",
         'Invalid value: "v": must be empty for operator `Exists`'),
        ({"key": "k", "operator": "In"}, "operator",
         'Unsupported value: "In": supported values: "Equal", "Exists"'),
        ({"key": "k", "effect": "PreferNoSchedule"}, "effect",
         'Unsupported value: "PreferNoSchedule": supported values: "NoExecute", "NoSchedule", "None"'),
    ],
)  # fmt: skip
def test_a_wrong_toleration_is_refused_by_its_field(world, toleration, path, message):
    found = causes_of(world, claim({"name": "r", "exactly": {**GPU, "tolerations": [toleration]}}))

    assert found == [(f"{AT}.exactly.tolerations[0].{path}", message)]


def test_a_toleration_compares_by_equality_unless_it_says_otherwise_and_there_are_16_at_most(world):
    exactly = {**GPU, "tolerations": [{"key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 20}]}

    stored = world.create(CLAIMS, claim({"name": "r", "exactly": exactly}))

    assert stored["spec"]["devices"]["requests"][0]["exactly"]["tolerations"][0]["operator"] == "Equal"
    many = {"name": "r", "exactly": {**GPU, "tolerations": exactly["tolerations"] * 17}}
    assert paths_of(world, claim(many)) == [f"{AT}.exactly.tolerations"]


def test_capacities_are_asked_for_by_qualified_name_and_quantity(world):
    wrong = {"gpu.example/memory": "1Gi", "1x": "1", "cores": "many"}

    found = paths_of(world, claim({"name": "r", "exactly": {**GPU, "capacity": {"requests": wrong}}}))

    assert found == [f"{AT}.exactly.capacity.requests", f"{AT}.exactly.capacity.requests[cores]"]


@pytest.mark.parametrize("marks", [{}, {ADMIN_NAMESPACE_LABEL: "false"}, {ADMIN_NAMESPACE_LABEL: "true"}])
@pytest.mark.parametrize("is_template", [False, True])
def test_dra_core_11_devices_in_use_are_for_namespaces_that_are_marked(world, marks, is_template):
    world.put("namespaces", {"metadata": {"name": "default", "labels": marks}})
    document = claim({"name": "r", "exactly": {**GPU, "adminAccess": True, "allocationMode": "All"}})
    if is_template:
        document = {"metadata": {"name": "t"}, "spec": {"spec": document["spec"]}}

    found = causes_of(world, document, TEMPLATES if is_template else CLAIMS)

    text = (
        "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the "
        "containing namespace"
    )
    is_marked = marks.get(ADMIN_NAMESPACE_LABEL) == "true"
    assert found == ([] if is_marked else [("spec.devices.requests[0].adminAccess", text)])


def test_a_selector_that_may_cost_too_much_is_refused(world):
    each = 'device.attributes["a"].all({}, {})'
    expression = each.format("k", each.format("l", each.format("m", each.format("n", "k == l"))))
    exactly = {**GPU, "selectors": [{"cel": {"expression": expression}}]}

    found = causes_of(world, claim({"name": "r", "exactly": exactly}))

    at = f"{AT}.exactly.selectors[0].cel.expression"
    assert found == [(at, "Forbidden: too complex, exceeds cost limit")]


@pytest.mark.parametrize(
    ("expression", "path"), [("", ".expression"), ("device.nope", ".expression"), ("x" * 10_241, ".expression")]
)
def test_a_selector_that_cannot_be_evaluated_is_refused(world, expression, path):
    exactly = {**GPU, "selectors": [{"cel": {"expression": expression}}]}

    found = paths_of(world, claim({"name": "r", "exactly": exactly}))

    assert found == [f"{AT}.exactly.selectors[0].cel{path}"]
