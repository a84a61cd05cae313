"""Devices that PostFilter frees in memory for a retry, and in the API when the pod is bound (kep-5194 3.4, `in_memory`)."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from lab.scenarios.simulation import simloop
from scheduler.cache.node_info import PodInfo
from scheduler.cycle.result import ScheduleResult
from scheduler.dra.claim_releaser import deallocate_moved
from scheduler.dra.claim_writer import Granter
from scheduler.dra.ledger import ClaimLedger
from scheduler.switches import ReservationSwitches
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.meta import ObjectMeta
from services.reconcile.controller import Change
from tests.unit.scheduler.dra.test_claim_writer import CONFLICT, OneClaim
from tests.unit.scheduler.dra.test_devices import DRIVER, WORKLOAD, claim, cluster_with, granted, offer, pod, reserved

IN_MEMORY = {"reserved_for__mode": "kep5194", "scheduler__postfilter_dealloc": "in_memory"}
ON_N9, ON_N1 = (DRIVER, "n9", "gpu-9"), (DRIVER, "n1", "gpu-0")


def held(**more):
    return claim("c", allocation=granted("gpu-9", node="n9"), reserved_for=(WORKLOAD,), **more)


def test_the_pod_is_placed_in_the_same_cycle_and_nothing_is_released_yet(cluster, a):
    world = cluster_with(cluster, a, held(), offer("s", "gpu-0"), **IN_MEMORY)
    info = PodInfo(pod(a))

    result = world.cycle.schedule(info, 0.0)
    assert isinstance(result, ScheduleResult)
    assert world.runner.reserve(result.state, info, result.node_name).is_success

    ledger = world.handle.claims
    assert list(ledger.releases) == []
    assert ledger.moved_from("c").status.reserved_for == (WORKLOAD,)
    assert {ON_N9, ON_N1} <= set(ledger.allocated.devices)
    # Others wait for the move, as for any allocation in flight; when it is given up the claim is as before.
    error = world.refuse(pod(a, "q"))
    assert "resource claim default/c is in the process of being allocated" in error.message
    world.runner.unreserve(result.state, info, result.node_name)
    assert (ledger.moved_from("c"), ON_N1 in ledger.allocated.devices) == (None, False)
    assert ON_N9 in ledger.allocated.devices


def test_the_devices_that_are_freed_serve_the_retry(cluster, a):
    """Of two claims each holds the only device of the other's node."""
    first = claim("c", allocation=granted("gpu-0", node="n1"), reserved_for=(WORKLOAD,))
    second = claim("d", allocation=granted("gpu-0", node="n2"), reserved_for=reserved("p"))
    world = cluster_with(
        cluster, a, first, second, offer("s1", "gpu-0", "gpu-1"), offer("s2", "gpu-0", node="n2"), nodes=("n1", "n2"),
        **IN_MEMORY,
    )  # fmt: skip

    result = world.schedule(pod(a, "p", "c", "d"))

    assert result.node_name == "n1"


@pytest.mark.parametrize(
    ("switches", "users"),
    [(IN_MEMORY, ()), (IN_MEMORY | {"reserved_for__mode": "pods"}, ()), (IN_MEMORY, ("c",))],
    ids=["nothing-else-is-free", "in-mode-pods", "a-pod-that-uses-it-has-a-node"],
)
def test_without_a_node_all_stays_as_it_is(cluster, a, switches, users):
    objects = [held()] if not users else [held(), offer("s", "gpu-0")]
    world = cluster_with(cluster, a, *objects, **switches)
    for user in users:
        world.pods(pod(a, "other", user, node="n1"))

    error = world.refuse(pod(a))

    assert error.message.startswith(
        "0/1 nodes are available: 1 resourceclaim not available on the node. still not schedulable, preemption:"
    )
    assert list(world.handle.claims.releases) == []
    assert world.handle.claims.moved_from("c") is None


class Bench:
    """A pod's move of the claim, against a server that may know more."""

    def __init__(self, a, before: ResourceClaim, users=()) -> None:
        self.before = before
        self.server = OneClaim(before)
        self.server.list = self.list
        self.ledger = ClaimLedger()
        self.ledger.on_change(Change(None, before))
        self.open = replace(before, status=type(before.status)())
        self.ledger.allocate(self.open, granted("gpu-0"), "p", moved_from=before)
        self.users = users
        self.granter = Granter(
            self.ledger,
            lambda key: self.ledger.of(key, before),
            lambda: 0.0,
            random.Random(1),
            ReservationSwitches(mode="kep5194"),
        )
        self.pod = PodInfo(a.pod("p"))

    async def list(self, resource, *, namespace):
        return [
            {
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {"nodeName": "n9", "resourceClaims": [{"name": "r", "resourceClaimName": "c"}]},
            }
            for name in self.users
        ], 1

    def move(self, uid="p"):
        return simloop.run(deallocate_moved(self.open, uid, self.ledger, self.server), seed=0).message

    def grant(self):
        return simloop.run(self.granter.grant(self.pod, self.open, granted("gpu-0"), self.server), seed=0).message


def test_the_claim_is_cleared_once_and_then_granted_anew(a):
    bench = Bench(a, held())

    assert [bench.move(), bench.move("q"), bench.grant(), bench.move("q")] == [""] * 4

    assert [list(patch) for _, patch in bench.server.writes] == [["status"], ["metadata"], ["status"]]
    assert bench.server.writes[0][1]["status"] == {"reservedFor": None, "allocation": None, "devices": None}
    assert bench.server.claim.status.allocation.device_ids == granted("gpu-0").device_ids
    assert bench.ledger.moved_from("c") is None


@pytest.mark.parametrize(
    ("users", "is_changed", "message"),
    [
        ((), True, f"deallocate claim default/c: {CONFLICT}"),
        (("q",), False, "claim default/c got a consumer in the meantime"),
        (("p",), False, ""),
    ],
)
def test_a_claim_that_changed_or_is_in_use_is_left_alone(a, users, is_changed, message):
    bench = Bench(a, held(), users)
    if is_changed:
        bench.server.change(replace(bench.before, metadata=ObjectMeta(name="c", namespace="default", uid="c",
                                                                      resource_version="1", labels={"x": "y"})))  # fmt: skip

    assert bench.move() == message
    assert (bench.server.claim.status.allocation is None) is (message == "")
