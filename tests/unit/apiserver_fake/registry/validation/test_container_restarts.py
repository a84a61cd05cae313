"""A container's own restart policy and rules: what may be said, and what a server with the gate off keeps."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver_fake.registry.validation.pod.container import without_own_policies
from apiserver_fake.registry.validation.pod.spec import check

RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}


def why(container: Any, kind: str = "containers") -> list[str]:
    plain = {"name": "c", "image": "i:1"}
    spec = {"containers": [{"name": "d", "image": "i:1"}], kind: [{**plain, **container}]}
    return [f"{cause.path}: {cause.message}" for cause in check(spec, "spec")]


def test_a_policy_with_rules_is_well() -> None:
    assert why({"restartPolicy": "Never", "restartPolicyRules": [RULE]}) == []
    assert why({"restartPolicy": "Always"}, "initContainers") == []


@pytest.mark.parametrize(
    ("container", "text"),
    [({"restartPolicyRules": [RULE]}, "must specify restartPolicy when restart rules are used"),
     ({"restartPolicy": "Sometimes"}, 'Unsupported value: "Sometimes"'),
     ({"restartPolicy": "Never", "restartPolicyRules": [{**RULE, "action": "Panic"}]}, "restartPolicyRules[0].action"),
     ({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]}, "exitCodes: Required value"),
     ({"restartPolicy": "Never", "restartPolicyRules": [{**RULE, "exitCodes": {"operator": "In", "values": [256]}}]},
      "between 0 and 255"),
     ({"restartPolicy": "Never", "restartPolicyRules": [RULE] * 21}, "restartPolicyRules")],
)  # fmt: skip
def test_what_cannot_be_is_named(container: Any, text: str) -> None:
    assert text in why(container)[0]


def test_ephemeral_containers_are_never_restarted() -> None:
    assert len(why({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, "ephemeralContainers")) == 2


def test_with_the_gate_off_only_sidecars_are_left() -> None:
    spec = {
        "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i", "restartPolicy": "Never"}],
        "containers": [{"name": "c", "restartPolicy": "Never", "restartPolicyRules": [RULE]}],
    }

    assert without_own_policies(spec) == {
        "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}],
        "containers": [{"name": "c"}],
    }


@pytest.mark.parametrize(("is_on", "kept"), [(True, "Never"), (False, None)])
def test_the_gate_decides_at_creation(world: Any, is_on: bool, kept: str | None) -> None:
    world.switch(ContainerRestartRules=is_on)
    container = {"name": "c", "image": "i:1", "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}

    made = world.create("pods", pod)

    assert made["spec"]["containers"][0].get("restartPolicy") == kept
