"""For whom a claim is reserved: pods, or the workload that the claim names (kep-5194 1, 2, 9 and 13)."""

from __future__ import annotations

import pytest

from apiserver_fake.registry.strategy import strategy_for
from services.api.identity import SCHEDULER
from services.api.kinds.resourceclaim import CLAIMS
from services.api.wire import Request

TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
JOB = {"apiGroup": "batch", "resource": "jobs", "name": "train", "uid": "j1"}
RESULT = {"request": "r", "driver": "gpu.example", "pool": "n1", "device": "gpu-0"}
ALLOCATION = {"devices": {"results": [RESULT]}}
FORBIDDEN = "Forbidden: may not be specified when `allocated` is not set"


def pod(number):
    return {"resource": "pods", "name": f"p{number}", "uid": f"u{number}"}


def claim(**spec):
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}, **spec}}


def write(world, stored, **status):
    new = {**stored, "status": status}
    call = Request(verb="update", resource=CLAIMS, namespace="default", name="c", subresource="status")
    ctx, rules = world.ctx(SCHEDULER, call), strategy_for(CLAIMS)
    rules.prepare_status(stored, new, ctx)
    return [(cause.path, cause.message) for cause in rules.validate_status(stored, new, ctx)], new


@pytest.fixture
def for_workloads(world):
    world.switch(reserved_for__mode="kep5194")
    return world


@pytest.mark.parametrize("mode", ["pods", "kep5729"])
def test_in_other_modes_a_claim_names_no_workload(world, mode):
    world.switch(reserved_for__mode=mode)

    stored = world.create(CLAIMS, claim(reservedFor=JOB))
    _, new = write(world, stored, allocation={**ALLOCATION, "reservedForAnyPod": True}, reservedFor=[JOB])

    assert "reservedFor" not in stored["spec"]
    assert new["status"] == {"allocation": ALLOCATION, "reservedFor": [JOB]}  # the list itself takes any consumer


def test_what_was_stored_in_the_mode_stays_without_it(for_workloads):
    stored = for_workloads.create(CLAIMS, claim(reservedFor=JOB))
    for_workloads.switch(reserved_for__mode="pods")

    causes, new = for_workloads.try_update(CLAIMS, stored, {**stored, "metadata": {**stored["metadata"], "labels": {}}})
    _, granted = write(for_workloads, stored, allocation={**ALLOCATION, "reservedForAnyPod": True})

    assert (causes, new["spec"]["reservedFor"]) == ([], JOB)
    assert granted["status"]["allocation"]["reservedForAnyPod"] is True


def test_the_workload_never_changes(for_workloads):
    stored = for_workloads.create(CLAIMS, claim(reservedFor=JOB))
    other = {**stored, "spec": {**stored["spec"], "reservedFor": {**JOB, "uid": "j2"}}}

    causes, _ = for_workloads.try_update(CLAIMS, stored, other)

    assert [cause.path for cause in causes] == ["spec"]


@pytest.mark.parametrize(
    ("reference", "policy", "paths"),
    [
        (JOB, "strict", []),
        ({**JOB, "uid": ""}, "strict", ["spec.reservedFor.uid"]),
        ({**JOB, "uid": ""}, "late", []),
        ({"uid": "j1"}, "late", ["spec.reservedFor.resource", "spec.reservedFor.name"]),
    ],
)
def test_a_workload_is_named_by_resource_and_name_and_by_uid_unless_that_is_looked_up(
    for_workloads, reference, policy, paths
):
    for_workloads.switch(reservedFor__uid_policy=policy)

    causes, _ = for_workloads.try_create(CLAIMS, claim(reservedFor=reference))

    assert [cause.path for cause in causes] == paths


ITSELF = {"apiGroup": "resource.k8s.io", "resource": "resourceclaims", "name": "c"}


