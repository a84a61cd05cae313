"""Scale: a Scale in, a Scale out, and the workload's generation counts the change. Status and finalize beside it."""

from __future__ import annotations

import pytest

from apiserver_fake.registry.strategy import subresource
from services.api.errors import ApiError
from services.api.identity import ADMIN, controller_identity

SPEC = {
    "replicas": 2,
    "selector": {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}],
    },
}


@pytest.fixture
def web(world):
    return world.put(
        "deployments.apps", {"kind": "Deployment", "metadata": {"name": "web"}, "spec": SPEC, "status": {"replicas": 1}}
    )


def test_reading_gives_an_autoscaling_v1_scale_with_the_selector_as_a_query(web):
    scale = subresource("deployments.apps", "scale").read(web)
    assert (scale["apiVersion"], scale["kind"], scale["spec"]) == ("autoscaling/v1", "Scale", {"replicas": 2})
    assert scale["status"] == {"replicas": 1, "selector": "app=web,tier in (a,b)"}


def test_a_new_number_counts_a_generation_and_the_same_number_is_no_change(world, web):
    result = world.sub(ADMIN, "deployments.apps", "web", "scale", {"spec": {"replicas": 5}}, verb="update")
    assert result.document["spec"] == {**SPEC, "replicas": 5}
    assert result.document["metadata"]["generation"] == 2
    again = world.sub(ADMIN, "deployments.apps", "web", "scale", {"spec": {"replicas": 5}}, verb="update")
    assert again.document is None


@pytest.mark.parametrize(("replicas", "code"), [(-1, 422), ("3", 400), (True, 400), (2**40, 422)])
def test_what_is_no_number_of_replicas_is_refused(world, web, replicas, code):
    with pytest.raises(ApiError) as refused:
        world.sub(ADMIN, "deployments.apps", "web", "scale", {"spec": {"replicas": replicas}}, verb="update")
    assert refused.value.code == code


def test_guarantees_s21_a_status_write_changes_nothing_but_the_status(world, web):
    body = {**web, "metadata": {**web["metadata"], "labels": {"x": "y"}}, "spec": {}, "status": {"replicas": 9}}
    result = world.sub(controller_identity("deployment"), "deployments.apps", "web", "status", body, verb="update")
    assert result.document == {**web, "status": {"replicas": 9}}


def test_controllers_11_a_namespace_goes_when_its_last_finalizer_is_finalized(world):
    ending = {"name": "gone", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    stored = world.put("namespaces", {"metadata": ending, "spec": {"finalizers": ["kubernetes", "mine"]}})
    call = {"verb": "update", "namespace": ""}
    who = controller_identity("namespace")
    left = world.sub(who, "namespaces", "gone", "finalize", {**stored, "spec": {"finalizers": ["mine"]}}, **call)
    assert (left.document["spec"]["finalizers"], left.delete) == (["mine"], None)
    assert world.sub(who, "namespaces", "gone", "finalize", {**stored, "spec": {}}, **call).delete is not None
