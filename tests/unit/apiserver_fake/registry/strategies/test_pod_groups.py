"""Workloads, pod groups and the pods that name them: what admission fills in and what may still change."""

from __future__ import annotations

from typing import Any

import pytest

from services.api.errors import Forbidden, NotFound

GROUPS, WORKLOADS = "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"
CLASSES = "priorityclasses.scheduling.k8s.io"
V1BETA1 = "scheduling.k8s.io/v1beta1"


def group(**spec: Any) -> dict[str, Any]:
    spec.setdefault("schedulingPolicy", {"gang": {"minCount": 3}})
    return {"apiVersion": V1BETA1, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


def workload(*templates: dict[str, Any], **spec: Any) -> dict[str, Any]:
    spec["podGroupTemplates"] = list(templates)
    return {"apiVersion": V1BETA1, "kind": "Workload", "metadata": {"name": "w"}, "spec": spec}


def template(name: str = "workers", count: int = 2, **more: Any) -> dict[str, Any]:
    return {"name": name, "schedulingPolicy": {"gang": {"minCount": count}}, **more}


def pod(**spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "nginx"}], "schedulingGroup": {"podGroupName": "g"}, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}


def said(world: Any, resource: str, document: dict[str, Any]) -> list[str]:
    causes, _ = world.try_create(resource, document)
    return [f"{cause.path}: {cause.message}" for cause in causes]


@pytest.fixture
def gated(world: Any) -> Any:
    world.switch(GenericWorkload=True)
    return world


def changed(world: Any, resource: str, old: dict[str, Any], **spec: Any) -> list[str]:
    """Return what is said of an update that changes these fields of the spec."""
    causes, _ = world.try_update(resource, old, {**old, "spec": {**old["spec"], **spec}})
    return [f"{cause.path}: {cause.message}" for cause in causes]


def test_without_the_gate_groups_are_not_served_and_pods_lose_the_reference(world):
    made = world.create("pods", pod())

    assert "schedulingGroup" not in made["spec"]
    with pytest.raises(NotFound):
        world.create(GROUPS, group())
    with pytest.raises(NotFound):
        world.create(WORKLOADS, workload(template()))


def test_a_pod_keeps_the_name_of_its_group_and_may_not_change_it(gated):
    made = gated.create("pods", pod())

    assert made["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    assert "changed: spec.schedulingGroup" in changed(gated, "pods", made, schedulingGroup={"podGroupName": "h"})[0]
    assert said(gated, "pods", pod(schedulingGroup={})) == ["spec.schedulingGroup.podGroupName: Required value"]


def test_a_group_gets_its_mode_and_the_priority_of_its_class(gated):
    gated.put(CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    gated.put(CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})

    spec = gated.create(GROUPS, group(priorityClassName="high"))["spec"]

    assert (spec["priority"], spec["disruptionMode"], spec.get("preemptionPolicy")) == (1000, {"single": {}}, None)
    assert gated.create(GROUPS, {**group(), "metadata": {"name": "h"}})["spec"]["priority"] == 7
    with pytest.raises(Forbidden, match="must not be provided in pod group spec"):
        gated.create(GROUPS, group(priority=5))


def test_the_preemption_policy_of_a_group_needs_its_own_gate(gated):
    assert said(gated, GROUPS, group(preemptionPolicy="Never")) == [
        "spec.preemptionPolicy: Forbidden: needs the feature gate PodGroupPreemptionPolicy"
    ]
    gated.switch(PodGroupPreemptionPolicy=True)
    gated.put(CLASSES, {"metadata": {"name": "shy"}, "value": 1, "preemptionPolicy": "Never"})

    assert gated.create(GROUPS, group(priorityClassName="shy"))["spec"]["preemptionPolicy"] == "Never"


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"schedulingPolicy": {}}, "spec.schedulingPolicy: Invalid value: \"\": must specify one of: `basic`, `gang`"),
        (
            {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}},
            'spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`',
        ),
        (
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            "spec.schedulingPolicy.gang.minCount: Invalid value: 0: must be greater than or equal to 1",
        ),
        ({"schedulingPolicy": {"gang": {}}}, "spec.schedulingPolicy.gang.minCount: Required value"),
        (
            {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}},
            "spec.disruptionMode.all: Forbidden: may not be used with the basic scheduling policy",
        ),
        ({"workloadRef": {"workloadName": "w"}}, "spec.workloadRef.templateName: Required value"),
    ],
)  # fmt: skip
def test_a_group_is_one_thing_of_each_kind(gated, spec, cause):
    assert said(gated, GROUPS, group(**spec)) == [cause]


def test_the_mode_all_with_the_basic_policy_is_a_switch(gated):
    gated.switch(gang__all_mode_with_basic="accept")

    assert said(gated, GROUPS, group(schedulingPolicy={"basic": {}}, disruptionMode={"all": {}})) == []


def test_of_a_group_only_the_minimum_may_change(gated):
    made = gated.create(GROUPS, group())

    assert changed(gated, GROUPS, made, schedulingPolicy={"gang": {"minCount": 1}}) == []
    for name, value in (
        ("schedulingPolicy", {"basic": {}}),
        ("disruptionMode", {"all": {}}),
        ("priorityClassName", "other"),
        ("workloadRef", {"workloadName": "w", "templateName": "t"}),
    ):
        assert f"spec.{name}: " in changed(gated, GROUPS, made, **{name: value})[0], name


def test_a_workload_has_up_to_eight_named_templates_that_stay(gated):
    made = gated.create(WORKLOADS, workload(template("a"), template("b")))

    assert [t["priority"] for t in made["spec"]["podGroupTemplates"]] == [0, 0]
    assert "Too many: 9" in said(gated, WORKLOADS, workload(*(template(f"t{i}") for i in range(9))))[0]
    assert "Duplicate value" in said(gated, WORKLOADS, workload(template("a"), template("a")))[0]
    fewer = made["spec"]["podGroupTemplates"][:1]
    assert "may not be added, removed" in changed(gated, WORKLOADS, made, podGroupTemplates=fewer)[0]
    lower = [{**t, "schedulingPolicy": {"gang": {"minCount": 1}}} for t in made["spec"]["podGroupTemplates"]]
    assert changed(gated, WORKLOADS, made, podGroupTemplates=lower) == []


def test_a_workloads_controller_is_named_once(gated):
    made = gated.create(WORKLOADS, workload(template()))
    job = {"apiGroup": "batch", "kind": "Job", "name": "train"}

    assert changed(gated, WORKLOADS, made, controllerRef=job) == []
    named = {**made, "spec": {**made["spec"], "controllerRef": job}}
    assert "field is immutable" in changed(gated, WORKLOADS, named, controllerRef={**job, "name": "other"})[0]
