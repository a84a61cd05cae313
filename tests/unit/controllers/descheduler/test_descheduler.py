"""RemoveFailedPods: which Failed pods a round removes."""

from dataclasses import replace

import pytest

from services.api.switches import Switches
from services.controllers.descheduler.controller import CONTROLLER as DESCHEDULER


@pytest.fixture
def world(world_of):
    return lambda *switches: world_of(replace(DESCHEDULER, build=lambda _: DESCHEDULER.build(Switches.parse(switches))))


def failed(world, a_pod, name, *, ago_s=100.0, reason="TopologyAffinityError", **more):
    world.put(a_pod(name, phase="Failed", status={"reason": reason}, creationTimestamp=world.stamp(ago_s), **more))


def removed(world):
    return [action.key.name for action in world.reconcile().actions if hasattr(action, "grace_period_s")]


def test_unbinding_2_failed_pods_go_the_oldest_first_and_others_stay(world, a_pod):
    here = world()
    failed(here, a_pod, "young", ago_s=10)
    failed(here, a_pod, "old", ago_s=50)
    here.put(a_pod("lives"))

    assert removed(here) == ["old", "young"]


def test_unbinding_2_only_the_named_reasons_count(world, a_pod):
    here = world("descheduler.reasons=OutOf*+NodeAffinity")
    for reason in ("OutOfcpu", "NodeAffinity", "TopologyAffinityError"):
        failed(here, a_pod, reason.lower(), reason=reason)

    assert sorted(removed(here)) == ["nodeaffinity", "outofcpu"]


def test_unbinding_2_young_pods_and_those_of_excluded_owners_are_left_alone(world, a_pod):
    here = world("descheduler.min_lifetime_s=60", "descheduler.exclude_owners=ReplicaSet")
    failed(here, a_pod, "young", ago_s=59)
    failed(here, a_pod, "owned", owner="web")
    failed(here, a_pod, "due")

    assert removed(here) == ["due"]
