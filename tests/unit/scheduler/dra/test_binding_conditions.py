"""When a claim's devices are attached, when they failed, and when they are given up (dra-core 6.7; KEP-5007)."""

from __future__ import annotations

import pytest

from scheduler.dra.binding_conditions import drivers_to_wait_for, failure_of, is_ready, is_timed_out
from services.api.kinds.resourceclaim import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from services.api.meta import Condition, ObjectMeta
from services.api.times import parse_time

STAMP = "2026-01-01T00:00:00Z"


def result(device="d", wanted=("a", "b"), fatal=("f",)):
    return DeviceRequestAllocationResult(
        driver="x", pool="p", device=device, binding_conditions=wanted, binding_failure_conditions=fatal
    )


def claim(*conditions, results=None):
    said = tuple(Condition(type=name, status=status, reason="R", message='no "port"') for name, status in conditions)
    statuses = (AllocatedDeviceStatus(driver="x", pool="p", device="d", conditions=said),) if said else ()
    allocation = AllocationResult(
        devices=DeviceAllocationResult(results=results or (result(),)), allocation_timestamp=STAMP
    )
    status = ResourceClaimStatus(allocation=allocation, devices=statuses)
    return ResourceClaim(metadata=ObjectMeta(name="c", namespace="default"), status=status)


@pytest.mark.parametrize(
    ("conditions", "ready", "failure"),
    [
        ((), False, ""),
        ((("a", "True"),), False, ""),
        ((("a", "True"), ("b", "False")), False, ""),
        ((("a", "True"), ("b", "True")), True, ""),
        ((("a", "True"), ("b", "True"), ("f", "False")), True, ""),
        ((("f", "True"),), False, 'device binding failed: claim=c, reason=R, message="no \\"port\\""'),
    ],
)
def test_all_binding_conditions_must_be_true_and_no_failure_condition(conditions, ready, failure):
    held = claim(*conditions)

    assert (is_ready(held), failure_of(held)) == (ready, failure)
    assert drivers_to_wait_for(held) == ["x"]


def test_devices_without_binding_conditions_are_ready_and_never_given_up():
    held = claim(results=(result(wanted=()),))

    assert (is_ready(held), drivers_to_wait_for(held)) == (True, [])
    assert not is_timed_out(held, parse_time(STAMP) + 1e6, 600.0)
    assert not is_ready(ResourceClaim())


def test_every_device_of_the_claim_counts():
    attached = (("a", "True"), ("b", "True"))

    assert not is_ready(claim(*attached, results=(result(), result("other"))))
    assert is_ready(claim(*attached, results=(result(), result("other", wanted=()))))


@pytest.mark.parametrize(("after_s", "is_late"), [(600.0, False), (600.1, True)])
def test_the_time_counts_from_the_allocation(after_s, is_late):
    assert is_timed_out(claim(), parse_time(STAMP) + after_s, 600.0) is is_late
