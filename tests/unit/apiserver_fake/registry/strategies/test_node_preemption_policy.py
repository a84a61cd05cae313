"""A node's `spec.podPreemptionPolicy`: a set of label keys that only the feature gate lets in (kep-5836 10)."""

import pytest

GATE = "InPlacePodVerticalScalingSchedulerPreemption"
POLICY = {"disableResizePreemption": ["ops/x"]}


def node(name="m", **spec):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


def test_without_the_gate_the_policy_is_left_out(world):
    assert "podPreemptionPolicy" not in world.create("nodes", node(podPreemptionPolicy=POLICY))["spec"]


def test_with_the_gate_it_is_kept_and_outlives_the_gate(world):
    world.switch(**{GATE: True})
    made = world.create("nodes", node(podPreemptionPolicy=POLICY))
    world.switch(**{GATE: False})

    _, changed = world.try_update("nodes", made, {**made, "spec": {**made["spec"], "unschedulable": True}})

    assert changed["spec"]["podPreemptionPolicy"] == POLICY


@pytest.mark.parametrize(
    ("owners", "problem"),
    [
        (["a b"], "spec.podPreemptionPolicy.disableResizePreemption[0]: Invalid value"),
        (["ops/x", "ops/x"], "spec.podPreemptionPolicy.disableResizePreemption[1]: Duplicate value"),
        ([f"ops/x{i}" for i in range(21)], "spec.podPreemptionPolicy.disableResizePreemption: Too many: 21"),
    ],
)
def test_owners_are_at_most_twenty_label_keys_each_once(world, owners, problem):
    world.switch(**{GATE: True})

    causes, _ = world.try_create("nodes", node(podPreemptionPolicy={"disableResizePreemption": owners}))

    assert f"{causes[0].path}: {causes[0].message}".startswith(problem)
