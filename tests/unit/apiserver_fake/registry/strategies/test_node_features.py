"""Node.status.declaredFeatures, and what a pod may say of it: form, gate, and the rules that need the feature."""

from __future__ import annotations

from typing import Any

import pytest

from services.api.errors import ApiError
from services.api.identity import ADMIN

FORM = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
    "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)
RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n3"}}


def write(world: Any, names: list[str] | None) -> Any:
    body = {**world.get("nodes", "n1", "")}
    body["status"] = {name: value for name, value in (body.get("status") or {}).items() if name != "declaredFeatures"}
    body["status"] |= {} if names is None else {"declaredFeatures": names}
    world.sub(ADMIN, "nodes", "n1", "status", body, verb="update", namespace="")
    return (world.get("nodes", "n1", "").get("status") or {}).get("declaredFeatures")


@pytest.mark.parametrize(("names", "why"), [
    (["B", "A"], 'status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically'),
    (["A", "A"], 'status.declaredFeatures[1]: Duplicate value: "A"'),
    (["a"], f'status.declaredFeatures[0]: Invalid value: "a": invalid feature name "a": {FORM}'),
    (["A" * 254], "must be no more than 253 characters"),
])  # fmt: skip
def test_the_list_is_sorted_without_repeats_and_of_names_in_the_form_of_gates(world: Any, names: Any, why: str) -> None:
    with pytest.raises(ApiError) as error:
        write(world, names)
    causes, _ = world.try_create("nodes", NODE | {"status": {"declaredFeatures": names}})

    assert error.value.code == 422
    assert why in error.value.message
    assert any(why in f"{cause.path}: {cause.message}" for cause in causes)


def test_a_name_that_no_registry_has_is_taken(world: Any) -> None:
    assert ["Anything", "Some/sub"] == write(world, ["Anything", "Some/sub"])


def test_without_the_gate_the_list_is_dropped_unless_one_is_stored(world: Any) -> None:
    world.switch(NodeDeclaredFeatures=False)
    assert write(world, ["A"]) is None
    created = world.create("nodes", NODE | {"status": {"declaredFeatures": ["A"]}})
    assert "declaredFeatures" not in created.get("status", {})

    world.switch(NodeDeclaredFeatures=True)
    assert ["A"] == write(world, ["A"])
    world.switch(NodeDeclaredFeatures=False)
    assert ["B"] == write(world, ["B"])
    assert write(world, None) is None


def ruled(name: str) -> Any:
    container = {"name": "c", "image": "i:1", "restartPolicy": "Never", "restartPolicyRules": [RULE]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def test_without_its_gate_no_new_pod_restarts_all_containers_and_a_stored_one_may_be_changed(world: Any) -> None:
    made = world.create("pods", ruled("p"))
    world.switch(RestartAllContainersOnContainerExits=False)

    refused, _ = world.try_create("pods", ruled("q"))
    changed = {**made, "spec": {**made["spec"], "activeDeadlineSeconds": 5}}
    accepted, _ = world.try_update("pods", made, changed)

    text = 'Unsupported value: "RestartAllContainers": supported values: "Restart"'
    assert [("spec.containers[0].restartPolicyRules[0].action", text)] == [(c.path, c.message) for c in refused]
    assert accepted == []


def test_where_no_pod_keeps_a_rule_a_template_may_have_one(world: Any) -> None:
    world.switch(emulate__version="1.34")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": ruled("p")["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}

    causes, _ = world.try_create("replicasets.apps", {"metadata": {"name": "web"}, "spec": spec})
    pod = world.create("pods", ruled("p"))

    assert [] == [cause for cause in causes if "action" in cause.path]
    assert "restartPolicyRules" not in pod["spec"]["containers"][0]
