"""Claims that the scheduler frees by the clock (kep-5194 13, `scheduler.periodic_release`)."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from lab.scenarios.simulation import simloop
from scheduler.dra.claim_releaser import ClaimReleaser
from scheduler.dra.ledger import ClaimLedger
from services.api.meta import Key
from services.reconcile.controller import Change
from tests.unit.scheduler.dra.test_claim_writer import OneClaim
from tests.unit.scheduler.dra.test_devices import POD_GROUP, WORKLOAD, claim, granted, reserved

CLAIM = Key("default", "c")


def frees(held, *, users=(), bound=(), seconds=25.0):
    """The seconds at which a scheduler that looks every ten writes. `users`: claims of pods with a node by its cache;
    `bound`: pods that have a node by the API server alone."""
    ledger, server, writes = ClaimLedger(), OneClaim(held), []

    async def pods(resource, *, namespace):
        spec = {"nodeName": "n9", "resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}
        return [{"metadata": {"name": n, "namespace": "default", "uid": n}, "spec": spec} for n in bound], 1

    server.list = pods
    server.before_write = lambda: writes.append(round(asyncio.get_running_loop().time()))
    ledger.on_change(Change(None, held))
    releaser = ClaimReleaser(ledger, server, dict.fromkeys(users, 1))

    async def run():
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            group.create_task(releaser.run())
            group.create_task(releaser.free_unused(lambda: [held], 10.0))

    with pytest.raises(TimeoutError):
        simloop.run(run(), seed=0)
    return writes


def held(*entries, **more):
    return claim("c", allocation=granted("gpu-9", node="n9"), reserved_for=entries or (WORKLOAD,), **more)


def test_what_no_pod_uses_is_freed_once():
    assert frees(held()) == [10]


def test_what_a_workload_and_a_group_hold_is_freed_too():
    assert frees(held(WORKLOAD, POD_GROUP)) == [10]


@pytest.mark.parametrize(
    ("kept", "users", "bound"),
    [
        (held(), (CLAIM,), ()),  # a pod that is assumed to be on a node
        (held(), (), ("p",)),  # one that another scheduler has bound
        (held(WORKLOAD, *reserved("p")), (), ()),
        (replace(held(), status=replace(held().status, reserved_for=())), (), ()),
        (replace(held(), status=replace(held().status, allocation=None)), (), ()),
    ],
    ids=["assumed", "bound by another", "a pod is listed", "for nobody", "without devices"],
)
def test_what_is_in_use_or_not_for_a_workload_stays(kept, users, bound):
    assert frees(kept, users=users, bound=bound) == []
