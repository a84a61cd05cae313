"""How a claim is granted: upstream's words for what goes wrong, retries after conflicts, fences (dra-core 6.6, kep-5194 3)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from lab.scenarios.simulation import simloop
from scheduler.cache.node_info import PodInfo
from scheduler.dra.claim_writer import Granter
from scheduler.dra.ledger import ClaimLedger
from scheduler.dra.metrics import CONFLICTS, METRICS, WRITES
from scheduler.switches import ReservationSwitches
from services.api.errors import Conflict, Invalid, NotFound
from services.api.kinds.resourceclaim import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from services.api.meta import Key, ObjectMeta
from tests.unit.scheduler.dra.test_devices import granted

JOB = ResourceClaimConsumerReference(api_group="batch", resource="jobs", name="j", uid="j1")
KEY = Key("default", "c")
FOR_ANY = replace(granted("gpu-0"), reserved_for_any_pod=True)
CONFLICT = 'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "c": the object has been modified'


class OneClaim:
    """A server of one claim, in order of its writes; `before_write` may change it first, as other clients do."""

    def __init__(self, claim: ResourceClaim, **others: Any) -> None:
        self.claim, self.others = claim, others
        self.writes: list[tuple[str, dict[str, Any]]] = []
        self.reads = 0
        self.before_write: Any = lambda: None

    async def get(self, resource: str, key: Key) -> Any:
        await asyncio.sleep(0.001)
        if resource != "resourceclaims.resource.k8s.io":
            if key.name not in self.others:
                raise NotFound(f'{resource} "{key.name}" not found')
            return {"metadata": {"name": key.name, "uid": self.others[key.name]}}
        self.reads += 1
        if self.claim is None:
            raise NotFound('resourceclaims.resource.k8s.io "c" not found')
        return msgspec.to_builtins(self.claim)

    async def patch(self, resource: str, key: Key, patch: Any, *, subresource: str, uid: str, resource_version: str):
        await asyncio.sleep(0.001)
        self.before_write()
        if resource_version != self.claim.metadata.resource_version:
            raise Conflict(CONFLICT)
        document = msgspec.to_builtins(self.claim)
        for part, fields in patch.items():
            merged = {**document.get(part, {}), **fields}
            document[part] = {name: value for name, value in merged.items() if value is not None}
        listed = document.get("status", {}).get("reservedFor") or []
        if len(listed) > 256:
            raise Invalid(f'ResourceClaim "c" is invalid: status.reservedFor: Too many: {len(listed)}')
        self.writes.append((subresource, patch))
        self.change(msgspec.convert(document, ResourceClaim))
        return msgspec.to_builtins(self.claim)

    def change(self, claim: ResourceClaim) -> None:
        rv = str(int(self.claim.metadata.resource_version) + 1)
        self.claim = replace(claim, metadata=replace(claim.metadata, resource_version=rv))

    @property
    def listed(self) -> list[str]:
        return [each.name for each in self.claim.status.reserved_for]


def claim(allocation: AllocationResult | None = None, *listed: Any, workload: Any = None) -> ResourceClaim:
    return ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="default", uid="c", resource_version="5"),
        spec=ResourceClaimSpec(reserved_for=workload),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=listed),
    )


class Bench:
    def __init__(self, a: Any, seen: ResourceClaim, live: ResourceClaim | None = None, /, **rules: Any) -> None:
        self.a, self.seen = a, seen
        self.server = OneClaim(live or seen)
        self.ledger = ClaimLedger()
        switches = ReservationSwitches(**rules)
        self.granter = Granter(
            self.ledger, lambda key: self.ledger.of(key, seen), lambda: 0.0, random.Random(1), switches
        )

    async def grant(self, name: str = "p", allocation: AllocationResult | None = None) -> Any:
        return await self.granter.grant(PodInfo(self.a.pod(name)), self.seen, allocation, self.server)

    def run(self, allocation: AllocationResult | None = None) -> str:
        if allocation is not None:
            self.ledger.allocate(self.seen, allocation, "p")
        return simloop.run(self.grant(allocation=allocation), seed=0).message

    def counted(self, name: str) -> float:
        samples = METRICS.of(self.ledger.metrics)
        return sum(value for sample, value in samples.items() if sample.startswith(name))


def test_an_allocation_takes_two_writes_the_finalizer_first(a):
    bench = Bench(a, claim())

    assert bench.run(granted("gpu-0")) == ""

    assert [subresource for subresource, _ in bench.server.writes] == ["", "status"]
    assert bench.server.listed == ["p"]
    assert bench.ledger.of(KEY, bench.seen).status.allocation is not None
    assert (bench.counted(WRITES), bench.counted(CONFLICTS)) == (2, 0)


def changed_before_each_write(bench: Bench) -> None:
    bench.server.before_write = lambda: bench.server.change(bench.server.claim)


@pytest.mark.parametrize(
    ("seen", "live", "allocation", "message"),
    [
        (claim(), claim(granted("gpu-1")), granted("gpu-0"), "claim default/c got allocated elsewhere in the meantime"),
        (claim(granted("gpu-0")), claim(), None, "claim default/c got deallocated elsewhere in the meantime"),
        (
            claim(granted("gpu-0")),
            claim(granted("gpu-1")),
            None,
            "claim default/c got allocated elsewhere in the meantime",
        ),
    ],
)
def test_after_a_conflict_the_claim_is_judged_anew(a, seen, live, allocation, message):
    bench = Bench(a, seen, live)
    bench.server.change(live)

    assert bench.run(allocation) == message


def test_a_claim_that_is_being_deleted_or_gone_ends_the_attempt(a):
    doomed = claim(granted("gpu-0"))
    doomed = replace(doomed, metadata=replace(doomed.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert Bench(a, doomed).run() == "claim default/c got deleted in the meantime"

    bench = Bench(a, claim(granted("gpu-0")))
    changed_before_each_write(bench)
    bench.server.get = OneClaim(None).get

    assert bench.run() == ('get updated claim default/c after conflict: resourceclaims.resource.k8s.io "c" not found')


def test_five_conflicts_in_a_row_end_the_attempt_in_the_servers_words(a):
    bench = Bench(a, claim(granted("gpu-0")))
    changed_before_each_write(bench)

    assert bench.run() == f"add reservation to claim default/c: {CONFLICT}"

    assert (bench.server.reads, bench.counted(CONFLICTS)) == (4, 5)


def test_the_257th_entry_is_refused_in_the_servers_words(a):
    users = (ResourceClaimConsumerReference(resource="pods", name=f"u{i}", uid=f"u{i}") for i in range(256))
    bench = Bench(a, claim(granted("gpu-0"), *users))

    assert bench.run() == (
        'add reservation to claim default/c: ResourceClaim "c" is invalid: status.reservedFor: Too many: 257'
    )


def test_pods_that_come_together_for_one_claim_all_get_it(a):
    bench = Bench(a, claim(granted("gpu-0")))
    names = [f"p{i}" for i in range(20)]

    async def all_at_once() -> Any:
        return await asyncio.gather(*(bench.grant(name) for name in names))

    assert [status.message for status in simloop.run(all_at_once(), seed=0)] == [""] * 20
    assert sorted(bench.server.listed) == sorted(names)


def test_an_allocation_that_another_pod_wrote_for_both_needs_only_the_own_entry(a):
    other = ResourceClaimConsumerReference(resource="pods", name="q", uid="q")
    bench = Bench(a, claim(), claim(granted("gpu-0"), other))
    bench.server.change(bench.server.claim)

    assert bench.run(granted("gpu-0")) == ""

    assert bench.server.listed == ["q", "p"]
    assert [list(patch["status"]) for _, patch in bench.server.writes] == [["reservedFor"]]


def test_an_allocation_that_another_pod_wrote_for_both_is_not_written_again_after_it_was_cleared(a):
    """Its devices may be another claim's by now."""
    bench = Bench(a, claim())
    bench.ledger.allocate(bench.seen, granted("gpu-0"), "p")
    bench.ledger.settle(bench.seen)

    said = simloop.run(bench.grant(allocation=granted("gpu-0")), seed=0)

    assert said.message == "claim default/c got deallocated elsewhere in the meantime"


