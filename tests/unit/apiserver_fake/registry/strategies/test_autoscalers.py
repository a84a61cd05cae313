"""Autoscalers at the API server: what is completed and what is refused, in upstream's words."""

import pytest

SCALERS = "horizontalpodautoscalers.autoscaling"
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}


def a_scaler(**spec):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": reference, "maxReplicas": 3, **spec}}


def test_an_autoscaler_keeps_cpu_at_eighty_percent_unless_said_otherwise(world):
    spec = world.create(SCALERS, a_scaler())["spec"]

    assert spec["minReplicas"] == 1
    assert spec["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    ]
    assert "behavior" not in spec


def test_a_behavior_is_completed_in_both_directions(world):
    behavior = world.create(SCALERS, a_scaler(behavior={"scaleDown": {"stabilizationWindowSeconds": 60}}))["spec"][
        "behavior"
    ]

    assert behavior["scaleUp"] == {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    }
    assert behavior["scaleDown"] == {
        "stabilizationWindowSeconds": 60,
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    }


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas: Invalid value: 0: must be greater than 0"),
        ({"minReplicas": 0}, "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"),
        ({"minReplicas": 5}, "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"),
        ({"scaleTargetRef": {"kind": "Deployment"}}, "spec.scaleTargetRef.name: Required value"),
        ({"scaleTargetRef": {"kind": "..", "name": "x"}}, "spec.scaleTargetRef.kind: Invalid value"),
        ({"metrics": [{"resource": CPU}]}, "spec.metrics[0].type: Required value: must specify a metric source type"),
        ({"metrics": [{"type": "Pods", "resource": CPU}]},
         "spec.metrics[0].pods: Required value: must populate information for the given metric source"),
        ({"metrics": [{"type": "Resource", "resource": CPU, "pods": {"metric": {"name": "a"}}}]},
         "spec.metrics[0].pods: Forbidden: must populate the given metric source only"),
        ({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Value"}}}]},
         ("spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a "
         "target utilization")),
        ({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {
            "type": "Much", "averageValue": "0", "averageUtilization": 0}}}]},
         ("spec.metrics[0].resource.target.type: Invalid value: \"Much\": must be either Utilization, Value, or "
         "AverageValue")),
        ({"metrics": [{"type": "ContainerResource", "containerResource": CPU}]},
         "spec.metrics[0].containerResource.container: Required value: must specify a container"),
        ({"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}},
         "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600"),
        ({"behavior": {"scaleUp": {"policies": []}}},
         "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"),
        ({"behavior": {"scaleDown": {"policies": [{"type": "Nodes", "value": 1, "periodSeconds": 1801}]}}},
         'spec.behavior.scaleDown.policies[0].type: Unsupported value: "Nodes": supported values: "Percent", "Pods"'),
        ({"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]}}},
         "periodSeconds: Invalid value: 1801: must be less than or equal to 1800"),
        ({"behavior": {"scaleDown": {"selectPolicy": "Mean"}}}, 'selectPolicy: Unsupported value: "Mean"'),
        ({"behavior": {"scaleDown": {"tolerance": "-1"}}},
         'tolerance: Invalid value: "-1": must be greater or equal to zero'),
        ({"behavior": {"scaleDown": {"tolerance": "1e19"}}},
         "tolerance: Invalid value: \"1e19\": quantity '1e19': exponent 19 is beyond 18"),
        ({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {
            "type": "AverageValue", "averageValue": "0"}}}]},
         'spec.metrics[0].resource.target.averageValue: Invalid value: "0": must be positive'),
        ({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {
            "type": "AverageValue", "averageValue": "1e19"}}}]},
         ("spec.metrics[0].resource.target.averageValue: Invalid value: \"1e19\": quantity '1e19': exponent 19 is beyond "
         "18")),
    ],
)  # fmt: skip
def test_what_an_autoscaler_may_not_say_is_refused_by_its_field(world, spec, said):
    causes, _ = world.try_create(SCALERS, a_scaler(**spec))
    found = [f"{cause.path}: {cause.message}" for cause in causes]

    assert any(said in text for text in found), found
