"""Binding conditions of devices that are attached only after a pod has chosen them: is a claim ready? Pure.

A device may name conditions that all have to be True in the claim's `status.devices` before the pod is
bound, and failure conditions, any of which ends the attempt when it is True. Source: dra-core 6.7;
KEP-5007; upstream `isClaimReadyForBinding`, `isClaimTimeout`.
"""

from services.api.kinds.resourceclaim import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from services.api.meta import Condition, find_condition
from services.api.times import parse_time


def drivers_to_wait_for(claim: ResourceClaim) -> list[str]:
    """Return the drivers of the claim's devices that have binding conditions, without duplicates."""
    return list(dict.fromkeys(each.driver for each in _conditional(claim)))


def is_ready(claim: ResourceClaim) -> bool:
    """Whether all binding conditions of all devices are True; also if there are none."""
    if claim.status.allocation is None:
        return False
    return all(
        (status := _status_of(claim, each)) is not None
        and all(_is_true(find_condition(status.conditions, wanted)) for wanted in each.binding_conditions)
        for each in _conditional(claim)
    )


def failure_of(claim: ResourceClaim) -> str:
    """Return the failure condition that is True, in upstream's words; "" if none is."""
    for result in _conditional(claim):
        status = _status_of(claim, result)
        for name in result.binding_failure_conditions if status is not None else ():
            condition = find_condition(status.conditions, name) if status is not None else None
            if condition is not None and _is_true(condition):
                quoted = condition.message.replace("\\", "\\\\").replace('"', '\\"')
                whose = f"claim={claim.metadata.name}, reason={condition.reason}"
                return f'device binding failed: {whose}, message="{quoted}"'
    return ""


def is_timed_out(claim: ResourceClaim, wall_s: float, timeout_s: float) -> bool:
    """Whether the allocation is older than the time that binding may take."""
    allocation = claim.status.allocation
    stamp = allocation.allocation_timestamp if allocation is not None else None
    return bool(_conditional(claim)) and stamp is not None and parse_time(stamp) + timeout_s < wall_s


def _conditional(claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
    allocation = claim.status.allocation
    return [each for each in allocation.devices.results if each.binding_conditions] if allocation is not None else []


def _status_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    return next((each for each in claim.status.devices if each.id == result.id), None)


def _is_true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"
