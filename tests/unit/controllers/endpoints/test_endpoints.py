"""Endpoints: which pods' addresses a Service has in its one object, and when that is written."""

import pytest

from services.controllers.endpoints.controller import ADDRESSES_MAX, CONTROLLER
from services.reconcile.actions import Create, Delete, Patch

LABELS = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}


@pytest.fixture
def world(world_of):
    return world_of(CONTROLLER)


def a_service(**spec):
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    spec = {"selector": {"app": "web"}, "clusterIP": "10.96.0.9", "ports": ports, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}


def a_member(a_pod, name, ip, *, ready=True, **how):
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return a_pod(name, node="n1", status={"podIP": ip, "conditions": conditions}, **how)


def addresses(subset, member="addresses"):
    return [each["ip"] for each in subset.get(member, [])]


def test_ready_and_unready_addresses_stand_apart_in_the_order_of_numbers(world, a_pod):
    world.put(a_service())
    for name, ip, ready in (("a", "10.0.0.10", True), ("b", "10.0.0.9", True), ("c", "10.0.0.1", False)):
        world.put(a_member(a_pod, name, ip, ready=ready))

    (made,) = world.reconcile("web").actions
    assert isinstance(made, Create)
    (subset,) = made.document["subsets"]

    assert made.document["metadata"]["labels"] == LABELS
    assert addresses(subset) == ["10.0.0.9", "10.0.0.10"]
    assert addresses(subset, "notReadyAddresses") == ["10.0.0.1"]
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert subset["addresses"][0]["targetRef"]["name"] == "b"
    world.put({**made.document, "metadata": {**made.document["metadata"]}})
    assert world.reconcile("web").actions == ()


def test_a_pod_that_leaves_leaves_the_object(world, a_pod):
    world.put(a_service())
    world.put(a_member(a_pod, "a", "10.0.0.1"))
    (made,) = world.reconcile("web").actions
    world.put(made.document)
    world.put(a_member(a_pod, "a", "10.0.0.1", ready=False))

    (patch,) = world.reconcile("web").actions
    assert isinstance(patch, Patch)
    assert addresses(patch.patch["subsets"][0]) == []
    assert addresses(patch.patch["subsets"][0], "notReadyAddresses") == ["10.0.0.1"]


def test_unready_pods_are_ready_where_the_service_publishes_them(world, a_pod):
    world.put(a_service(publishNotReadyAddresses=True, clusterIP="None"))
    world.put(a_member(a_pod, "a", "10.0.0.1", ready=False))
    (made,) = world.reconcile("web").actions
    assert addresses(made.document["subsets"][0]) == ["10.0.0.1"]
    assert made.document["metadata"]["labels"]["service.kubernetes.io/headless"] == ""


def test_a_thousand_addresses_are_the_most(world, a_pod):
    world.put(a_service())
    for number in range(ADDRESSES_MAX + 1):
        world.put(a_member(a_pod, f"p{number}", f"10.1.{number // 250}.{number % 250 + 1}"))
    (made,) = world.reconcile("web").actions
    assert len(made.document["subsets"][0]["addresses"]) == ADDRESSES_MAX
    assert made.document["metadata"]["annotations"] == {"endpoints.kubernetes.io/over-capacity": "truncated"}


@pytest.mark.parametrize(("labels", "gone"), [(LABELS, 1), ({}, 0)])
def test_what_is_left_of_a_service_goes_unless_a_client_made_it(world, labels, gone):
    world.put({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "labels": labels}})
    assert [type(each) for each in world.reconcile("web").actions] == [Delete] * gone


def test_endpoints_of_a_service_without_selector_are_the_clients_own(world):
    world.put(a_service(selector={}))
    assert world.reconcile("web").actions == ()