@pytest.mark.parametrize(
    ("reference", "is_allowed", "paths"),
    [
        (ITSELF, True, []),
        (ITSELF, False, ["spec.reservedFor"]),
        ({**ITSELF, "name": "d"}, True, ["spec.reservedFor.name"]),
        ({**ITSELF, "name": ""}, True, ["spec.reservedFor.name"]),
        ({**ITSELF, "uid": "u1"}, True, ["spec.reservedFor.uid"]),
    ],
)
def test_a_claim_names_no_claim_but_itself_and_only_if_that_is_allowed(for_workloads, reference, is_allowed, paths):
    for_workloads.switch(reservedFor__self=is_allowed)

    causes, _ = for_workloads.try_create(CLAIMS, claim(reservedFor=reference))

    assert sorted({cause.path for cause in causes}) == paths


def test_a_template_names_no_claim(for_workloads):
    for_workloads.switch(template__allow_reservedFor=True, reservedFor__self=True)
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim(reservedFor=ITSELF)["spec"]}}

    causes, _ = for_workloads.try_create(TEMPLATES, template)

    assert [(cause.path, cause.message) for cause in causes] == [
        ("spec.spec.reservedFor", "Forbidden: a template does not know the names of its claims")
    ]


@pytest.mark.parametrize(("is_allowed", "paths"), [(False, ["spec.spec.reservedFor"]), (True, [])])
def test_a_template_names_a_workload_only_if_that_is_allowed(for_workloads, is_allowed, paths):
    for_workloads.switch(template__allow_reservedFor=is_allowed)
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim(reservedFor=JOB)["spec"]}}

    causes, _ = for_workloads.try_create(TEMPLATES, template)

    assert [cause.path for cause in causes] == paths


def test_the_mark_for_any_pod_is_written_with_the_allocation_and_never_flipped(for_workloads):
    stored = for_workloads.create(CLAIMS, claim(reservedFor=JOB))
    causes, granted = write(
        for_workloads, stored, allocation={**ALLOCATION, "reservedForAnyPod": True}, reservedFor=[JOB]
    )

    flipped, _ = write(for_workloads, granted, allocation=ALLOCATION, reservedFor=[JOB])

    assert (causes, [at for at, _ in flipped]) == ([], ["status.allocation"])


@pytest.mark.parametrize(("most", "count", "is_taken"), [(256, 256, True), (256, 257, False), (300, 300, True)])
def test_kep_5194_02_a_claim_is_reserved_for_so_many_and_workloads_count_as_one(world, most, count, is_taken):
    world.switch(reserved_for__max=most)
    stored = world.create(CLAIMS, claim())
    consumers = [JOB, *map(pod, range(count - 1))]

    causes, _ = write(world, stored, allocation=ALLOCATION, reservedFor=consumers)

    assert causes == ([] if is_taken else [("status.reservedFor", "Too many: 257: must have at most 256 items")])


@pytest.mark.parametrize(
    ("is_relaxed", "consumers", "found"),
    [
        (False, [JOB], [("status.reservedFor", FORBIDDEN)]),
        (True, [JOB], []),
        (True, [pod(1)], [("status.reservedFor", FORBIDDEN)]),
        (True, [JOB, pod(1)], [("status.reservedFor", FORBIDDEN)]),
    ],
)
def test_only_a_workload_may_reserve_before_there_are_devices_and_only_if_that_is_allowed(
    for_workloads, is_relaxed, consumers, found
):
    for_workloads.switch(reserved_for__allow_without_allocation=is_relaxed)

    causes, _ = write(for_workloads, for_workloads.create(CLAIMS, claim()), reservedFor=consumers)

    assert causes == found


def test_a_claim_that_is_being_deleted_is_released_and_not_reserved(world):
    stored = world.create(CLAIMS, claim())
    stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stored["status"] = {"allocation": ALLOCATION, "reservedFor": [pod(1), pod(2)]}

    more, _ = write(world, stored, allocation=ALLOCATION, reservedFor=[pod(1), pod(2), pod(3)])
    less, _ = write(world, stored, allocation=ALLOCATION, reservedFor=[pod(2)])

    text = "Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
    assert (more, less) == ([("status.reservedFor", text)], [])
