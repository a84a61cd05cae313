"""A pod group is protected while a pod that has not ended refers to it."""

from __future__ import annotations

import pytest

from services.api.kinds.podgroup import PROTECTION_FINALIZER
from services.api.meta import Key
from services.controllers.podgroup_protection.controller import CONTROLLER as PODGROUP_PROTECTION


@pytest.fixture
def world(world_of):
    return world_of(PODGROUP_PROTECTION)


def group(**metadata):
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g", **metadata}}


def test_a_group_without_the_finalizer_gets_it_beside_its_others(world):
    world.put(group(finalizers=["example.com/other"]))

    (action,) = world.reconcile("g").actions

    assert action.patch == {"metadata": {"finalizers": ["example.com/other", PROTECTION_FINALIZER]}}
    assert (action.uid, action.resource_version) == ("uid-g", "1")


def test_a_group_being_deleted_waits_for_its_last_pod(world, a_pod):
    world.put(group(finalizers=[PROTECTION_FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z"))
    member = {"schedulingGroup": {"podGroupName": "g"}}
    for name in ("p1", "p2"):
        world.put(a_pod(name, spec=member))
    assert world.reconcile("g").actions == ()

    keys = world.put(a_pod("p1", phase="Succeeded", spec=member))
    assert (keys, world.reconcile("g").actions) == ([Key("default", "g")], ())

    assert world.drop("Pod", "p2") == [Key("default", "g")]
    (action,) = world.reconcile("g").actions
    assert action.patch == {"metadata": {"finalizers": None}}
