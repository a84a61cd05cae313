"""Taints that administrators put on devices: DeviceTaintRule (dra-core 8, KEP-5055)."""

from __future__ import annotations

import pytest

from services.api.errors import NotFound
from services.api.kinds.devicetaintrule import TAINT_RULES


@pytest.fixture(autouse=True)
def gate(world):
    world.switch(DRADeviceTaintRules=True)


def rule(selector=None, **taint):
    spec = {"taint": {"key": "k", "effect": "NoExecute", **taint}}
    return {"metadata": {"name": "r"}, "spec": spec if selector is None else {**spec, "deviceSelector": selector}}


def test_without_the_gate_there_are_no_rules(world):
    world.switch(DRADeviceTaintRules=False)

    with pytest.raises(NotFound, match="feature gate DRADeviceTaintRules is off"):
        world.try_create(TAINT_RULES, rule())


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        (rule(), []),
        (rule({}), []),
        (rule({"driver": "gpu.example", "pool": "n1/a", "device": "gpu-0"}), []),
        (rule({"driver": ""}), ["spec.deviceSelector.driver"]),
        (rule({"device": "Not A Name"}), ["spec.deviceSelector.device"]),
        (rule(effect=""), ["spec.taint.effect"]),
        (rule(effect="PreferNoSchedule"), ["spec.taint.effect"]),
    ],
)
def test_a_rule_has_a_selector_that_may_be_empty_and_a_taint(world, document, paths):
    causes, _ = world.try_create(TAINT_RULES, document)

    assert [cause.path for cause in causes] == paths


def test_the_time_is_that_of_the_effect(world):
    stored = world.create(TAINT_RULES, rule())
    begun = stored["spec"]["taint"]["timeAdded"]
    world.wait(10)

    _, same = world.try_update(TAINT_RULES, stored, {**stored, "spec": rule({}, timeAdded=begun)["spec"]})
    _, other = world.try_update(
        TAINT_RULES, stored, {**stored, "spec": rule(effect="NoSchedule", timeAdded=begun)["spec"]}
    )
    chosen = "2026-01-01T00:00:00Z"
    _, said = world.try_update(TAINT_RULES, stored, {**stored, "spec": rule(effect="None", timeAdded=chosen)["spec"]})

    assert [each["spec"]["taint"]["timeAdded"] for each in (same, other, said)] == [
        begun, "2027-01-15T08:00:10Z", chosen,
    ]  # fmt: skip
