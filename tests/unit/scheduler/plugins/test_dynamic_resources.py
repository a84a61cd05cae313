"""Pods wait for the claims they name (KEP-4381), in upstream's words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.framework.arrangement import Enabled
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import Action, ClusterEvent, Hint
from scheduler.framework.runner import Runner
from scheduler.framework.status import SUCCESS, error_status, unresolvable, unschedulable
from services.api.kinds.pod import (
    PersistentVolumeClaimVolumeSource,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGroup,
    Volume,
)
from services.api.kinds.podgroup import PodGroup, PodGroupResourceClaim, PodGroupSpec
from services.api.kinds.resourceclaim import AllocationResult, ResourceClaim, ResourceClaimStatus
from services.api.meta import ObjectMeta, OwnerReference
from services.api.switches import Switches
from tests.unit.scheduler.conftest import new_handle, plugin_of

DIRECT = PodResourceClaim(name="gpu", resource_claim_name="c")
MADE = PodResourceClaim(name="gpu", resource_claim_template_name="t")


def claim(name="c", *, owner="", **more: Any):
    owners = (OwnerReference(kind="Pod", name=owner, uid=owner, controller=True),) if owner else ()
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="default", owner_references=owners, **more))


def pod(a, *wanted, made=None):
    found = a.pod("p", resource_claims=wanted)
    statuses = () if made is None else (PodResourceClaimStatus(name="gpu", resource_claim_name=made or None),)
    return PodInfo(replace(found, status=replace(found.status, resource_claim_statuses=statuses)))


@pytest.mark.parametrize(
    ("wanted", "made", "there", "message"),
    [
        (DIRECT, None, (), 'could not find ResourceClaim "default/c"'),
        (DIRECT, None, (claim(deletion_timestamp="2026-01-01T00:00:00Z"),), 'resourceclaim "c" is being deleted'),
        (DIRECT, None, (claim(),), ""),
        (MADE, None, (), 'pod "default/p": ResourceClaim not created yet'),
        (MADE, "c", (), 'could not find ResourceClaim "default/c"'),
        (MADE, "c", (claim(owner="q"),), "ResourceClaim default/c was not created for pod default/p (pod is not owner)"),
        (MADE, "c", (claim(owner="p"),), ""),
        (MADE, "", (), ""),
        (PodResourceClaim(name="x"), None, (),
         'pod "default/p", spec.resourceClaim "x": none of the supported fields are set'),
    ],
)  # fmt: skip
def test_a_pod_is_held_back_in_upstreams_words(a, wanted, made, there, message):
    status = plugin_of("DynamicResources", new_handle(None, *there)).pre_enqueue(pod(a, wanted, made=made))

    assert status.message == message
    assert status.is_success is (message == "")


def test_users_read_of_a_missing_claim_but_not_of_one_on_its_way(a):
    plugin = plugin_of("DynamicResources")
    direct, made = pod(a, DIRECT), pod(a, MADE)

    assert plugin.gate_message(direct, plugin.pre_enqueue(direct)) == 'could not find ResourceClaim "default/c"'
    assert plugin.gate_message(made, plugin.pre_enqueue(made)) == ""


def test_only_the_claim_the_pod_waits_for_wakes_it(a):
    handle = new_handle()
    world, plugin = handle.world, plugin_of("DynamicResources", handle)
    after_claim = plugin.events_to_register()[1].hint
    waiting, other, own = pod(a, DIRECT), claim("d"), claim("c")
    world.put(other)
    assert after_claim(waiting, None, other) is Hint.SKIP

    world.put(own)

    assert after_claim(waiting, None, own) is Hint.QUEUE
    assert after_claim(waiting, None, other) is Hint.SKIP
    assert after_claim(waiting, own, own) is Hint.SKIP
    allocated = replace(own, status=ResourceClaimStatus(allocation=AllocationResult()))
    assert after_claim(waiting, own, allocated) is Hint.QUEUE


def test_a_generated_claim_named_in_the_status_lets_the_pod_in(cluster, a):
    world = cluster().nodes(a.node("n1"))
    before, after = (
        pod(a, MADE).pod,
        replace(pod(a, MADE, made="c").pod, metadata=replace(a.pod("p").metadata, resource_version="2")),
    )
    world.pods(before)
    assert world.attempt(0.0) == ""
    world.handle.world.put(claim(owner="p"))

    world.handlers.on_pod(before, after, 1.0)

    assert world.attempt(1.0) == "p->n1"


def test_a_claim_that_appears_lets_the_pod_in(cluster, a):
    world = cluster().nodes(a.node("n1")).pods(pod(a, DIRECT).pod)
    assert world.attempt(0.0) == ""
    own = claim()
    world.handle.world.put(own)

    world.queue.move_all(ClusterEvent("ResourceClaim", Action.ADD, "ResourceClaimAdd"), None, own, 1.0)

    assert world.attempt(1.0) == "p->n1"


def test_a_claim_that_went_after_the_pod_came_in_fails_the_attempt(cluster, a):
    world = cluster().nodes(a.node("n1"))

    error = world.refuse(pod(a, DIRECT).pod)

    assert error.rejectors == {"DynamicResources"}
    assert error.message == (
        '0/1 nodes are available: could not find ResourceClaim "default/c". no new claims to deallocate, '
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_a_pod_that_prefilter_rejects_before_its_claims_are_looked_at_has_no_state_and_preempts_for_nothing(cluster, a):
    """The missing volume claim is UnschedulableAndUnresolvable, which ends PreFilter (also of pods without claims)."""
    volumes = (Volume(name="v", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="none")),)
    world = cluster().nodes(a.node("n1")).pods(a.pod("low", node="n1"))

    error = world.refuse(a.pod("p", volumes=volumes, priority=10))

    assert error.message == '0/1 nodes are available: persistentvolumeclaim "none" not found. not found'


class Says:
    def __init__(self, name, status):
        self.name, self._status = name, status

    def pre_filter(self, state, pod, columns):
        state.data[self.name] = True
        return self._status


@pytest.mark.parametrize(
    ("first", "second", "rejected_by", "asked"),
    [
        (unschedulable("a"), SUCCESS, "First", {"First", "Second"}),
        (unschedulable("a"), unresolvable("b"), "Second", {"First", "Second"}),
        (unresolvable("a"), unresolvable("b"), "First", {"First"}),
        (error_status("a"), unresolvable("b"), "First", {"First"}),
    ],
)
def test_a_prefilter_rejection_that_preemption_may_turn_lets_the_others_look(
    cluster, a, first, second, rejected_by, asked
):
    runner = Runner([Enabled(Says("First", first)), Enabled(Says("Second", second))])
    state = CycleState()

    prepared = runner.pre_filter(state, PodInfo(a.pod("p")), cluster().cache.columns)

    assert prepared.rejection.plugin == rejected_by
    assert set(state.data) == asked


@pytest.mark.parametrize(
    ("mode", "owner", "message"),
    [
        ("kep5729", "g1", ""),
        ("kep5729", "p",
         "ResourceClaim default/c was not created for PodGroup default/g (PodGroup is not owner)"),
        ("pods", "g1", "ResourceClaim default/c was not created for pod default/p (pod is not owner)"),
        ("pods", "p", ""),
    ],
)  # fmt: skip
def test_kep_5729_a_claim_made_for_the_group_is_its_members(a, mode, owner, message):
    shared = PodGroupResourceClaim(name="gpu", resource_claim_template_name="t")
    group = PodGroup(
        metadata=ObjectMeta(name="g", namespace="default", uid="g1"), spec=PodGroupSpec(resource_claims=(shared,))
    )
    found = pod(a, MADE, made="c").pod
    member = replace(found, spec=replace(found.spec, scheduling_group=PodSchedulingGroup(pod_group_name="g")))
    handle = new_handle(Switches({"reserved_for.mode": mode}), group, claim(owner=owner))

    assert plugin_of("DynamicResources", handle).pre_enqueue(PodInfo(member)).message == message