# -- KEP-5194


def test_kep_5194_the_first_pod_writes_the_workload_and_the_others_write_nothing(a):
    bench = Bench(a, claim(workload=JOB), mode="kep5194")

    assert bench.run(granted("gpu-0")) == ""
    assert (bench.server.listed, bench.server.claim.status.allocation.reserved_for_any_pod) == (["j"], True)
    bench.seen = bench.server.claim

    assert bench.run() == ""
    assert len(bench.server.writes) == 2


@pytest.mark.parametrize(
    ("uid", "there", "verifies", "message", "listed"),
    [
        ("j1", {}, False, "", ["j"]),
        ("j1", {"j": "j1"}, True, "", ["j"]),
        ("j1", {}, True, 'is reserved for jobs.batch "j" with UID j1, which does not exist', []),
        ("j1", {"j": "j2"}, True, 'is reserved for jobs.batch "j" with UID j1, which does not exist', []),
        ("", {"j": "j2"}, False, "", ["j"]),
        ("", {}, False, 'is reserved for jobs.batch "j", which does not exist', []),
    ],
)
def test_kep_5194_5_4_the_workload_is_looked_up_when_it_must_be(a, uid, there, verifies, message, listed):
    bench = Bench(a, claim(FOR_ANY, workload=replace(JOB, uid=uid)), mode="kep5194", verifies_owner=verifies)
    bench.server.others = there

    said = bench.run()

    assert said == (f"resourceclaim default/c {message}" if message else "")
    assert bench.server.listed == listed
    if listed:
        assert bench.server.claim.status.reserved_for[0].uid == (uid or "j2")


MOVED = replace(granted("gpu-0", node="n2"), reserved_for_any_pod=True)


@pytest.mark.parametrize(
    ("fence", "live", "message", "cost"),
    [
        ("none", claim(MOVED, JOB, workload=JOB), "", (0, 0)),
        ("get", claim(FOR_ANY, JOB, workload=JOB), "", (1, 0)),
        ("get", claim(MOVED, JOB, workload=JOB), "claim default/c got allocated elsewhere in the meantime", (1, 0)),
        ("get", claim(workload=JOB), "claim default/c got deallocated elsewhere in the meantime", (1, 0)),
        ("touch", claim(FOR_ANY, JOB, workload=JOB), "", (1, 1)),
        ("touch", claim(MOVED, JOB, workload=JOB), "claim default/c got allocated elsewhere in the meantime", (1, 0)),
    ],
)
def test_kep_5194_3_3_the_fence_sees_a_claim_that_moved(a, fence, live, message, cost):
    """The cache shows the claim on n1, while it is on n2 by now, or changed without moving."""
    bench = Bench(a, claim(FOR_ANY, JOB, workload=JOB), live, mode="kep5194", fence=fence)
    bench.server.change(live)

    assert bench.run() == message

    assert (bench.server.reads, len(bench.server.writes)) == cost


def test_kep_5194_3_3_a_fence_that_finds_the_list_emptied_writes_the_workload_again(a):
    bench = Bench(a, claim(FOR_ANY, JOB, workload=JOB), claim(FOR_ANY, workload=JOB), mode="kep5194", fence="get")

    assert bench.run() == ""

    assert bench.server.listed == ["j"]
