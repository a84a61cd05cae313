"""Workloads, pod groups and the pods that name them: what admission fills in and what may still change."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver_fake.registry.strategy import strategy_for
from services.api.errors import Forbidden, NotFound
from services.api.identity import ADMIN
from services.api.wire import Request

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
    assert '+  "podGroupName": "h"' in changed(gated, "pods", made, schedulingGroup={"podGroupName": "h"})[0]
    assert said(gated, "pods", pod(schedulingGroup={})) == [
        "spec.schedulingGroup.podGroupName: Invalid value: null: must specify one of: `podGroupName`"
    ]


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


@pytest.mark.parametrize(
    ("named", "of_template", "why"),
    [
        ("w", "workers", ""),
        ("v", "workers", 'Workload "v" not found'),
        ("w", "other", 'PodGroupTemplate "other" not found in Workload "w"'),
    ],
)
def test_a_group_is_refused_whose_workload_or_template_does_not_exist(gated, named, of_template, why):
    """Upstream's plugin PodGroupWorkloadExists."""
    gated.put(WORKLOADS, workload(template()))
    new = group(workloadRef={"workloadName": named, "templateName": of_template})

    if not why:
        assert said(gated, GROUPS, new) == []
        return
    with pytest.raises(Forbidden) as refused:
        gated.create(GROUPS, new)
    assert refused.value.message == f'podgroups.scheduling.k8s.io "g" is forbidden: PodGroup rejected: {why}'


def test_a_group_may_outlive_its_workload(gated):
    gated.put(WORKLOADS, workload(template()))
    made = gated.create(GROUPS, group(workloadRef={"workloadName": "w", "templateName": "workers"}))
    del gated.documents[WORKLOADS, "default", "w"]

    assert changed(gated, GROUPS, made, schedulingPolicy={"gang": {"minCount": 2}}) == []


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


@pytest.fixture
def claiming(gated: Any) -> Any:
    gated.switch(reserved_for__mode="kep5729")
    return gated


CLAIM = {"name": "gpus", "resourceClaimTemplateName": "gpu"}
OWN = "spec.resourceClaims"


def test_claims_of_groups_and_templates_are_there_with_their_mode_alone(gated):
    gated.switch(reserved_for__mode="kep5194")

    made = gated.create(GROUPS, group(resourceClaims=[CLAIM]))
    work = gated.create(WORKLOADS, workload(template(resourceClaims=[CLAIM])))

    assert "resourceClaims" not in made["spec"]
    assert "resourceClaims" not in work["spec"]["podGroupTemplates"][0]


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ([CLAIM, {"name": "nics", "resourceClaimName": "shared"}], []),
        ([CLAIM, CLAIM], [f'{OWN}[1].name: Duplicate value: "gpus"']),
        ([{**CLAIM, "name": f"c{i}"} for i in range(5)], [f"{OWN}: Too many: 5: must have at most 4 items"]),
        ([{"name": "gpus"}],
         [f'{OWN}[0]: Invalid value: "": must specify one of: `resourceClaimName`, `resourceClaimTemplateName`']),
        ([{**CLAIM, "resourceClaimName": "c"}],
         [(f'{OWN}[0]: Invalid value: "{{resourceClaimName, resourceClaimTemplateName}}": must specify exactly one of: '
          "`resourceClaimName`, `resourceClaimTemplateName`")]),
    ],
)  # fmt: skip
def test_a_group_has_up_to_four_claims_each_from_one_source(claiming, claims, found):
    assert said(claiming, GROUPS, group(resourceClaims=claims)) == found
    in_template = [text.replace(OWN, "spec.podGroupTemplates[0].resourceClaims") for text in found]
    assert said(claiming, WORKLOADS, workload(template(resourceClaims=claims))) == in_template


def test_claims_of_a_group_never_change_and_stay_when_the_mode_is_another(claiming):
    made = claiming.create(GROUPS, group(resourceClaims=[CLAIM]))

    assert [text.partition(":")[0] for text in changed(claiming, GROUPS, made, resourceClaims=[])] == [OWN]
    claiming.switch(reserved_for__mode="pods")
    assert changed(claiming, GROUPS, made, schedulingPolicy={"gang": {"minCount": 4}}) == []


@pytest.mark.parametrize(("name", "found"), [("gpus", []), ("nics", ["status.resourceClaimStatuses[0].name"])])
def test_the_status_of_a_group_names_the_claims_that_were_made_for_its_own(claiming, name, found):
    made = claiming.create(GROUPS, group(resourceClaims=[CLAIM]))
    status = {"resourceClaimStatuses": [{"name": name, "resourceClaimName": "g-gpus-x"}]}

    assert [cause.path for cause in status_causes(claiming, made, status)] == found


def status_causes(world: Any, made: dict[str, Any], status: dict[str, Any]) -> list[Any]:
    new = {**made, "status": status}
    ctx, rules = world.ctx(ADMIN, Request(verb="update", resource=GROUPS, subresource="status")), strategy_for(GROUPS)
    rules.prepare_status(made, new, ctx)
    return [*rules.validate_status(made, new, ctx)]
