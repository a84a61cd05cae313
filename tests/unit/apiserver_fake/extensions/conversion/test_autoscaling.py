"""autoscaling/v1 and back: what has a field there, and what travels in annotations, in upstream's form."""

import json

import pytest

from apiserver_fake.extensions.conversion.autoscaling import stored_form, v1_form
from services.api.errors import BadRequest

PREFIX = "autoscaling.alpha.kubernetes.io/"
REFERENCE = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
SERVICE = {"apiVersion": "v1", "kind": "Service", "name": "web"}
SELECTOR = {"matchLabels": {"topic": "a"}}
OTHERS = [
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    {"type": "ContainerResource", "containerResource": {
        "name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 60}}},
    {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
    {"type": "Object", "object": {
        "metric": {"name": "rps"}, "describedObject": SERVICE, "target": {"type": "Value", "value": "2k"}}},
    {"type": "Object", "object": {
        "metric": {"name": "rps"}, "describedObject": SERVICE, "target": {"type": "AverageValue", "averageValue": "5"}}},
    {"type": "External", "external": {
        "metric": {"name": "queue", "selector": SELECTOR}, "target": {"type": "AverageValue", "averageValue": "30"}}},
]  # fmt: skip
BEHAVIOR = {
    "scaleDown": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]}
}
CONDITION = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}


def stored(metrics, **others):
    spec = {"scaleTargetRef": REFERENCE, "minReplicas": 1, "maxReplicas": 3, "metrics": metrics, **others}
    status = {
        "currentReplicas": 2, "desiredReplicas": 2, "conditions": [CONDITION],
        "currentMetrics": [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "4m"}}}
        ],
    }  # fmt: skip
    metadata = {"name": "web", "resourceVersion": "5", "annotations": {"mine": "1"}}
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return {**kind, "metadata": metadata, "spec": spec, "status": status}


def test_cpu_utilization_has_a_field_and_the_rest_is_in_annotations():
    old = v1_form(stored([CPU, *OTHERS], behavior=BEHAVIOR))
    notes = {name: json.loads(text) for name, text in old["metadata"]["annotations"].items()}

    assert old["apiVersion"] == "autoscaling/v1"
    assert old["spec"] == {
        "scaleTargetRef": REFERENCE, "minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50}  # fmt: skip
    assert old["status"] == {"currentReplicas": 2, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 40}
    assert notes.pop("mine") == 1
    assert notes[f"{PREFIX}current-metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "currentAverageUtilization": 40, "currentAverageValue": "4m"}}]  # fmt: skip
    assert notes[f"{PREFIX}conditions"] == [CONDITION]
    assert notes[f"{PREFIX}behavior"] == {
        "ScaleDown": {"StabilizationWindowSeconds": 60, "Policies": [{"Type": "Pods", "Value": 1, "PeriodSeconds": 5}]}}  # fmt: skip
    assert notes[f"{PREFIX}metrics"] == [
        {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}},
        {"type": "ContainerResource", "containerResource": {
            "name": "cpu", "container": "c", "targetAverageUtilization": 60}},
        {"type": "Pods", "pods": {"metricName": "rps", "targetAverageValue": "10"}},
        {"type": "Object", "object": {"metricName": "rps", "target": SERVICE, "targetValue": "2k"}},
        {"type": "Object", "object": {"metricName": "rps", "target": SERVICE, "averageValue": "5"}},
        {"type": "External", "external": {
            "metricName": "queue", "metricSelector": SELECTOR, "targetAverageValue": "30"}},
    ]  # fmt: skip


@pytest.mark.parametrize("metrics", [[CPU], OTHERS, [CPU, *OTHERS]])
def test_there_and_back_nothing_is_lost(metrics):
    document = stored(metrics, behavior=BEHAVIOR)

    assert stored_form(v1_form(document)) == document


def test_an_object_that_says_no_metric_leaves_the_default_to_the_server():
    spec = {"scaleTargetRef": REFERENCE, "maxReplicas": 3}

    assert stored_form({"metadata": {"name": "web"}, "spec": spec})["spec"] == spec


def test_an_annotation_that_cannot_be_read_is_ignored_and_another_version_refused():
    notes = dict.fromkeys((f"{PREFIX}{each}" for each in ("metrics", "conditions", "behavior")), "abc")
    document = {"apiVersion": "autoscaling/v1", "metadata": {"name": "web", "annotations": notes}, "spec": {}}

    assert stored_form(document)["metadata"]["annotations"] == {}
    with pytest.raises(
        BadRequest, match=r"\(autoscaling/v2\) does not match the expected API version \(autoscaling/v1\)"
    ):
        stored_form({"apiVersion": "autoscaling/v2"})
