"""matchLabelKeys, mismatchLabelKeys, spread constraints and comparing tolerations, in the words of upstream."""

from __future__ import annotations

from typing import Any

import pytest

ZONE = "topology.kubernetes.io/zone"


def pod(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    parts = {"containers": [{"name": "c", "image": "nginx"}], **spec}
    meta = {"name": "p", "namespace": "default", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": parts}


def said(world: Any, document: dict[str, Any]) -> list[str]:
    causes, _ = world.try_create("pods", document)
    return [f"{cause.path}: {cause.message}" for cause in causes]


def spread(**more: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    return {"topologySpreadConstraints": [{**constraint, **more}]}


def term(**more: Any) -> dict[str, Any]:
    return {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}, **more}


def test_the_keys_join_the_selectors_of_affinity_when_a_pod_is_created(world):
    keys = {"matchLabelKeys": ["hash", "absent"], "mismatchLabelKeys": ["tenant"]}
    soft = {"weight": 1, "podAffinityTerm": term(**keys)}
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(**keys)]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [soft]},
    }
    made = world.create("pods", pod({"hash": "1", "tenant": "t"}, affinity=affinity))["spec"]["affinity"]

    expected = {
        "matchLabels": {"app": "x"},
        "matchExpressions": [
            {"key": "hash", "operator": "In", "values": ["1"]},
            {"key": "tenant", "operator": "NotIn", "values": ["t"]},
        ],
    }
    assert made["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"] == expected
    assert made["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"][
        "labelSelector"
    ] == expected  # fmt: skip


@pytest.mark.parametrize("merges", [True, False])
def test_the_keys_join_the_selector_of_spreading_if_the_gate_is_on(world, merges):
    world.switch(MatchLabelKeysInPodTopologySpreadSelectorMerge=merges)
    made = world.create("pods", pod({"hash": "1"}, **spread(matchLabelKeys=["hash"])))

    selector = made["spec"]["topologySpreadConstraints"][0]["labelSelector"]
    expressions = [{"key": "hash", "operator": "In", "values": ["1"]}]
    assert selector == ({"matchExpressions": expressions} if merges else {})


def test_a_missing_selector_stays_missing_and_refuses_keys(world):
    at = "spec.topologySpreadConstraints[0].matchLabelKeys"
    constraint = spread(matchLabelKeys=["hash"])
    del constraint["topologySpreadConstraints"][0]["labelSelector"]

    assert said(world, pod({"hash": "1"}, **constraint)) == [
        f"{at}: Forbidden: must not be specified when labelSelector is not set"
    ]


def test_a_key_may_not_be_named_twice(world):
    wanted = [term(labelSelector={"matchLabels": {"hash": "1"}}, matchLabelKeys=["hash"], mismatchLabelKeys=["hash"])]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted}}
    at = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"

    causes = said(world, pod({"hash": "1"}, affinity=affinity))
    assert f'{at}[0]: Invalid value: "hash": exists in both matchLabelKeys and labelSelector' in causes
    assert (
        f'{at}.matchLabelKeys[0]: Invalid value: "hash": exists in both matchLabelKeys and mismatchLabelKeys' in causes
    )


def test_spread_constraints_are_held_to_their_rules(world):
    soft = spread(whenUnsatisfiable="ScheduleAnyway", minDomains=0, nodeAffinityPolicy="Maybe", nodeTaintsPolicy="")
    at = "spec.topologySpreadConstraints[0]"
    only_hard = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"

    assert said(world, pod(**soft)) == [
        f"{at}.minDomains: Invalid value: 0: must be greater than zero",
        f"{at}.minDomains: Invalid value: 0: {only_hard}",
        f'{at}.nodeAffinityPolicy: Unsupported value: "Maybe": supported values: "Honor", "Ignore"',
        f'{at}.nodeTaintsPolicy: Unsupported value: "": supported values: "Honor", "Ignore"',
    ]


def test_comparing_tolerations_need_their_gate_and_a_plain_number(world):
    def tolerating(value: str) -> list[str]:
        return said(world, pod(tolerations=[{"key": "k", "operator": "Gt", "value": value, "effect": "NoSchedule"}]))

    assert len(tolerating("5")) == 1
    assert 'supported values: "Equal", "Exists"' in tolerating("5")[0]
    world.switch(TaintTolerationComparisonOperators=True)
    assert tolerating("-5") == []
    assert [len(tolerating(text)) for text in ("", "05", "+5", "-0", "5.0", "9223372036854775808")] == [
        2,
        1,
        1,
        1,
        2,
        1,
    ]
