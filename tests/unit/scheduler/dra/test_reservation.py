"""Who is listed in a claim's `reservedFor`: the decision table of kep-5194 3.1, row by row, and KEP-5729's groups."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.dra.reservation import Reservation, is_reserved, reservation
from services.api.kinds.pod import PodResourceClaim, PodResourceClaimStatus, PodSchedulingGroup
from services.api.kinds.podgroup import PodGroup, PodGroupResourceClaim, PodGroupSpec
from services.api.kinds.resourceclaim import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from services.api.meta import ObjectMeta

JOB = ResourceClaimConsumerReference(api_group="batch", resource="jobs", name="j", uid="j1")
OWN = ResourceClaimConsumerReference(resource="pods", name="p", uid="p")
OTHER = ResourceClaimConsumerReference(resource="pods", name="q", uid="q")
GROUP = ResourceClaimConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="g1")
PLAIN = AllocationResult()
FOR_ANY = AllocationResult(reserved_for_any_pod=True)


def claim(allocation=None, *listed, workload=None):
    return ResourceClaim(
        metadata=ObjectMeta(name="c", namespace="default", uid="c"),
        spec=ResourceClaimSpec(reserved_for=workload),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=listed),
    )


@pytest.mark.parametrize(
    ("listed", "workload", "present", "expected"),
    [
        ((), None, None, Reservation(OWN)),
        ((), JOB, None, Reservation(JOB, for_any_pod=True)),
        ((), JOB, FOR_ANY, Reservation(JOB)),
        ((), JOB, PLAIN, Reservation(OWN)),
        ((OTHER,), JOB, PLAIN, Reservation(OWN)),
        ((OTHER,), JOB, FOR_ANY, Reservation(JOB)),
        ((JOB,), JOB, FOR_ANY, Reservation(None)),
        ((JOB,), None, FOR_ANY, Reservation(None)),
        ((JOB,), JOB, PLAIN, Reservation(OWN)),
        ((JOB, OTHER), JOB, FOR_ANY, Reservation(None)),
        ((OWN,), JOB, PLAIN, Reservation(None)),
    ],
)
def test_kep_5194_3_1_the_decision_table(a, listed, workload, present, expected):
    """`present` None: the claim is being allocated."""
    held = claim(present, *listed, workload=workload)

    assert reservation("kep5194", held, a.pod("p"), PLAIN if present is None else None, None) == expected


@pytest.mark.parametrize("mode", ["pods", "kep5729"])
def test_the_workload_of_the_spec_counts_in_its_own_mode_alone(a, mode):
    held = claim(FOR_ANY, JOB, workload=JOB)

    assert reservation(mode, held, a.pod("p"), None, None) == Reservation(OWN)
    assert not is_reserved(mode, held, a.pod("p"))
    assert is_reserved("kep5194", held, a.pod("p"))


def member(a, *wanted, made="", group="g"):
    found = a.pod("p", resource_claims=wanted, scheduling_group=PodSchedulingGroup(pod_group_name=group))
    statuses = (PodResourceClaimStatus(name="gpu", resource_claim_name=made),) if made else ()
    return replace(found, status=replace(found.status, resource_claim_statuses=statuses))


def group_with(*claims):
    return PodGroup(
        metadata=ObjectMeta(name="g", namespace="default", uid="g1"), spec=PodGroupSpec(resource_claims=claims)
    )


DIRECT = {"name": "gpu", "resource_claim_name": "c"}
MADE = {"name": "gpu", "resource_claim_template_name": "t"}


@pytest.mark.parametrize(
    ("of_pod", "of_group", "made", "expected"),
    [
        (DIRECT, DIRECT, "", GROUP),
        (MADE, MADE, "c", GROUP),
        (DIRECT, {**DIRECT, "name": "other"}, "", OWN),
        (DIRECT, {**DIRECT, "resource_claim_name": "d"}, "", OWN),
        (MADE, {**MADE, "resource_claim_template_name": "u"}, "c", OWN),
    ],
)
def test_kep_5729_a_claim_is_the_groups_when_name_and_source_are_equal(a, of_pod, of_group, made, expected):
    group = group_with(PodGroupResourceClaim(**of_group))

    found = reservation("kep5729", claim(), member(a, PodResourceClaim(**of_pod), made=made), PLAIN, group)

    assert found == Reservation(expected)


def test_kep_5729_a_pod_finds_its_group_in_the_list_by_name(a):
    held = claim(PLAIN, replace(GROUP, uid="another"))

    assert is_reserved("kep5729", held, member(a, PodResourceClaim(**DIRECT)))
    assert not is_reserved("kep5729", held, member(a, PodResourceClaim(**DIRECT), group="h"))
    assert not is_reserved("kep5194", held, member(a, PodResourceClaim(**DIRECT)))
